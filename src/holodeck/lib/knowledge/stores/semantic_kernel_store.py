"""Stores behind the connectors of Semantic Kernel, by one adapter for all of them.

A connector stores, reads and removes records by their keys, and searches; most cannot list what is
there. So a second collection lists the documents, on pages with known keys, and how many chunks
each has, from which their keys follow.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    RowKey,
    StoreContext,
    StoredChunk,
    StoreProblem,
    digest,
    explain_connection,
    settings_of,
    uuid_of,
)
from holodeck.lib.support.text import describe, one_line
from holodeck.models.tools.knowledge import DatabaseConfig

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.base import Vector


@dataclass(frozen=True)
class Connector:
    """A class of Semantic Kernel, and how settings become its arguments."""

    target: str
    extra: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Setting → argument, where they differ."""
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Return the arguments for those with the values of settings."""
    index: str = "default"
    client: str = "semantic_kernel"
    """A module that the connector imports only when it connects."""


def _weaviate(arguments: dict[str, Any]) -> dict[str, Any]:
    parts = urlsplit(arguments["url"])
    if parts.scheme == "https":
        return arguments
    if "api_key" in arguments:
        raise ConfigError("database.api_key", "is sent by Semantic Kernel to https:// only")
    return {"local_host": parts.hostname, "local_port": parts.port or 8080}


def _pinecone(arguments: dict[str, Any]) -> dict[str, Any]:
    """Name the namespace, as the connector would take that of the environment."""
    return {**arguments, "namespace": arguments.get("namespace", "")}


def _cosmos_nosql(arguments: dict[str, Any]) -> dict[str, Any]:
    text = arguments.pop("connection_string", "")
    account = dict(part.partition("=")[::2] for part in text.split(";"))
    names = {"AccountEndpoint": "url", "AccountKey": "key"}
    values = {names[name]: value for name, value in account.items() if name in names}
    return {"database_name": "holodeck", "create_database": True, **values, **arguments}


CONNECTORS = {
    "weaviate": Connector(
        "weaviate:WeaviateCollection", "weaviate", {"connection_string": "url"}, _weaviate
    ),
    "pinecone": Connector("pinecone:PineconeCollection", "pinecone", adapt=_pinecone),
    "azure-ai-search": Connector(
        "azure_ai_search:AzureAISearchCollection",
        "azure-ai-search",
        {"url": "search_endpoint", "connection_string": "search_endpoint"},
        index="flat",
    ),
    "azure-cosmos-nosql": Connector(
        "azure_cosmos_db:CosmosNoSqlCollection",
        "azure-cosmos",
        {"api_key": "key", "database": "database_name"},
        _cosmos_nosql,
    ),
    "azure-cosmos-mongo": Connector(
        "azure_cosmos_db:CosmosMongoCollection",
        "azure-cosmos",
        {"database": "database_name"},
        lambda arguments: {"database_name": "holodeck", **arguments},
    ),
    "sql-server": Connector("sql_server:SqlServerCollection", "sql-server", client="pyodbc"),
}


def connector_arguments(config: DatabaseConfig) -> dict[str, Any]:
    """Return the arguments of a product's connector. Raises ConfigError."""
    product = CONNECTORS[config.provider]
    settings = settings_of(config)
    return product.adapt({product.names.get(key, key): settings[key] for key in settings})


def load_connector(provider: str) -> Any:
    """Return the class of a product's connector. Raises ConfigError, or MissingExtra."""
    product = CONNECTORS[provider]
    name, _, attribute = product.target.partition(":")
    module = f"semantic_kernel.connectors.{name}"
    try:
        import_module(product.client)
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise MissingExtra(product.extra, f"vector store {provider}") from error
    except (ImportError, AttributeError) as error:
        message = f"{provider}: {error}; {versions_for(module)}"
        raise ConfigError("database.provider", message) from error


def versions_for(module: str) -> str:
    """Return the versions of Semantic Kernel and of the clients of a connector's module."""
    extra = module.rpartition(".")[2].partition("_")[0]  # Semantic Kernel's name for the clients
    requirements = "\n".join(metadata.requires("semantic-kernel") or ())
    clients = re.findall(rf"(?m)^([\w.-]+).*extra == .{extra}", requirements)
    versions = {package.name: package.version for package in metadata.distributions()}
    packages = [name for name in ("semantic-kernel", *clients) if name in versions]
    texts = " and ".join(f"{name} {versions[name]}" for name in packages)
    return f"its connector and its client may not fit: {texts}"


