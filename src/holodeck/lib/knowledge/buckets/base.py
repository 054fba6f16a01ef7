"""What a bucket or container of object storage can do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ObjectInfo:
    """An object as a listing shows it."""

    key: str
    size: int
    tag: str
    """Another one for another content."""


class Bucket(Protocol):
    """A bucket or container; its methods block and raise ConfigError."""

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with a prefix."""
        ...

    def read(self, key: str) -> bytes: ...

    def close(self) -> None: ...
