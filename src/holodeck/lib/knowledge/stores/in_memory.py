"""The store in memory, which ends with the run."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holodeck.lib.knowledge.stores.adapter import Row, RowKey, StoreContext
from holodeck.lib.knowledge.stores.vectors import VectorIndex
from holodeck.models.tools.database import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.adapter import Vector
    from holodeck.lib.knowledge.stores.vectors import Matrix


class InMemoryAdapter:
    """Rows and vectors in dictionaries."""

    address = ""

    def __init__(self, _config: DatabaseConfig, _context: StoreContext) -> None:
        self._rows: dict[RowKey, tuple[Row, Vector]] = {}
        self._manifest: dict[str, str] = {}
        self._index: VectorIndex | None = None

    def open(self, dimensions: int, *, empty: bool) -> None:  # noqa: ARG002 - it is always empty
        self._rows.clear()
        self._manifest.clear()
        self._index = None

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        self.delete(document)
        self._rows.update((row.key, (row, one)) for row, one in zip(rows, vectors, strict=True))

    def delete(self, document: str) -> None:
        self._rows = {key: one for key, one in self._rows.items() if key.document != document}
        self._manifest.pop(document, None)
        self._index = None

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        self._index = self._index or self._build_index()
        return [(self._rows[key][0], score) for key, score in self._index.best(vector, top_k)]

    def _build_index(self) -> VectorIndex:
        import numpy as np

        vectors = [one for _, one in self._rows.values()]
        matrix = np.stack(vectors) if vectors else np.empty((0, 0), np.float32)
        return self._index_of(list(self._rows), matrix)

    def _index_of(self, keys: Sequence[RowKey], matrix: "Matrix") -> VectorIndex:
        return VectorIndex(keys, matrix)

    def rows(self) -> Iterable[Row]:
        return [row for row, _ in self._rows.values()]

    def manifest(self) -> dict[str, str]:
        return dict(self._manifest)

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        if fingerprint is None:
            self._manifest.pop(document, None)
        else:
            self._manifest[document] = fingerprint

    def close(self) -> None:
        pass

    def explain(self, error: Exception) -> str | None:  # noqa: ARG002 - nothing can fail
        return None
