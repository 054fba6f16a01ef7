"""Redis without modules: vectors in hashes, and an array of them in memory for the search."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.errors import MissingExtra
from holodeck.lib.knowledge.stores.adapter import (
    OtherDimensions,
    Row,
    RowKey,
    StoreContext,
    StoreProblem,
    collection_name,
    digest,
)
from holodeck.lib.knowledge.stores.servers import explain_connection, host_of, server_url
from holodeck.lib.knowledge.stores.vectors import VectorIndex, matrix_of, to_bytes
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.adapter import Vector

_ATTEMPTS = 5
"""How often to read anew what another run changes in the meantime."""


class RedisAdapter:
    """A collection in keys that begin with its name.

    A hash has the size of the embeddings and a number that grows with each change; one has the
    number of chunks of each document; two per document have the texts and the vectors.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        try:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise MissingExtra("redis", "vector store redis") from error

        url = server_url(config, "redis", "rediss")
        self.address = host_of(url, 6379)
        self._prefix = f"holodeck:{collection_name(context.collection)}:"
        seconds = config.timeout * 0.8  # ends before the limit of the call
        self._client: Any = Redis.from_url(  # whose types allow for text and bytes alike
            url,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 1),  # once more if the server closed an idle connection
        )
        self._dimensions = 0
        self._index: VectorIndex | None = None
        self._indexed = -1
        """The number of changes that the index was made after."""

    def _key(self, name: str, document: str | None = None) -> str:
        end = "" if document is None else f":{digest(document)[:32]}"
        return f"{self._prefix}{name}{end}"

    def open(self, dimensions: int, *, empty: bool) -> None:
        self._dimensions = dimensions
        self._index = None
        if empty:
            for document in self._documents():
                self.delete(document)
            self._client.hset(self._key("state"), "dimensions", str(dimensions))
        self._client.hsetnx(self._key("state"), "dimensions", str(dimensions))
        found = int(self._client.hget(self._key("state"), "dimensions") or 0)
        if found != dimensions:
            raise OtherDimensions(found, dimensions)

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        with self._client.pipeline(transaction=True) as change:
            self._forget(change, document)
            for row, vector in zip(rows, vectors, strict=True):
                field = str(row.key.position)
                values = json.dumps([row.id, row.text, row.metadata])
                change.hset(self._key("texts", document), field, values)
                change.hset(self._key("vectors", document), field, to_bytes(vector))
            change.hset(self._key("documents"), document, str(len(rows)))
            change.execute()

    def delete(self, document: str) -> None:
        with self._client.pipeline(transaction=True) as change:
            self._forget(change, document)
            change.execute()

    def _forget(self, change: Any, document: str) -> None:
        change.delete(self._key("texts", document), self._key("vectors", document))
        change.hdel(self._key("documents"), document)
        change.hdel(self._key("manifest"), document)
        change.hincrby(self._key("state"), "changes", 1)

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        for _ in range(_ATTEMPTS):
            best = self._current_index().best(vector, top_k)
            with self._client.pipeline(transaction=False) as request:
                for key, _score in best:
                    request.hget(self._key("texts", key.document), str(key.position))
                texts = request.execute()
            if None not in texts:
                return [
                    (_row(key, text), score) for (key, score), text in zip(best, texts, strict=True)
                ]
        raise StoreProblem(_LOST)

    def _current_index(self) -> VectorIndex:
        for _ in range(_ATTEMPTS):
            changes = self._changes()
            if self._index is None or self._indexed != changes:
                documents = self._documents()
                vectors = self._read("vectors", documents)
                if self._changes() != changes:
                    continue
                self._index = self._build_index(documents, vectors)
                self._indexed = changes
            return self._index
        raise StoreProblem("another run changes the collection all the time; wait for its end")

    def _build_index(
        self, documents: dict[str, int], vectors: Sequence[dict[bytes, bytes]]
    ) -> VectorIndex:
        keys, blobs = list[RowKey](), list[bytes]()
        for (document, number), found in zip(documents.items(), vectors, strict=True):
            if len(found) != number:
                raise StoreProblem(_LOST)
            keys += [RowKey(document, int(position)) for position in found]
            blobs += found.values()
        return VectorIndex(keys, matrix_of(blobs, self._dimensions))

    def _changes(self) -> int:
        return int(self._client.hget(self._key("state"), "changes") or 0)

    def _documents(self) -> dict[str, int]:
        """Return document → number of its chunks."""
        found = self._client.hgetall(self._key("documents"))
        return {name.decode(): int(number) for name, number in found.items()}

    def _read(self, name: str, documents: Iterable[str]) -> list[dict[bytes, bytes]]:
        """Return position → value of each document."""
        with self._client.pipeline(transaction=False) as request:
            for document in documents:
                request.hgetall(self._key(name, document))
            found: list[dict[bytes, bytes]] = request.execute()
            return found

    def rows(self) -> Iterable[Row]:
        documents = self._documents()
        for document, texts in zip(documents, self._read("texts", documents), strict=True):
            for position, text in texts.items():
                yield _row(RowKey(document, int(position)), text)

    def manifest(self) -> dict[str, str]:
        found = self._client.hgetall(self._key("manifest"))
        return {document.decode(): fingerprint.decode() for document, fingerprint in found.items()}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        if fingerprint is None:
            self._client.hdel(self._key("manifest"), document)
        else:
            self._client.hset(self._key("manifest"), document, fingerprint)

    def close(self) -> None:
        self._client.close()
        self._index = None

    def explain(self, error: Exception) -> str | None:
        if "MISCONF" in str(error) or "OOM" in str(error) or "READONLY" in str(error):
            return f"the server refuses to write ({error}); check its memory, disk and role"
        return explain_connection(error, "connection_string")


_LOST = (
    "the server has lost chunks; set its 'maxmemory-policy' to 'noeviction', and ingest anew with"
    " --force-ingest"
)


def _row(key: RowKey, values: bytes) -> Row:
    return Row(key, *json.loads(values))
