"""Stores behind the asynchronous protocol, those of users, too: threads, time limits, errors."""

import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from holodeck.errors import ConfigError, VectorStoreError
from holodeck.lib.knowledge.stores.base import (
    Chunk,
    Hit,
    RowKey,
    StoreAdapter,
    StoreContext,
    StoredChunk,
    StoredText,
    StoreProblem,
    VectorStore,
    no_answer,
    normalise,
    settings_of,
    store_errors,
)
from holodeck.lib.knowledge.stores.semantic_kernel_store import CONNECTORS, SemanticKernelAdapter
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.safe_paths import path_inside
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.code_root import CodeFolders, folders_of
from holodeck.lib.user_code.registry import Registry
from holodeck.models.tools.knowledge import DatabaseConfig, VectorStoreProvider

logger = logging.getLogger(__name__)

_METHODS = ("open", "replace", "delete", "search", "texts", "manifest", "set_manifest", "close")

T = TypeVar("T")


def open_class(build: Any, config: DatabaseConfig, context: StoreContext) -> VectorStore:
    """Return the store of a user's class. Raises ConfigError."""
    missing = [name for name in _METHODS if not callable(getattr(build, name, None))]
    if missing:
        raise ConfigError(
            "database.provider",
            f"{config.provider!r} is no vector store; it has no {', '.join(missing)}",
        )
    try:
        store = build(context.collection, **arguments_of(config, context))
        return cast("VectorStore", NamedStore(store, config))
    except Exception as error:
        message = f"{config.provider}: cannot be made: {describe(error)}"
        raise ConfigError("database.provider", message) from error


def arguments_of(config: DatabaseConfig, context: StoreContext) -> dict[str, Any]:
    """Return the keys of the configuration as the arguments of a class."""
    values = settings_of(config)
    if config.path is not None:
        values["path"] = str(path_inside(config.path, context.base_dir))
    return {**values, **(config.options or {})}


def redactor_of(config: DatabaseConfig) -> Redactor:
    """Return what takes the secrets of the configuration out of messages."""
    secrets = (config.connection_string, config.api_key)
    return Redactor(secret.get_secret_value() for secret in secrets if secret is not None)


class NamedStore:
    """The methods of a user's store, with time limits and errors as those of other stores."""

    def __init__(self, store: Any, config: DatabaseConfig) -> None:
        self._store = store
        self._provider = config.provider
        self._limit_s = config.timeout
        self._redactor = redactor_of(config)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self._call, getattr(self._store, name))

    async def _call(self, method: Callable[..., Awaitable[T]], *values: Any, **named: Any) -> T:
        """Return what a method returns. Raises VectorStoreError."""
        async with store_errors(f"vector store {self._provider}", self._redactor, self._limit_s):
            return await method(*values, **named)


_CHUNKS_PER_REQUEST = 500
"""Storing more chunks than this has a multiple of the time limit."""


STORES: Registry[Any] = Registry(
    "vector store",
    {
        "sqlite": "holodeck.lib.knowledge.stores.sqlite:SqliteAdapter",
        "in-memory": "holodeck.lib.knowledge.stores.sqlite:SqliteAdapter",
        "chromadb": "holodeck.lib.knowledge.stores.chroma:ChromaAdapter",
        "qdrant": "holodeck.lib.knowledge.stores.qdrant:QdrantAdapter",
        "postgres": "holodeck.lib.knowledge.stores.postgres:PostgresAdapter",
        # what is used for products of existing files that are none any more
        "redis": "holodeck.lib.knowledge.stores.sqlite:SqliteAdapter",
        "faiss": "holodeck.lib.knowledge.stores.sqlite:SqliteAdapter",
        **dict.fromkeys(
            CONNECTORS, "holodeck.lib.knowledge.stores.semantic_kernel_store:SemanticKernelAdapter"
        ),
    },
)
"""Provider → the class of its adapter, a `StoreAdapter`; or any class, `module:Class`."""


