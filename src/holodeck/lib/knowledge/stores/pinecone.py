"""Pinecone, through its REST interface."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holodeck.errors import ConfigError
from holodeck.lib.knowledge.stores.adapter import (
    OtherDimensions,
    Row,
    RowKey,
    StoreContext,
    StoreProblem,
    collection_name,
    digest,
)
from holodeck.lib.knowledge.stores.rest import (
    RestClient,
    attempts,
    batches,
    explain_rest,
    json_of,
)
from holodeck.lib.knowledge.stores.servers import host_of, server_url
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from httpx2 import Response

    from holodeck.lib.knowledge.stores.adapter import Vector

_SERVICE = "https://api.pinecone.io"
_API_VERSION = "2025-04"
_UPSERTED, _UPSERTED_BYTES = 100, 1_500_000
_LISTED, _FETCHED, _DELETED = 100, 50, 1000
_LONGEST_INDEX_NAME = 45


class PineconeAdapter:
    """A namespace of chunks, and one for the fingerprints of documents.

    Pinecone stores no vectors of zeros. A chunk with such a vector gets another one, and a mark
    that keeps it out of searches by similarity.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        key, namespace = _credentials(config)
        url = _SERVICE if config.url is None else server_url(config, "http", "https")
        self.address = host_of(url, 443 if url.startswith("https") else 80)
        self._scheme = url.partition(":")[0]
        self._headers = {"api-key": key, "x-pinecone-api-version": _API_VERSION}
        self._limit_s = config.timeout * 0.8
        self._service = RestClient(url, self._headers, self._limit_s)
        self._config = config
        name = collection_name(context.collection).replace("_", "-")
        self._index_name = config.index_name or _index_name(name)
        self._chunks = f"{namespace}-{name}" if namespace else name
        self._manifest = f"{self._chunks}-manifest"
        self._index: RestClient | None = None
        self._dimensions = 0
        self._written: dict[str, int] = {}
        """By namespace: the number of the last change."""

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        path = f"/indexes/{self._index_name}"
        found = self._service.ask("GET", path, missing=True)
        if found and found.get("dimension") != dimensions:
            # others may use an index that the configuration names
            if not empty or self._config.index_name is not None:
                raise OtherDimensions(int(found.get("dimension") or 0), dimensions)
            self._remove(path)
            found = {}
        if not found:
            self._create(dimensions)
        host = self._host(path)
        address = host if "://" in host else f"{self._scheme}://{host}"
        self._index = RestClient(address, self._headers, self._limit_s)
        self._dimensions = dimensions
        if empty:
            for namespace in (self._chunks, self._manifest):
                self._empty(namespace)

    def _empty(self, namespace: str) -> None:
        """Remove all that a namespace has; its changes may be counted anew afterwards."""
        body = {"deleteAll": True, "namespace": namespace}
        self._written.pop(namespace, None)
        self._open_index.send("POST", "/vectors/delete", body, missing=True)
        for _ in attempts(self._limit_s, "Pinecone has not emptied the namespace"):
            found = self._open_index.ask("POST", "/describe_index_stats", {})
            if not found.get("namespaces", {}).get(namespace, {}).get("vectorCount"):
                return

    def _remove(self, path: str) -> None:
        self._service.send("DELETE", path, missing=True)
        for _ in attempts(self._limit_s, "Pinecone has not removed the index"):
            if not self._service.ask("GET", path, missing=True):
                return

    def _create(self, dimensions: int) -> None:
        place = {
            "cloud": self._config.cloud or "aws",
            "region": self._config.region or "us-east-1",
        }
        definition = {
            "name": self._index_name,
            "dimension": dimensions,
            "metric": "cosine",
            "spec": {"serverless": place},
        }
        self._service.send("POST", "/indexes", definition)

    def _host(self, path: str) -> str:
        """Return the host of the index, once it is ready."""
        state: dict[str, Any] = {}
        for _ in attempts(self._limit_s, "Pinecone has not made the index"):
            state = self._service.ask("GET", path)
            if state.get("status", {}).get("ready"):
                break
        if state.get("metric") == "euclidean":
            raise StoreProblem(
                f"the index {self._index_name!r} has the metric euclidean; use one with cosine"
            )
        return str(state["host"])

    @property
    def _open_index(self) -> RestClient:
        if self._index is None:
            raise StoreProblem("the store is not open")
        return self._index

    def _note(self, namespace: str, response: "Response") -> None:
        """Remember the number of a change, which searches may not see yet."""
        number = response.headers.get("x-pinecone-request-lsn")
        if number is not None:
            self._written[namespace] = int(number)

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        self.delete(document)
        self._upsert(
            self._chunks,
            [
                {
                    "id": f"{digest(document)}-{row.key.position}",
                    "values": vector.tolist() if vector.any() else self._other_vector,
                    "metadata": {
                        "document": document,
                        "position": row.key.position,
                        "chunk": row.id,
                        "text": row.text,
                        "metadata": row.metadata,
                        "zeros": not vector.any(),
                    },
                }
                for row, vector in zip(rows, vectors, strict=True)
            ],
        )

    @property
    def _other_vector(self) -> list[float]:
        return [1.0] + [0.0] * (self._dimensions - 1)

    def _upsert(self, namespace: str, vectors: list[dict[str, Any]]) -> None:
        for batch in batches(vectors, _UPSERTED, _UPSERTED_BYTES):
            body = {"vectors": batch, "namespace": namespace}
            self._note(namespace, self._open_index.send("POST", "/vectors/upsert", body))

    def delete(self, document: str) -> None:
        self.set_manifest(document, None)
        self._delete(self._chunks, list(self._ids(self._chunks, f"{digest(document)}-")))

    def _delete(self, namespace: str, ids: list[str]) -> None:
        for start in range(0, len(ids), _DELETED):
            body = {"ids": ids[start : start + _DELETED], "namespace": namespace}
            self._note(
                namespace, self._open_index.send("POST", "/vectors/delete", body, missing=True)
            )

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        found = []
        if vector.any():
            similar = self._query(self._chunks, vector.tolist(), top_k, zeros=False)
            found = [(_row(one["metadata"]), one["score"]) for one in similar]
        else:
            alike = self._query(self._chunks, self._other_vector, top_k, zeros=False)
            found = [(_row(one["metadata"]), 0.0) for one in alike]
        if len(found) < top_k:
            rest = self._query(self._chunks, self._other_vector, top_k - len(found), zeros=True)
            found += [(_row(one["metadata"]), 0.0) for one in rest]
        return found

    def _query(
        self, namespace: str, vector: list[float], top_k: int, *, zeros: bool
    ) -> list[dict[str, Any]]:
        """Return the best matches, once the index has all that was written."""
        body = {
            "vector": vector,
            "topK": top_k,
            "namespace": namespace,
            "filter": {"zeros": {"$eq": zeros}},
            "includeMetadata": True,
        }
        for _ in attempts(self._limit_s, "Pinecone does not find what was written"):
            response = self._open_index.send("POST", "/query", body)
            indexed = response.headers.get("x-pinecone-max-indexed-lsn")
            if indexed is None or int(indexed) >= self._written.get(namespace, 0):
                self._written.pop(namespace, None)
                return list(json_of(response).get("matches") or [])
        return []  # pragma: no cover

    def _settle(self, namespace: str) -> None:
        """Return once the index has all that was written."""
        if namespace in self._written:
            self._query(namespace, self._other_vector, 1, zeros=False)

    def _ids(self, namespace: str, prefix: str = "") -> Iterator[str]:
        self._settle(namespace)
        params: dict[str, Any] = {"namespace": namespace, "limit": _LISTED}
        if prefix:
            params["prefix"] = prefix
        while True:
            found = self._open_index.ask("GET", "/vectors/list", params=params, missing=True)
            for one in found.get("vectors") or []:
                yield one["id"]
            following = (found.get("pagination") or {}).get("next")
            if not following:
                return
            params["paginationToken"] = following

    def _metadata(self, namespace: str) -> Iterator[dict[str, Any]]:
        """Yield what is stored with each vector of a namespace."""
        ids = list(self._ids(namespace))
        for start in range(0, len(ids), _FETCHED):
            params = {"namespace": namespace, "ids": ids[start : start + _FETCHED]}
            found = self._open_index.ask("GET", "/vectors/fetch", params=params)
            for one in found["vectors"].values():
                yield one["metadata"]

    def rows(self) -> Iterable[Row]:
        return [_row(metadata) for metadata in self._metadata(self._chunks)]

    def manifest(self) -> dict[str, str]:
        return {one["document"]: one["fingerprint"] for one in self._metadata(self._manifest)}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        if fingerprint is None:
            self._delete(self._manifest, [digest(document)])
            return
        metadata = {"document": document, "fingerprint": fingerprint, "zeros": False}
        vector = {"id": digest(document), "values": self._other_vector, "metadata": metadata}
        self._upsert(self._manifest, [vector])

    def close(self) -> None:
        self._service.close()
        if self._index is not None:
            self._index.close()
        self._index = None

    def explain(self, error: Exception) -> str | None:
        return explain_rest(error, "api_key")


def _credentials(config: DatabaseConfig) -> tuple[str, str | None]:
    """Return the API key and the namespace; both may be in `pinecone://KEY@NAMESPACE`.

    Raises ConfigError.
    """
    if config.connection_string is None:
        return config.api_key.get_secret_value() if config.api_key else "", config.namespace
    parts = urlsplit(config.connection_string.get_secret_value())
    if parts.scheme != "pinecone" or not parts.username:
        raise ConfigError(
            "database.connection_string", "is none of pinecone; write pinecone://KEY@NAMESPACE"
        )
    return unquote(parts.username), parts.netloc.rpartition("@")[2] or None


def _index_name(collection: str) -> str:
    name = f"holodeck-{collection}"
    if len(name) > _LONGEST_INDEX_NAME:
        name = f"{name[: _LONGEST_INDEX_NAME - 13].rstrip('-')}-{digest(collection)[:12]}"
    return name


def _row(metadata: dict[str, Any]) -> Row:
    key = RowKey(metadata["document"], int(metadata["position"]))
    return Row(key, metadata["chunk"], metadata["text"], metadata["metadata"])
