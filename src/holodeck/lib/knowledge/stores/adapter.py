"""What a store's adapter does: blocking calls of a client, on rows with normalised vectors."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from holodeck.lib.support.safe_paths import written_path
from holodeck.models.tools.database import DatabaseConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StoreContext:
    """What an adapter needs to know besides the configuration."""

    collection: str
    """Name of the collection, any text."""
    cache: Path
    """The cache folder."""
    base_dir: Path
    """The folder from which relative paths start."""

    def written_path(self, config: DatabaseConfig) -> Path | None:
        """Return the file or folder of a store without a server; None if it names none.

        Raises ConfigError if a run may not write there.
        """
        if config.path is None:
            return None
        if config.is_users:
            return (self.base_dir / Path(config.path).expanduser()).resolve()
        return written_path(config.path, self.base_dir, "database.path")


class RowKey(NamedTuple):
    """Identifies a chunk in a collection."""

    document: str
    position: int
    """From 0, in the order of the document."""


@dataclass(frozen=True)
class StoredChunk:
    """A chunk without its embedding, as stores keep it."""

    key: RowKey
    id: str
    text: str
    metadata: str
    """A JSON document."""


class StoreAdapter(Protocol):
    """A client of a product for one collection; `Collection` calls one method at a time.

    Methods block and raise whatever the client raises, or StoreProblem.
    """

    @property
    def address(self) -> str:
        """Host and port, or the path; never a secret."""
        ...

    def open(self, dimensions: int, *, empty: bool) -> None:
        """Connect and create the collection. Raises OtherDimensions."""
        ...

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        """Store rows instead of those of the document, and forget its fingerprint."""
        ...

    def delete(self, document: str) -> None: ...

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        """Return at most `top_k` rows with their cosine similarity, in any order."""
        ...

    def rows(self) -> Iterable[StoredChunk]:
        """Return all rows, in any order."""
        ...

    def manifest(self) -> dict[str, str]: ...

    def set_manifest(self, document: str, fingerprint: str | None) -> None: ...

    def close(self) -> None: ...

    def explain(self, error: Exception) -> str | None:
        """Return what is wrong and what to change for an error of the client; None if unknown."""
        ...


class StoreProblem(Exception):
    """What is wrong with a store and what to change, for people."""


class OtherDimensions(StoreProblem):
    """The collection has embeddings of another size."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(
            f"the collection has embeddings with {found} dimensions, and the embedding model gives"
            f" {wanted}; use the model it was made with, or ingest anew with --force-ingest"
        )


def collection_name(text: str) -> str:
    """Return a name for a collection that every product accepts: 3 to 50 of `a-z`, 0-9 and `_`."""
    if re.fullmatch(r"[a-z][a-z0-9_]{2,49}", text):
        return text
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:30]
    return f"c_{words}_{digest(text)[:12]}".replace("__", "_")


def digest(*parts: str | int) -> str:
    """Return a SHA-256 of the parts, in hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
