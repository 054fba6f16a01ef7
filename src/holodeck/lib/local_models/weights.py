"""Files of weights: whether they are what they should be, and putting them in place whole."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holodeck.errors import ModelStoreError

_CHUNK = 1 << 20
_MAGIC = b"GGUF"


def chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The rest of a stream, a megabyte at a time."""
    while chunk := stream.read(_CHUNK):
        yield chunk


def sha256_of(path: Path) -> str:
    """The sha256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Writer:
    """Writes weights to a new file and knows their sha256 without reading them again."""

    def __init__(self, path: Path, size: int, what: str) -> None:
        """`size` is the most that is accepted; `what` names the file in errors."""
        self._path = path
        self._size = size
        self._what = what
        self._hash = hashlib.sha256()
        self.written = 0

    def __enter__(self) -> "Writer":
        self._file = self._path.open("xb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        self.written += len(chunk)
        if self.written > self._size:
            raise ModelStoreError(f"{self._what}: is larger than the {self._size} bytes expected")
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self, sha256: str) -> None:
        """Put everything on the disk. Raises ModelStoreError if it is not what it should be."""
        if self.written != self._size:
            raise ModelStoreError(
                f"{self._what}: stopped after {self.written} of {self._size} bytes"
            )
        check_sha256(self._hash.hexdigest(), sha256, self._what)
        self._file.flush()
        os.fsync(self._file.fileno())


def check_sha256(found: str, expected: str, what: str) -> None:
    """Raise ModelStoreError if contents are not those that the catalog knows."""
    if found != expected:
        raise ModelStoreError(
            f"{what}: is not the file that holodeck knows (sha256 {found}, expected {expected});"
            " nothing of it was kept"
        )


@dataclass(frozen=True)
class Stamp:
    """What tells a file apart from an altered one without reading it."""

    size: int
    mtime_ns: int
    sha256: str

    @classmethod
    def of(cls, path: Path, sha256: str) -> "Stamp":
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, sha256)


def is_intact(path: Path, size: int, sha256: str) -> bool:
    """Whether a file holds what it should: quickly if its stamp still fits, else by reading it.

    The stamp is written after a full check. A file whose size and time of change are those of the
    stamp is taken to be the one that was checked.
    """
    if path.stat().st_size != size:
        return False
    if _stamp(path) == Stamp.of(path, sha256):
        return True
    return is_verified(path, sha256)


def is_verified(path: Path, sha256: str) -> bool:
    """Whether a file holds what it should, by reading all of it; if so it is stamped."""
    stamp = Stamp.of(path, sha256)
    if sha256_of(path) != sha256:
        return False
    with suppress(OSError):  # a read-only cache is checked anew each time
        _write_stamp(path, stamp)
    return True


def put_in_place(staged: Path, final: Path, sha256: str) -> None:
    """Make a checked file appear under its final name, whole or not at all."""
    staged.replace(final)
    _write_stamp(final, Stamp.of(final, sha256))
    _sync_folder(final.parent)


def stamp_file(path: Path) -> Path:
    """Where the stamp of a file lies."""
    return path.with_name(path.name + ".verified")


def _stamp(path: Path) -> Stamp | None:
    try:
        return Stamp(**json.loads(stamp_file(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _write_stamp(path: Path, stamp: Stamp) -> None:
    target = stamp_file(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.write_text(json.dumps(vars(stamp)), encoding="utf-8")
    temporary.replace(target)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
