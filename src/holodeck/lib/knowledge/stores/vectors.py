"""Embeddings as arrays, and exact search among vectors in memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

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
