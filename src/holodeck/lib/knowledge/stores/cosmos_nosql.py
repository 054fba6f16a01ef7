"""Azure Cosmos DB for NoSQL, through its REST interface, and an array of vectors in memory."""

import base64
import binascii
import hmac
import json
from collections.abc import Iterable, Iterator, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

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
from holodeck.lib.knowledge.stores.rest import RestClient, RestError, batches, explain_rest, json_of
from holodeck.lib.knowledge.stores.servers import host_of, server_url
from holodeck.lib.knowledge.stores.vectors import VectorIndex, matrix_of, to_bytes
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from httpx2 import Response

    from holodeck.lib.knowledge.stores.adapter import Vector

_VERSION = "2018-12-31"
_CONTAINER = "holodeck"
_ROWS_PER_ITEM, _BYTES_PER_ITEM = 100, 200_000
"""Far below the limit of 2 MB, as one request must not use up the throughput of a small account."""
_ITEMS_PER_PAGE = 100
_INDEXED = {
    "indexingMode": "consistent",
    "includedPaths": [{"path": "/kind/?"}, {"path": "/of/?"}],
    "excludedPaths": [{"path": "/*"}],
}
_ATTEMPTS = 5
"""How often to read anew what another run changes in the meantime."""


class CosmosAdapter:
    """A collection in the items of one partition key, in a container that all tools share.

    An item has the size of the embeddings and a name that is another one after each change; others
    have the chunks of documents, as many as fit, and their fingerprints.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        url, key = _account(config)
        self.address = host_of(url, 443 if url.startswith("https") else 80)
        self._credentials = "api_key" if config.connection_string is None else "connection_string"
        try:
            self._key = base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise ConfigError(
                f"database.{self._credentials}", "has no key of Azure Cosmos DB, which is base64"
            ) from error
        self._service = RestClient(url, {"x-ms-version": _VERSION}, config.timeout * 0.8)
        self._database = f"dbs/{config.database or 'holodeck'}"
        self._container = f"{self._database}/colls/{_CONTAINER}"
        self._name = collection_name(context.collection)
        self._session = ""
        """What makes reads see the writes before them."""
        self._dimensions = 0
        self._index: VectorIndex | None = None
        self._rows: dict[RowKey, Row] = {}
        self._indexed = ""
        """The name of the change that the index was made after."""

    def open(self, dimensions: int, *, empty: bool) -> None:
        self._index = None
        self._create("dbs", "", {"id": self._database.partition("/")[2]})
        partition = {"paths": ["/collection"], "kind": "Hash", "version": 2}
        definition = {"id": _CONTAINER, "partitionKey": partition, "indexingPolicy": _INDEXED}
        self._create("colls", self._database, definition)
        if empty:
            for item in list(self._query("c.id")):
                self._delete(item["id"])
        state = self._state()
        if state is None:
            self._dimensions = dimensions
            self._change()
        elif state["dimensions"] != dimensions:
            raise OtherDimensions(int(state["dimensions"]), dimensions)
        self._dimensions = dimensions

    def _create(self, kind: str, parent: str, definition: dict[str, Any]) -> None:
        """Create a database or container if it is missing."""
        path = f"{parent}/{kind}/{definition['id']}".removeprefix("/")
        if self._send("GET", kind, path, path, missing=True).is_success:
            return
        try:
            self._send("POST", kind, parent, f"{parent}/{kind}".removeprefix("/"), definition)
        except RestError as error:
            if error.status != 409:  # another run was first
                raise

    def _send(
        self,
        method: str,
        kind: str,
        link: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        *,
        missing: bool = False,
    ) -> "Response":
        """Send a request; `link` is the resource that is signed for."""
        date = formatdate(usegmt=True)
        signed = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        signature = base64.b64encode(hmac.digest(self._key, signed.encode(), "sha256")).decode()
        all_headers = {
            "authorization": quote(f"type=master&ver=1.0&sig={signature}", safe=""),
            "x-ms-date": date,
            **(headers or {}),
        }
        if self._session and kind == "docs":
            all_headers["x-ms-session-token"] = self._session
        response = self._service.send(
            method, f"/{quote(path)}", body, headers=all_headers, missing=missing
        )
        if kind == "docs":
            self._session = response.headers.get("x-ms-session-token", self._session)
        return response

    @property
    def _partition(self) -> dict[str, str]:
        return {"x-ms-documentdb-partitionkey": json.dumps([self._name])}

    def _state(self) -> dict[str, Any] | None:
        """Return the item with the size of the embeddings; None for a new collection."""
        return next(self._query("*", id="state"), None)

    def _change(self) -> None:
        """Tell searches that something has changed."""
        self._store("state", {"dimensions": self._dimensions, "change": uuid4().hex})

    def _store(self, name: str, values: dict[str, Any]) -> None:
        headers = {**self._partition, "x-ms-documentdb-is-upsert": "true"}
        item = {"id": name, "collection": self._name, **values}
        path = f"{self._container}/docs"
        self._send("POST", "docs", self._container, path, item, headers)

    def _delete(self, name: str) -> None:
        link = f"{self._container}/docs/{name}"
        self._send("DELETE", "docs", link, link, headers=self._partition, missing=True)

    def _query(self, selected: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """Yield what a query selects of the items of the collection that have these values."""
        given = {"collection": self._name, **parameters}
        values = [{"name": f"@{name}", "value": one} for name, one in given.items()]
        conditions = " AND ".join(f"c.{name} = @{name}" for name in given)
        query = {
            "query": f"SELECT {selected} FROM c WHERE {conditions}",  # noqa: S608 - all ours
            "parameters": values,
        }
        headers = {
            **self._partition,
            "content-type": "application/query+json",
            "x-ms-documentdb-isquery": "true",
            "x-ms-max-item-count": str(_ITEMS_PER_PAGE),
        }
        path = f"{self._container}/docs"
        while True:
            response = self._send("POST", "docs", self._container, path, query, headers)
            yield from json_of(response)["Documents"]
            following = response.headers.get("x-ms-continuation")
            if not following:
                return
            headers["x-ms-continuation"] = following

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        self._remove(document)
        entries = [
            {
                "position": row.key.position,
                "chunk": row.id,
                "text": row.text,
                "metadata": row.metadata,
                "vector": base64.b64encode(to_bytes(vector)).decode(),
            }
            for row, vector in zip(rows, vectors, strict=True)
        ]
        for number, some in enumerate(batches(entries, _ROWS_PER_ITEM, _BYTES_PER_ITEM)):
            values = {"kind": "chunks", "of": digest(document), "document": document, "rows": some}
            self._store(f"{digest(document)}-{number}", values)
        self._change()

    def delete(self, document: str) -> None:
        self._remove(document)
        self._change()

    def _remove(self, document: str) -> None:
        self.set_manifest(document, None)
        for item in list(self._query("c.id", of=digest(document))):
            self._delete(item["id"])

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        for _ in range(_ATTEMPTS):
            state = self._state()
            if state is None:
                raise StoreProblem("the collection was removed; ingest anew with --force-ingest")
            if self._index is not None and self._indexed == state["change"]:
                best = self._index.best(vector, top_k)
                return [(self._rows[key], score) for key, score in best]
            self._read_all()
            self._indexed = state["change"]
        raise StoreProblem("another run changes the collection all the time; wait for its end")

    def _read_all(self) -> None:
        blobs = list[bytes]()
        self._rows = {}
        for row, entry in self._entries("*"):
            self._rows[row.key] = row
            blobs.append(base64.b64decode(entry["vector"]))
        self._index = VectorIndex(list(self._rows), matrix_of(blobs, self._dimensions))

    def _entries(self, selected: str) -> Iterator[tuple[Row, dict[str, Any]]]:
        for item in self._query(selected, kind="chunks"):
            for one in item["rows"]:
                key = RowKey(item["document"], one["position"])
                yield Row(key, one["chunk"], one["text"], one["metadata"]), one

    def rows(self) -> Iterable[Row]:
        return [row for row, _ in self._entries("*")]

    def manifest(self) -> dict[str, str]:
        found = self._query("*", kind="fingerprint")
        return {one["document"]: one["fingerprint"] for one in found}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        name = f"fingerprint-{digest(document)}"
        if fingerprint is None:
            self._delete(name)
            return
        values = {"kind": "fingerprint", "document": document, "fingerprint": fingerprint}
        self._store(name, values)

    def close(self) -> None:
        self._service.close()
        self._index = None

    def explain(self, error: Exception) -> str | None:
        return explain_rest(error, self._credentials)


def _account(config: DatabaseConfig) -> tuple[str, str]:
    """Return address and key of the account. Raises ConfigError."""
    if config.connection_string is None:
        key = config.api_key.get_secret_value() if config.api_key else ""
        return server_url(config, "http", "https"), key
    text = config.connection_string.get_secret_value()
    values = dict(part.partition("=")[::2] for part in text.split(";") if part)
    url, key = values.get("AccountEndpoint", ""), values.get("AccountKey", "")
    if not url.startswith(("http://", "https://")) or not key:
        raise ConfigError(
            "database.connection_string",
            "is none of Azure Cosmos DB; write AccountEndpoint=https://…;AccountKey=…",
        )
    return url.rstrip("/"), key
