"""Files of weights: writing them, checking their contents, and installing them atomically."""

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
    """Yield the rest of a stream in chunks of a megabyte."""
    while chunk := stream.read(_CHUNK):
        yield chunk


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Writer:
    """Writes weights to a new file, and computes their sha256 meanwhile.

    Args:
        path: The new file.
        size: The expected number of bytes; more are an error.
        name: The name of the file in errors.
    """

    def __init__(self, path: Path, size: int, name: str) -> None:
        self._path = path
        self._size = size
        self._name = name
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
            raise ModelStoreError(f"{self._name}: is larger than the {self._size} bytes expected")
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self, sha256: str) -> None:
        """Flush the file to the disk. Raises ModelStoreError if it is not the expected one."""
        if self.written != self._size:
            raise ModelStoreError(f"{self._name}: ended after {self.written} of {self._size} bytes")
        check_sha256(self._hash.hexdigest(), sha256, self._name)
        self._file.flush()
        os.fsync(self._file.fileno())


def check_sha256(found: str, expected: str, name: str) -> None:
    """Raise ModelStoreError for contents that are not those of the catalog."""
    if found != expected:
        raise ModelStoreError(
            f"{name}: is not the file that holodeck knows (sha256 {found}, expected {expected});"
            " it was deleted"
        )


@dataclass(frozen=True)
class Stamp:
    """What identifies the state of a file that was checked, without reading it."""

    size: int
    mtime_ns: int
    sha256: str

    @classmethod
    def of(cls, path: Path, sha256: str) -> "Stamp":
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, sha256)


def is_intact(path: Path, size: int, sha256: str) -> bool:
    """Whether a file has the expected contents; it is read only if it changed since the last check.

    A file whose size and modification time are those of its stamp counts as unchanged.
    """
    if path.stat().st_size != size:
        return False
    return _read_stamp(path) == Stamp.of(path, sha256) or is_verified(path, sha256)


def is_verified(path: Path, sha256: str) -> bool:
    """Whether a file has the expected contents, by reading all of it; if so, it gets a stamp."""
    stamp = Stamp.of(path, sha256)
    if sha256_of(path) != sha256:
        return False
    with suppress(OSError):  # a read-only cache is checked anew each time
        _write_stamp(path, stamp)
    return True


def install(staged: Path, final: Path, sha256: str) -> None:
    """Move a checked file to its final name atomically."""
    staged.replace(final)
    _write_stamp(final, Stamp.of(final, sha256))
    if os.name == "posix":
        handle = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stamp_file(path: Path) -> Path:
    """Return the path of a file's stamp."""
    return path.with_name(path.name + ".verified")


def _read_stamp(path: Path) -> Stamp | None:
    try:
        return Stamp(**json.loads(stamp_file(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _write_stamp(path: Path, stamp: Stamp) -> None:
    target = stamp_file(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.write_text(json.dumps(vars(stamp)), encoding="utf-8")
    temporary.replace(target)
