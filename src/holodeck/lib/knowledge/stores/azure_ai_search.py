"""Azure AI Search, through its REST interface."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

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
    RestError,
    attempts,
    batches,
    explain_rest,
)
from holodeck.lib.knowledge.stores.servers import host_of, server_url
from holodeck.models.database import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.adapter import Vector

_API_VERSION = "2024-07-01"
_PER_REQUEST, _BYTES_PER_REQUEST = 500, 8_000_000
_PER_PAGE = 1000
_NAMES_PER_FILTER = 200
_SELECTED = "document,position,chunk,text,metadata"


@dataclass(frozen=True)
class _Change:
    """A change of a document's entries, which searches may not see yet."""

    revision: str
    entries: int


class AzureSearchAdapter:
    """An index with two kinds of entries: the chunks, and the fingerprints of documents.

    The service shows changes after a while. Each change has a name of its own, and the next read
    waits until all entries of the changes are there, and those that they replaced are gone.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        url = server_url(config, "http", "https")
        self.address = host_of(url, 443 if url.startswith("https") else 80)
        key = config.api_key
        headers = {"api-key": "" if key is None else key.get_secret_value()}
        self._limit_s = config.timeout * 0.8
        version = {"api-version": _API_VERSION}
        self._service = RestClient(url, headers, self._limit_s, version)
        self._name = _index_name(collection_name(context.collection))
        self._path = f"/indexes/{self._name}"
        self._pending: dict[str, _Change] = {}
        """By the owner of the entries."""

    def open(self, dimensions: int, *, empty: bool) -> None:
        self._pending.clear()
        if empty:
            self._service.send("DELETE", self._path, missing=True)
        found = self._service.ask("GET", self._path, missing=True)
        if not found:
            self._service.send("POST", "/indexes", _definition(self._name, dimensions))
            return
        size = next(
            (one.get("dimensions") for one in found["fields"] if one["name"] == "vector"), None
        )
        if size is None:
            raise StoreProblem(f"the index {self._name!r} is of another program; remove it")
        if size != dimensions:
            raise OtherDimensions(int(size), dimensions)

    def replace(self, document: str, rows: Sequence[Row], vectors: Sequence["Vector"]) -> None:
        self.set_manifest(document, None)
        entries = [
            {
                "position": row.key.position,
                "chunk": row.id,
                "text": row.text,
                "metadata": row.metadata,
                "zeros": not vector.any(),
                # the cosine with a vector of zeros is not defined; it is no candidate either
                "vector": vector.tolist() if vector.any() else [1.0] + [0.0] * (len(vector) - 1),
            }
            for row, vector in zip(rows, vectors, strict=True)
        ]
        self._store("chunk", document, entries)

    def _store(self, kind: str, document: str, entries: list[dict[str, Any]]) -> None:
        """Store entries of a kind instead of those that a document has."""
        owner = f"{kind}-{digest(document)}"
        if owner in self._pending:
            self._settle()
        keys = [f"{owner}-{number}" for number in range(len(entries))]
        found = self._entries(f"owner eq '{owner}'", "key")
        gone = [one["key"] for one in found if one["key"] not in set(keys)]
        common = {"kind": kind, "owner": owner, "document": document, "revision": uuid4().hex}
        self._change(
            [
                *({"@search.action": "delete", "key": key} for key in gone),
                *(
                    {"@search.action": "upload", "key": key, **common, **entry}
                    for key, entry in zip(keys, entries, strict=True)
                ),
            ]
        )
        if gone or entries:
            self._pending[owner] = _Change(common["revision"], len(entries))

    def _change(self, actions: list[dict[str, Any]]) -> None:
        for batch in batches(actions, _PER_REQUEST, _BYTES_PER_REQUEST):
            changed = self._service.ask("POST", f"{self._path}/docs/index", {"value": batch})
            for one in changed["value"]:
                if not one["status"]:
                    raise RestError(one["statusCode"], str(one["errorMessage"]))

    def _settle(self) -> None:
        """Return once searches see all changes."""
        pending = list(self._pending.items())
        for start in range(0, len(pending), _NAMES_PER_FILTER):
            some = pending[start : start + _NAMES_PER_FILTER]
            owners = f"search.in(owner, '{','.join(owner for owner, _ in some)}', ',')"
            names = ",".join(change.revision for _, change in some)
            changed = f"{owners} and search.in(revision, '{names}', ',')"
            entries = sum(change.entries for _, change in some)
            for _ in attempts(self._limit_s, "Azure AI Search does not show what was written"):
                if self._count(changed) == entries == self._count(owners):
                    break
        self._pending.clear()

    def _count(self, condition: str) -> int:
        body = {"search": "*", "filter": condition, "count": True, "top": 0}
        return int(self._search(body)["@odata.count"])

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._service.ask("POST", f"{self._path}/docs/search", body)
        return found

    def _entries(self, condition: str, selected: str) -> Iterator[dict[str, Any]]:
        """Yield all entries that fulfil a condition."""
        page = {
            "search": "*",
            "filter": condition,
            "select": selected,
            "orderby": "key asc",
            "top": _PER_PAGE,
        }
        for start in itertools.count(0, _PER_PAGE):
            found = self._search({**page, "skip": start})["value"]
            yield from found
            if len(found) < _PER_PAGE:
                return

    def delete(self, document: str) -> None:
        self.set_manifest(document, None)
        self._store("chunk", document, [])

    def search(self, vector: "Vector", top_k: int) -> list[tuple[Row, float]]:
        import numpy as np

        self._settle()
        query = {"kind": "vector", "fields": "vector", "k": top_k, "exhaustive": True}
        candidates = vector.tolist() if vector.any() else [1.0] + [0.0] * (len(vector) - 1)
        body = {
            "vectorQueries": [{**query, "vector": candidates}],
            "vectorFilterMode": "preFilter",
            "filter": "kind eq 'chunk' and zeros eq false",
            "select": f"{_SELECTED},vector",
            "top": top_k,
        }
        found = self._search(body)["value"]
        # the service's score is no cosine, and means something else with each of its metrics
        hits = [(_row(one), float(np.dot(vector, one["vector"]))) for one in found]
        if len(hits) < top_k:
            zeros = self._entries("kind eq 'chunk' and zeros eq true", _SELECTED)
            hits += [(_row(one), 0.0) for one in zeros]
        return hits

    def rows(self) -> Iterable[Row]:
        self._settle()
        return [_row(one) for one in self._entries("kind eq 'chunk'", _SELECTED)]

    def manifest(self) -> dict[str, str]:
        self._settle()
        found = self._entries("kind eq 'document'", "document,text")
        return {one["document"]: one["text"] for one in found}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        entries = [] if fingerprint is None else [{"text": fingerprint, "zeros": False}]
        self._store("document", document, entries)

    def close(self) -> None:
        self._service.close()

    def explain(self, error: Exception) -> str | None:
        return explain_rest(error, "api_key")


def _index_name(collection: str) -> str:
    """Return a name of an index: dashes stand alone, and between letters or digits."""
    name = f"holodeck-{re.sub('_+', '-', collection).strip('-')}"
    is_same = name == f"holodeck-{collection.replace('_', '-')}"
    return name if is_same else f"{name}-{digest(collection)[:8]}"


def _definition(name: str, dimensions: int) -> dict[str, Any]:
    """Return the definition of an index that is searched exactly."""
    algorithm = {
        "name": "exact",
        "kind": "exhaustiveKnn",
        "exhaustiveKnnParameters": {"metric": "cosine"},
    }
    return {
        "name": name,
        "fields": [
            _field("key", key=True, sortable=True),
            _field("kind", filterable=True),
            _field("owner", filterable=True),
            _field("revision", filterable=True),
            _field("zeros", "Edm.Boolean", filterable=True),
            _field("position", "Edm.Int32"),
            *map(_field, ("document", "chunk", "text", "metadata")),
            {
                "name": "vector",
                "type": "Collection(Edm.Single)",
                "searchable": True,
                "retrievable": True,
                "dimensions": dimensions,
                "vectorSearchProfile": "exact",
            },
        ],
        "vectorSearch": {
            "algorithms": [algorithm],
            "profiles": [{"name": "exact", "algorithm": "exact"}],
        },
    }


def _field(name: str, kind: str = "Edm.String", **attributes: bool) -> dict[str, Any]:
    """Return a field that is only stored, but for the attributes."""
    off = dict.fromkeys(("filterable", "sortable", "facetable"), False)
    searchable = {"searchable": False} if kind == "Edm.String" else {}
    return {"name": name, "type": kind, "retrievable": True, **off, **searchable, **attributes}


def _row(entry: dict[str, Any]) -> Row:
    key = RowKey(entry["document"], entry["position"])
    return Row(key, entry["chunk"], entry["text"], entry["metadata"])
