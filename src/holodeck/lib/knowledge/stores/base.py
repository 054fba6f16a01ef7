"""What a vector store takes, returns and does, and the vectors that it compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from holodeck.lib.knowledge.stores.adapter import RowKey, StoreProblem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from holodeck.lib.knowledge.stores.adapter import Vector

    Matrix: TypeAlias = npt.NDArray[np.float32]


def normalise(embedding: Sequence[float], dimensions: int) -> "Vector":
    """Return the embedding with length 1, or zeros for zeros. Raises StoreProblem."""
    import numpy as np

    vector = np.asarray(embedding, dtype=np.float64)
    if vector.shape != (dimensions,):
        raise StoreProblem(
            f"an embedding has {vector.size} numbers instead of {dimensions}; all embeddings of a"
            " collection must come from one model"
        )
    if not np.isfinite(vector).all():
        raise StoreProblem(
            "an embedding has numbers that are not finite; check the embedding model"
        )
    length = np.linalg.norm(vector)
    return (vector / length if length else vector).astype(np.float32)


def matrix_of(blobs: Sequence[bytes], dimensions: int) -> "Matrix":
    """Return vectors that were stored as bytes as the rows of one array. Raises StoreProblem."""
    import numpy as np

    joined = b"".join(blobs)
    if len(joined) != 4 * dimensions * len(blobs):
        raise StoreProblem("stored embeddings are damaged; ingest anew with --force-ingest")
    return np.frombuffer(joined, dtype="<f4").reshape(len(blobs), dimensions)


def to_bytes(vector: "Vector") -> bytes:
    """Return the vector as little-endian 32-bit floats."""
    return vector.astype("<f4").tobytes()


class VectorIndex:
    """Normalised vectors in one array, searched exactly."""

    def __init__(self, keys: Sequence[RowKey], matrix: "Matrix") -> None:
        """`keys` name the rows of `matrix`."""
        self.keys = keys
        self._matrix = matrix

    def best(self, vector: "Vector", top_k: int) -> list[tuple[RowKey, float]]:
        """Return the keys of the most similar vectors with their cosine similarity."""
        import numpy as np

        if not self.keys:
            return []
        scores = self._matrix @ vector
        if top_k < len(scores):
            # of equal scores at the edge, all take part: the caller's order decides
            edge = scores[np.argpartition(-scores, top_k - 1)[top_k - 1]]
            found = np.flatnonzero(scores >= edge).tolist()
        else:
            found = list(range(len(scores)))
        best = sorted(found, key=lambda index: (-scores[index], self.keys[index]))
        return [(self.keys[index], float(scores[index])) for index in best[:top_k]]


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