T = TypeVar("T")


_PER_REQUEST = 100
_PAUSE_S = 0.3
_PAGES = 1000


class _Document(NamedTuple):
    """What the second collection says about a document."""

    chunks: int = 0
    fingerprint: str | None = None


class SemanticKernelAdapter:
    """Two collections of a connector: chunks, and the documents that they are of."""

    def __init__(
        self,
        config: DatabaseConfig,
        context: StoreContext,
        connector: type | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Prepare a product of the table, or a connector that the configuration names."""
        product = CONNECTORS.get(config.provider)
        self._connector: Any = connector or load_connector(config.provider)
        self._arguments = connector_arguments(config) if product else arguments or {}
        self._index = product.index if product else "default"
        places = {"cloud": config.cloud, "region": config.region}
        self._new = {key: place for key, place in places.items() if place is not None}
        # no product rejects a name of letters and digits
        self._name = f"holodeck{digest(context.collection)[:24]}"
        self._limit_s = config.timeout * 0.8  # ends before the limit of the call
        settings = settings_of(config)
        url = settings.get("url") or settings.get("connection_string", "")
        self.address = urlsplit(url).netloc.rpartition("@")[2]
        self._runner: asyncio.Runner | None = None
        self._clients = AsyncExitStack()
        self._chunks: Any = None
        self._manifest: Any = None
        self._pages: dict[int, dict[str, _Document]] = {}
        self._written: str | None = None
        """The key of the last chunk that was stored."""

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        self._runner = asyncio.Runner()
        # the last number marks embeddings of zeros, which have no direction of their own
        self._chunks = self._ask(self._open(self._name, dimensions + 1, empty=empty))
        self._manifest = self._ask(self._open(f"{self._name}documents", 2, empty=empty))
        key = uuid_of("dimensions")
        stored = self._get(self._manifest, [key])
        if not stored:
            self._store(self._manifest, [_record(key, "", dimensions, (1.0, 0.0))])
        elif (size := json.loads(stored[0]["about"])) != dimensions:
            self.close()
            raise OtherDimensions(size, dimensions)
        self._load()

    async def _open(self, name: str, dimensions: int, *, empty: bool) -> Any:
        from semantic_kernel.data.vector import (
            IndexKind,
            VectorStoreCollectionDefinition,
            VectorStoreField,
        )

        kind = IndexKind(self._index)
        vector: dict[str, Any] = {"type": "float", "dimensions": dimensions, "index_kind": kind}
        fields = [
            VectorStoreField("key", name="id", type="str"),
            VectorStoreField("data", name="text", type="str"),
            VectorStoreField("data", name="about", type="str"),
            VectorStoreField("vector", name="embedding", **vector),
        ]
        collection = self._connector(
            record_type=dict,
            definition=VectorStoreCollectionDefinition(fields=fields),
            collection_name=name,
            **self._arguments,
        )
        await self._clients.enter_async_context(collection)
        if empty and await collection.collection_exists():
            await collection.ensure_collection_deleted()
        await collection.ensure_collection_exists(**self._new)
        return collection

    def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        """Return what a connector answers, on the loop that its clients belong to."""
        if self._runner is None:
            request.close()
            raise StoreProblem("the store is not open")
        return self._runner.run(asyncio.wait_for(request, self._limit_s))

    def _get(self, collection: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the records that are there, in any order."""
        return [record for batch in _batches(keys) for record in self._ask(_get(collection, batch))]

    def _remove(self, collection: Any, keys: Sequence[str]) -> None:
        # removing what is not there is an error of some products
        stored = [record["id"] for record in self._get(collection, keys)]
        for batch in _batches(stored):
            self._ask(collection.delete(list(batch)))

    def _store(self, collection: Any, records: Sequence[dict[str, Any]]) -> None:
        # the connectors of some products keep a record that is there
        self._remove(collection, [record["id"] for record in records])
        for batch in _batches(records):
            self._ask(collection.upsert(list(batch)))

    def _load(self) -> dict[str, _Document]:
        """Read and return what the second collection says."""
        self._pages = {}
        for record in self._get(self._manifest, [uuid_of("page", page) for page in range(_PAGES)]):
            for name, values in json.loads(record["about"]).items():
                self._pages.setdefault(_page(name), {})[name] = _Document(*values)
        return {name: known for page in self._pages.values() for name, known in page.items()}

    def _known(self, document: str) -> _Document:
        return self._pages.get(_page(document), {}).get(document, _Document())

    def _note(self, document: str, chunks: int, fingerprint: str | None) -> None:
        """Write what a document has; nothing is said of one without chunks and fingerprint."""
        if self._known(document) == (chunks, fingerprint):
            return
        number = _page(document)
        page = self._pages.setdefault(number, {})
        page[document] = _Document(chunks, fingerprint)
        if not chunks and fingerprint is None:
            del page[document]
        self._store(self._manifest, [_record(uuid_of("page", number), "", page, (1.0, 0.0))])

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        self.delete(document)
        self._note(document, len(rows), None)
        keys = _chunk_keys(document, len(rows))
        records = [
            _record(key, row.text, (*row.key, row.id, row.metadata), _mark(vector))
            for key, row, vector in zip(keys, rows, vectors, strict=True)
        ]
        self._store(self._chunks, records)
        self._written = keys[-1] if keys else None

    def delete(self, document: str) -> None:
        chunks = self._known(document).chunks
        self._note(document, chunks, None)
        self._remove(self._chunks, _chunk_keys(document, chunks))
        self._note(document, 0, None)

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        self._ask(self._settle())
        records = self._ask(_search(self._chunks, _mark(vector), top_k))
        # the scores of products differ in direction and scale, so they come from the vectors
        return [(_row(record), float(vector @ record["embedding"][:-1])) for record in records]

    async def _settle(self) -> None:
        """Return once what was stored is there: some products show changes late."""
        while self._written and not await _get(self._chunks, [self._written]):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(_PAUSE_S)
        self._written = None

    def rows(self) -> Iterable[StoredChunk]:
        self._ask(self._settle())
        for document, known in self._load().items():
            records = self._get(self._chunks, _chunk_keys(document, known.chunks))
            if known.fingerprint is not None and len(records) != known.chunks:
                problem = f"{document!r} has {len(records)} of its {known.chunks} chunks"
                raise StoreProblem(f"{problem}; ingest anew with --force-ingest")
            yield from map(_row, records)

    def manifest(self) -> dict[str, str]:
        documents = self._load().items()
        return {name: known.fingerprint for name, known in documents if known.fingerprint}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        self._note(document, self._known(document).chunks, fingerprint)

    def close(self) -> None:
        if self._runner is None:
            return
        try:
            self._ask(self._clients.aclose())
        finally:
            self._runner.close()
            self._runner = None

    def explain(self, error: Exception) -> str | None:
        known = explain_connection(error, "connection_string", "api_key")
        versions = versions_for(self._connector.__module__)
        return known or f"{one_line(describe(error), 300)}; {versions}"


async def _get(collection: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    return await collection.get(keys=list(keys), include_vectors=False) or []


async def _search(collection: Any, vector: list[float], top_k: int) -> list[dict[str, Any]]:
    results = await collection.search(
        vector=vector, vector_property_name="embedding", top=top_k, include_vectors=True
    )
    return [hit.record async for hit in results.results]


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _PER_REQUEST):
        yield items[start : start + _PER_REQUEST]


def _page(document: str) -> int:
    """Return the number of the record for a document: no product takes a record with all."""
    return int(digest(document)[:8], 16) % _PAGES


def _chunk_keys(document: str, chunks: int) -> list[str]:
    return [uuid_of("chunk", document, position) for position in range(chunks)]


def _record(key: str, text: str, about: Any, vector: Sequence[float]) -> dict[str, Any]:
    return {"id": key, "text": text, "about": json.dumps(about), "embedding": list(vector)}


def _row(record: dict[str, Any]) -> StoredChunk:
    document, position, chunk, metadata = json.loads(record["about"])
    return StoredChunk(RowKey(document, position), chunk, record["text"], metadata)


def _mark(vector: "Vector") -> list[float]:
    return [*vector.tolist(), 0.0 if vector.any() else 1.0]