def open_store(
    config: DatabaseConfig | None,
    collection: str,
    cache: Path,
    base_dir: CodeFolders | None = None,
) -> VectorStore:
    """Return the store for a collection; None is the embedded one, a file in the cache folder.

    Relative paths of the configuration start from the first folder of `base_dir`, else from the
    working folder; a class of the user is looked for in all. Nothing is connected before `open`.

    Raises ConfigError, or MissingExtra.
    """
    config = config or DatabaseConfig(provider=VectorStoreProvider.SQLITE)
    folder = Path.cwd() if base_dir is None else folders_of(base_dir)[0]
    context = StoreContext(collection, cache, folder)
    build = STORES.load(config.provider, location="database.provider", base_dir=base_dir)
    if config.named_class is None:
        return Collection(build(config, context), config)
    if not hasattr(build, "ensure_collection_exists"):
        return open_class(build, config, context)
    arguments = arguments_of(config, context)
    return Collection(SemanticKernelAdapter(config, context, build, arguments), config)


class Collection:
    """A `VectorStore` whose calls run one at a time, in threads, each within the time limit."""

    def __init__(self, adapter: StoreAdapter, config: DatabaseConfig) -> None:
        self._adapter = adapter
        self._provider = config.provider
        self._limit = config.timeout
        self._redactor = redactor_of(config)
        self._lock = threading.Lock()
        self._dimensions = 0
        self._is_open = False

    async def open(self, dimensions: int, *, empty: bool = False) -> None:
        self._is_open = True  # also if it fails half-way
        await self._call(partial(self._adapter.open, dimensions, empty=empty))
        self._dimensions = dimensions

    async def replace(self, document: str, chunks: Sequence[Chunk]) -> None:
        def store() -> None:
            vectors = [normalise(chunk.embedding, self._dimensions) for chunk in chunks]
            rows = [_row(document, position, chunk) for position, chunk in enumerate(chunks)]
            self._adapter.replace(_clean(document), rows, vectors)

        requests = 1 + len(chunks) // _CHUNKS_PER_REQUEST
        await self._call(store, limit=self._limit * requests)

    async def delete(self, document: str) -> None:
        await self._call(partial(self._adapter.delete, _clean(document)))

    async def search(self, embedding: Sequence[float], top_k: int) -> list[Hit]:
        def search() -> list[tuple[StoredChunk, float]]:
            return self._adapter.search(normalise(embedding, self._dimensions), top_k)

        rows = await self._call(search)
        rows.sort(key=lambda row: (-row[1], row[0].key))
        return [_hit(row, score) for row, score in rows[:top_k]]

    async def texts(self) -> list[StoredText]:
        rows = await self._call(lambda: list(self._adapter.rows()))
        rows.sort(key=lambda row: row.key)
        return [
            StoredText(row.id, row.key.document, row.text, json.loads(row.metadata)) for row in rows
        ]

    async def manifest(self) -> dict[str, str]:
        return await self._call(self._adapter.manifest)

    async def set_manifest(self, document: str, fingerprint: str | None) -> None:
        await self._call(partial(self._adapter.set_manifest, _clean(document), fingerprint))

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self._call(self._adapter.close)
        except VectorStoreError as error:
            logger.debug("%s", error)

    async def _call(self, call: Callable[[], T], limit: float | None = None) -> T:
        """Return what a call returns. Raises VectorStoreError."""

        def work() -> T:
            # a call that exceeded its limit may still have the client
            with self._lock:
                return call()

        address = self._adapter.address
        store = f"vector store {self._provider}" + (f" at {address}" if address else "")
        seconds = self._limit if limit is None else limit
        async with store_errors(store, self._redactor, seconds, self._explain):
            return await run_in_thread(work, "holodeck-vector-store")

    def _explain(self, error: Exception) -> str | None:
        if isinstance(error, TimeoutError):  # of the client
            return no_answer(self._limit)
        return self._adapter.explain(error)


def _row(document: str, position: int, chunk: Chunk) -> StoredChunk:
    if chunk.document != document:
        raise StoreProblem(f"chunk {chunk.id!r} belongs to {chunk.document!r}, not {document!r}")
    key = RowKey(_clean(document), position)
    metadata = json.dumps(chunk.metadata, ensure_ascii=True)
    return StoredChunk(key, _clean(chunk.id), _clean(chunk.text), metadata)


def _hit(row: StoredChunk, score: float) -> Hit:
    score = min(1.0, max(0.0, score))
    return Hit(row.id, row.key.document, row.text, score, json.loads(row.metadata))


def _clean(text: str) -> str:
    """Return the text without characters that some stores reject."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
