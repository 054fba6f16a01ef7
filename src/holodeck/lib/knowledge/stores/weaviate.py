"""Weaviate, through its REST and GraphQL interfaces."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holodeck.lib.knowledge.stores.adapter import (
    OtherDimensions,
    Row,
    RowKey,
    StoreContext,
    StoreProblem,
    collection_name,
    digest,
)
from holodeck.lib.knowledge.stores.rest import RestClient, RestError, batches, explain_rest
from holodeck.lib.knowledge.stores.servers import host_of, server_url
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.adapter import Vector

_PER_REQUEST = 200
_BYTES_PER_REQUEST = 4_000_000
_FIRST = str(UUID(int=0))
_DIMENSIONS = re.compile(r"Chunks of holodeck with (\d+) dimensions\.")
_FIELDS = "document position chunk text metadata"


class WeaviateAdapter:
    """A class of chunks, and one for the fingerprints of documents."""

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        url = server_url(config, "http", "https")
        self.address = host_of(url, 443 if url.startswith("https") else 8080)
        key = config.api_key
        headers = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
        self._service = RestClient(f"{url.rstrip('/')}/v1", headers, config.timeout * 0.8)
        self._chunks = f"Holodeck_{collection_name(context.collection)}"
        self._manifest = f"{self._chunks}_manifest"

    def open(self, dimensions: int, *, empty: bool) -> None:
        if empty:
            for path in (f"/schema/{self._chunks}", f"/schema/{self._manifest}"):
                if self._service.ask("GET", path, missing=True):
                    self._service.send("DELETE", path)
        found = self._create(
            self._chunks,
            f"Chunks of holodeck with {dimensions} dimensions.",
            [*map(_text, ("of", "document", "chunk", "text", "metadata")), _POSITION],
        )
        self._create(
            self._manifest,
            "Fingerprints of holodeck.",
            [_text("document"), _text("fingerprint")],
        )
        stated = _DIMENSIONS.fullmatch(found)
        if stated is None:
            raise StoreProblem(f"the class {self._chunks!r} is of another program; remove it")
        if int(stated[1]) != dimensions:
            raise OtherDimensions(int(stated[1]), dimensions)

    def _create(self, name: str, description: str, properties: list[dict[str, Any]]) -> str:
        """Create a class if it is missing; return its description."""
        found = self._service.ask("GET", f"/schema/{name}", missing=True)
        if found:
            return str(found.get("description"))
        definition = {
            "class": name,
            "description": description,
            "vectorizer": "none",
            # exact search; all vectors have length 1, so that the product is the cosine
            "vectorIndexType": "flat",
            "vectorIndexConfig": {"distance": "dot"},
            "properties": properties,
        }
        self._service.send("POST", "/schema", definition)
        return description

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        self.delete(document)
        self._store(
            {
                "class": self._chunks,
                "id": _uuid(*row.key),
                "vector": vector.tolist(),
                "properties": {
                    "of": digest(document),
                    "document": document,
                    "position": row.key.position,
                    "chunk": row.id,
                    "text": row.text,
                    "metadata": row.metadata,
                },
            }
            for row, vector in zip(rows, vectors, strict=True)
        )

    def _store(self, objects: Iterable[dict[str, Any]]) -> None:
        for batch in batches(list(objects), _PER_REQUEST, _BYTES_PER_REQUEST):
            for stored in self._service.ask("POST", "/batch/objects", {"objects": batch}):
                errors = stored.get("result", {}).get("errors")
                if errors:
                    raise RestError(200, errors["error"][0]["message"])

    def delete(self, document: str) -> None:
        self.set_manifest(document, None)
        condition = {"path": ["of"], "operator": "Equal", "valueText": digest(document)}
        match = {"match": {"class": self._chunks, "where": condition}}
        while True:  # the server deletes at most 10,000 at a time
            results = self._service.ask("DELETE", "/batch/objects", match)["results"]
            if results["failed"]:
                raise StoreProblem(f"{results['failed']} chunks could not be deleted; try again")
            if results["successful"] >= results["matches"]:
                return

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        order = f"nearVector: {{vector: {vector.tolist()}}}"
        wanted = f"{_FIELDS} _additional {{distance}}"
        query = f"{{Get {{{self._chunks}(limit: {top_k}, {order}) {{{wanted}}}}}}}"
        answer = self._service.ask("POST", "/graphql", {"query": query})
        if answer.get("errors"):
            raise RestError(200, answer["errors"][0]["message"])
        found = answer["data"]["Get"][self._chunks] or []
        return [(_row(one), -one["_additional"]["distance"]) for one in found]

    def rows(self) -> Iterable[Row]:
        return [_row(properties) for properties in self._objects(self._chunks)]

    def manifest(self) -> dict[str, str]:
        found = self._objects(self._manifest)
        return {one["document"]: one["fingerprint"] for one in found}

    def _objects(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the properties of all objects of a class."""
        after = _FIRST
        while True:
            params = {"class": name, "limit": _PER_REQUEST, "after": after}
            found = self._service.ask("GET", "/objects", params=params)["objects"]
            if not found:
                return
            for one in found:
                yield one["properties"]
            after = found[-1]["id"]

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        if fingerprint is None:
            path = f"/objects/{self._manifest}/{_uuid(document)}"
            self._service.send("DELETE", path, missing=True)
            return
        properties = {"document": document, "fingerprint": fingerprint}
        self._store([{"class": self._manifest, "id": _uuid(document), "properties": properties}])

    def close(self) -> None:
        self._service.close()

    def explain(self, error: Exception) -> str | None:
        return explain_rest(error, "api_key")


def _text(name: str) -> dict[str, Any]:
    """Return the definition of a property that is stored as it is; `of` selects documents."""
    definition = {"name": name, "dataType": ["text"], "tokenization": "field"}
    return {**definition, "indexFilterable": name == "of", "indexSearchable": False}


_POSITION = {
    "name": "position",
    "dataType": ["int"],
    "indexFilterable": False,
    "indexSearchable": False,
}


def _uuid(document: str, *position: int) -> str:
    return str(UUID(digest(document, *position)[:32]))


def _row(properties: dict[str, Any]) -> Row:
    key = RowKey(properties["document"], properties["position"])
    return Row(key, properties["chunk"], properties["text"], properties["metadata"])
