"""Search with FAISS, in memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.errors import MissingExtra
from holodeck.lib.knowledge.stores.adapter import RowKey, StoreContext
from holodeck.lib.knowledge.stores.in_memory import InMemoryAdapter
from holodeck.lib.knowledge.stores.vectors import VectorIndex
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.adapter import Vector
    from holodeck.lib.knowledge.stores.vectors import Matrix


class FaissAdapter(InMemoryAdapter):
    """The store in memory, whose vectors are searched by FAISS, exactly."""

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        try:
            import faiss  # noqa: F401
        except ImportError as error:
            raise MissingExtra("faiss", "vector store faiss") from error
        super().__init__(config, context)

    def _index_of(self, keys: Sequence[RowKey], matrix: "Matrix") -> VectorIndex:
        return FaissIndex(keys, matrix)


class FaissIndex(VectorIndex):
    """Normalised vectors in a flat index of FAISS."""

    def __init__(self, keys: Sequence[RowKey], matrix: "Matrix") -> None:
        import faiss

        super().__init__(keys, matrix[:0])
        self._index = faiss.IndexFlatIP(matrix.shape[1])
        self._index.add(matrix)

    def best(self, vector: "Vector", top_k: int) -> list[tuple[RowKey, float]]:
        if not self.keys:
            return []
        scores, found = self._index.search(vector[None, :], min(top_k, len(self.keys)))
        pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        return [(self.keys[index], score) for index, score in pairs]
