"""Qdrant, on a server or in a folder."""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import MissingExtra
from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    StoreContext,
    StoredChunk,
    StoreProblem,
    collection_name,
    explain_connection,
    host_of,
    server_url,
    uuid_of,
)
from holodeck.lib.support.files import make_folder, try_lock
from holodeck.models.tools.knowledge import DatabaseConfig

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from holodeck.lib.knowledge.stores.base import Vector

_PER_REQUEST = 200
_folders: dict[Path, tuple["QdrantClient", int]] = {}
"""The clients of folders with the number of their users: a folder opens once."""
_folders_lock = threading.RLock()
"""Held during each call for a folder, as its client is for one thread at a time."""


class QdrantAdapter:
    """A collection of points, and one for the fingerprints of documents."""

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        try:
            import qdrant_client  # noqa: F401
        except ImportError as error:
            raise MissingExtra("qdrant", "vector store qdrant") from error

        self._config = config
        self._folder = context.written_path(config)
        self._url = "" if self._folder else server_url(config, "http", "https")
        self.address = str(self._folder) if self._folder else host_of(self._url, 6333)
        self._points = collection_name(context.collection)
        self._manifest = f"{self._points}_manifest"
        self._client: QdrantClient | None = None

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        self._client = self._connect() if self._folder is None else _open_folder(self._folder)
        with self._using() as client:
            if empty:
                for name in (self._points, self._manifest):
                    client.delete_collection(name)
            size = self._create(client, self._points, dimensions)
            self._create(client, self._manifest, 1)
        if size != dimensions:
            self.close()
            raise OtherDimensions(size, dimensions)

    def _connect(self) -> "QdrantClient":
        from qdrant_client import QdrantClient

        key = self._config.api_key
        return QdrantClient(
            url=self._url,
            api_key=None if key is None else key.get_secret_value(),
            timeout=max(1, math.floor(self._config.timeout)),
            check_compatibility=False,  # it asks the server, and prints warnings
        )

    def _create(self, client: "QdrantClient", name: str, dimensions: int) -> int:
        """Create a collection if it is missing; return the size of its vectors."""
        from qdrant_client import models

        if not client.collection_exists(name):
            # all vectors have length 1, so that the product is the cosine
            vectors = models.VectorParams(size=dimensions, distance=models.Distance.DOT)
            client.create_collection(name, vectors_config=vectors)
            if self._folder is None:
                client.create_payload_index(name, "document", models.PayloadSchemaType.KEYWORD)
            return dimensions
        vectors = client.get_collection(name).config.params.vectors
        if not isinstance(vectors, models.VectorParams):
            raise StoreProblem(f"the collection {name!r} is of another program; remove it")
        size: int = vectors.size
        return size

    @contextmanager
    def _using(self) -> Iterator["QdrantClient"]:
        if self._client is None:
            raise StoreProblem("the store is not open")
        with _folders_lock if self._folder else nullcontext():
            yield self._client

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        from qdrant_client import models

        points = [
            models.PointStruct(
                id=uuid_of(*row.key),
                vector=vector.tolist(),
                payload={**row.payload, "text": row.text},
            )
            for row, vector in zip(rows, vectors, strict=True)
        ]
        self.delete(document)
        with self._using() as client:
            for start in range(0, len(points), _PER_REQUEST):
                client.upsert(self._points, points[start : start + _PER_REQUEST], wait=True)

    def delete(self, document: str) -> None:
        from qdrant_client import models

        self.set_manifest(document, None)
        match = models.FieldCondition(key="document", match=models.MatchValue(value=document))
        with self._using() as client:
            selector = models.FilterSelector(filter=models.Filter(must=[match]))
            client.delete(self._points, selector, wait=True)

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        from qdrant_client import models

        # results must not change from run to run; a folder is always searched exactly
        exact = None if self._folder else models.SearchParams(exact=True)
        with self._using() as client:
            response = client.query_points(
                self._points, query=vector.tolist(), limit=top_k, search_params=exact
            )
        return [(_row(point.payload or {}), point.score) for point in response.points]

    def rows(self) -> Iterable[StoredChunk]:
        return [_row(payload) for payload in self._payloads(self._points)]

    def manifest(self) -> dict[str, str]:
        payloads = self._payloads(self._manifest)
        return {payload["document"]: payload["fingerprint"] for payload in payloads}

    def _payloads(self, name: str) -> list[dict[str, Any]]:
        payloads, offset = list[dict[str, Any]](), None
        while True:
            with self._using() as client:
                points, offset = client.scroll(name, limit=_PER_REQUEST, offset=offset)
            payloads += [point.payload or {} for point in points]
            if offset is None:
                return payloads

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        from qdrant_client import models

        point = uuid_of(document)
        with self._using() as client:
            if fingerprint is None:
                client.delete(self._manifest, models.PointIdsList(points=[point]), wait=True)
                return
            payload = {"document": document, "fingerprint": fingerprint}
            points = [models.PointStruct(id=point, vector=[1.0], payload=payload)]
            client.upsert(self._manifest, points, wait=True)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if self._folder is None:
            client.close()
        else:
            _close_folder(self._folder)

    def explain(self, error: Exception) -> str | None:
        return explain_connection(error, "api_key")


def _open_folder(folder: Path) -> "QdrantClient":
    """Return the client of a folder, which the stores of this process share."""
    from qdrant_client import QdrantClient

    with _folders_lock:
        client, users = _folders.get(folder, (None, 0))
        if client is None:
            if not _is_free(folder / ".lock"):
                raise StoreProblem(
                    "another process uses the folder; end it, or run a Qdrant server and use 'url'"
                )
            make_folder(folder)
            client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
        _folders[folder] = (client, users + 1)
        return client


def _is_free(lock: Path) -> bool:
    """Whether nobody has locked the file; a client that cannot lock it leaves it open."""
    if not lock.exists():
        return True
    handle = os.open(lock, os.O_RDWR)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


def _close_folder(folder: Path) -> None:
    with _folders_lock:
        client, users = _folders.pop(folder)
        if users > 1:
            _folders[folder] = (client, users - 1)
        else:
            client.close()


def _row(payload: dict[str, Any]) -> StoredChunk:
    return StoredChunk.of_payload(payload, payload["text"])
