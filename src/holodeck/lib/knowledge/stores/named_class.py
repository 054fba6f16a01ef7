"""Stores of `provider: module:Class`, which keep the protocol `VectorStore`."""

from asyncio import timeout
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from holodeck.errors import ConfigError, HoloDeckError, VectorStoreError
from holodeck.lib.knowledge.stores.adapter import StoreContext
from holodeck.lib.knowledge.stores.base import Chunk, Hit, StoredText, VectorStore
from holodeck.lib.knowledge.stores.servers import no_answer
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.exceptions import describe
from holodeck.lib.support.safe_paths import path_inside
from holodeck.models.tools.database import CLASS_KEYS, DatabaseConfig

T = TypeVar("T")

_METHODS = (*("open", "replace", "delete", "search", "texts", "manifest", "set_manifest", "close"),)


def open_class(build: Any, config: DatabaseConfig, context: StoreContext) -> VectorStore:
    """Return the store of a user's class. Raises ConfigError."""
    missing = [name for name in _METHODS if not callable(getattr(build, name, None))]
    if missing:
        raise ConfigError(
            "database.provider",
            f"{config.provider!r} is no vector store; it has no {', '.join(missing)}",
        )
    try:
        return NamedStore(build(context.collection, **arguments_of(config, context)), config)
    except Exception as error:
        message = f"{config.provider}: cannot be made: {describe(error)}"
        raise ConfigError("database.provider", message) from error


def arguments_of(config: DatabaseConfig, context: StoreContext) -> dict[str, Any]:
    """Return the keys of the configuration as the arguments of a class."""
    names = [name for name in CLASS_KEYS if name != "options"]
    values = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    for name in {"connection_string", "api_key"} & values.keys():
        values[name] = values[name].get_secret_value()
    if config.path is not None:
        values["path"] = str(path_inside(config.path, context.base_dir))
    return {**values, **(config.options or {})}


class NamedStore:
    """A store of the user's, with time limits and errors as those of other stores."""

    def __init__(self, store: VectorStore, config: DatabaseConfig) -> None:
        self._store = store
        self._provider = config.provider
        self._limit_s = config.timeout
        secrets = (config.connection_string, config.api_key)
        self._redactor = Redactor(one.get_secret_value() for one in secrets if one is not None)

    async def open(self, dimensions: int, *, empty: bool = False) -> None:
        await self._call(self._store.open(dimensions, empty=empty))

    async def replace(self, document: str, chunks: Sequence[Chunk]) -> None:
        await self._call(self._store.replace(document, chunks))

    async def delete(self, document: str) -> None:
        await self._call(self._store.delete(document))

    async def search(self, embedding: Sequence[float], top_k: int) -> list[Hit]:
        return await self._call(self._store.search(embedding, top_k))

    async def texts(self) -> list[StoredText]:
        return await self._call(self._store.texts())

    async def manifest(self) -> dict[str, str]:
        return await self._call(self._store.manifest())

    async def set_manifest(self, document: str, fingerprint: str | None) -> None:
        await self._call(self._store.set_manifest(document, fingerprint))

    async def close(self) -> None:
        await self._call(self._store.close())

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns. Raises VectorStoreError."""
        scope = timeout(self._limit_s)
        try:
            async with scope:
                return await call
        except HoloDeckError:
            raise
        except Exception as error:
            problem = no_answer(self._limit_s) if scope.expired() else describe(error)
            message = self._redactor.redact(f"vector store {self._provider}: {problem}")
            raise VectorStoreError(message) from error
