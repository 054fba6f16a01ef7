"""What a vector store takes, returns and does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class Chunk:
    """A part of a document with its embedding, to be stored."""

    id: str
    """Unique in its document."""
    document: str
    """The source of the text."""
    text: str
    embedding: Sequence[float]
    metadata: dict[str, Any]
    """Values as JSON holds them."""


@dataclass(frozen=True)
class Hit:
    """A stored chunk that a search found."""

    id: str
    document: str
    text: str
    score: float
    """Cosine similarity with the query, from 0 to 1; opposite directions count as 0."""
    metadata: dict[str, Any]


class StoredText(NamedTuple):
    """A stored chunk without its embedding."""

    id: str
    document: str
    text: str
    metadata: dict[str, Any]


class VectorStore(Protocol):
    """One collection of chunks. Every method but `close` raises VectorStoreError.

    Characters that some stores reject (NUL, lone surrogates) are stored as U+FFFD.
    """

    async def open(self, dimensions: int, *, empty: bool = False) -> None:
        """Connect, and create the collection for embeddings of this size if it is missing.

        With `empty`, remove all that the collection has, whatever its size. Without it, a
        collection for embeddings of another size is an error.
        """
        ...

    async def replace(self, document: str, chunks: Sequence[Chunk]) -> None:
        """Store the chunks of a document instead of those it had, and forget its fingerprint.

        A caller that sets the fingerprint afterwards sees in `manifest` which documents are
        complete, even if a process died in between.
        """
        ...

    async def delete(self, document: str) -> None:
        """Remove a document with its chunks and its fingerprint, if it is there."""
        ...

    async def search(self, embedding: Sequence[float], top_k: int) -> list[Hit]:
        """Return the chunks with the highest scores, the best first."""
        ...

    async def texts(self) -> list[StoredText]:
        """Return all chunks, by document and in the order in which they were stored."""
        ...

    async def manifest(self) -> dict[str, str]:
        """Return document → fingerprint of the documents that have one."""
        ...

    async def set_manifest(self, document: str, fingerprint: str | None) -> None:
        """Set the fingerprint of a document; None forgets it."""
        ...

    async def close(self) -> None:
        """Disconnect; may be called twice, and without `open`."""
        ...
