"""Vector stores: where the chunks of a knowledge tool are kept."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from holodeck.models.base import (
    InvalidKeys,
    Json,
    Model,
    NetworkUse,
    NonBlank,
    Seconds,
    ServerAddress,
    WrittenPath,
)

Secret = Annotated[SecretStr, Field(min_length=1)]


class VectorStoreProvider(StrEnum):
    """Products that keep vectors."""

    SQLITE = "sqlite"
    IN_MEMORY = "in-memory"
    CHROMADB = "chromadb"
    QDRANT = "qdrant"
    POSTGRES = "postgres"
    REDIS = "redis"
    FAISS = "faiss"
    WEAVIATE = "weaviate"
    PINECONE = "pinecone"
    AZURE_AI_SEARCH = "azure-ai-search"
    AZURE_COSMOS_MONGO = "azure-cosmos-mongo"
    AZURE_COSMOS_NOSQL = "azure-cosmos-nosql"
    SQL_SERVER = "sql-server"


ALIASES = {
    "postgresql": VectorStoreProvider.POSTGRES,
    "redis-hashset": VectorStoreProvider.REDIS,
    "redis-json": VectorStoreProvider.REDIS,
}
"""Other names of providers in existing files."""

REPLACED = {
    VectorStoreProvider.REDIS: "the default, a file in the cache folder",
    VectorStoreProvider.FAISS: "the store in memory, whose search is exact, too",
}
"""Products of existing files that are not used any more, with what is used."""

WITHOUT_SERVER = frozenset({VectorStoreProvider.SQLITE, VectorStoreProvider.IN_MEMORY, *REPLACED})
"""Products that run in the process, whatever the other keys say."""

CLASS_KEYS: tuple[str, ...] = (
    *("connection_string", "url", "path", "api_key", "tenant", "database", "namespace"),
    *("db_schema", "options"),
)
"""The keys of a class, which are its arguments."""

KEYS: Mapping[VectorStoreProvider, tuple[str, ...]] = {
    VectorStoreProvider.SQLITE: ("path",),
    VectorStoreProvider.IN_MEMORY: (),
    VectorStoreProvider.CHROMADB: (
        *("connection_string", "url", "path", "api_key", "tenant", "database"),
    ),
    VectorStoreProvider.QDRANT: ("connection_string", "url", "path", "api_key"),
    VectorStoreProvider.POSTGRES: ("connection_string", "db_schema"),
    VectorStoreProvider.REDIS: ("connection_string", "url"),
    VectorStoreProvider.FAISS: (),
    VectorStoreProvider.WEAVIATE: ("connection_string", "url", "api_key"),
    VectorStoreProvider.PINECONE: ("api_key", "namespace", "cloud", "region"),
    VectorStoreProvider.AZURE_AI_SEARCH: ("connection_string", "url", "api_key"),
    VectorStoreProvider.AZURE_COSMOS_MONGO: ("connection_string", "database"),
    VectorStoreProvider.AZURE_COSMOS_NOSQL: ("connection_string", "url", "api_key", "database"),
    VectorStoreProvider.SQL_SERVER: ("connection_string",),
}
"""The keys of each product, besides `provider` and `timeout`."""

_ADDRESSES = ("connection_string", "url", "path")
"""Keys that say where a store is; a store has one of them."""
_EXAMPLES = {
    VectorStoreProvider.CHROMADB: "connection_string: http://localhost:8000",
    VectorStoreProvider.QDRANT: "url: http://localhost:6333",
    VectorStoreProvider.POSTGRES: "connection_string: postgresql://user@localhost:5432/name",
    VectorStoreProvider.WEAVIATE: "url: http://localhost:8080",
    VectorStoreProvider.AZURE_AI_SEARCH: "url: https://NAME.search.windows.net",
    VectorStoreProvider.AZURE_COSMOS_MONGO: "connection_string: ${AZURE_COSMOS_CONNECTION_STRING}",
    VectorStoreProvider.AZURE_COSMOS_NOSQL: "connection_string: ${AZURE_COSMOS_CONNECTION_STRING}",
    VectorStoreProvider.SQL_SERVER: "connection_string: ${SQL_SERVER_CONNECTION_STRING}",
}
"""Products that need an address, with an example of it."""
_KEY_MAY_BE_IN: Mapping[VectorStoreProvider | str, tuple[str, ...]] = {
    VectorStoreProvider.AZURE_AI_SEARCH: ("api_key",),
    VectorStoreProvider.AZURE_COSMOS_NOSQL: ("api_key", "connection_string"),
    VectorStoreProvider.PINECONE: ("api_key",),
}
"""Where the API key is, for products that need one."""
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    VectorStoreProvider.AZURE_AI_SEARCH: {"search_endpoint": "url", "endpoint": "url"},
    VectorStoreProvider.AZURE_COSMOS_MONGO: {"database_name": "database"},
    VectorStoreProvider.AZURE_COSMOS_NOSQL: {"key": "api_key", "database_name": "database"},
}
"""Names of keys in existing files, with ours."""


class DatabaseConfig(Model):
    """A vector store and how to reach it."""

    provider: VectorStoreProvider | Annotated[str, Field(pattern=r"^[^\s:]+:[^\s:]+$")]
    """The product, or `module:Class` with a store of yours or a connector of Semantic Kernel.
    `postgresql` is another name of `postgres`."""
    connection_string: Annotated[Secret, NetworkUse.SERVER] | None = None
    """Address of the server, which may hold a password: `postgresql://…`, `redis://…`,
    `http://localhost:8000`."""
    url: ServerAddress | None = None
    """Address of a server without a password."""
    path: WrittenPath | None = None
    """File (`sqlite`) or folder (`chromadb`, `qdrant`) of a store without a server, relative to
    `agent.yaml`."""
    api_key: Secret | None = None
    """API key of a server."""
    tenant: NonBlank | None = None
    """Tenant of a Chroma server."""
    database: NonBlank | None = None
    """Database of a Chroma server, or of Azure Cosmos DB (by default holodeck)."""
    namespace: NonBlank | None = None
    """Namespace in Pinecone."""
    cloud: Literal["aws", "gcp", "azure"] | None = None
    """Cloud of new indexes in Pinecone; by default aws."""
    region: NonBlank | None = None
    """Region of new indexes in Pinecone; by default us-east-1."""
    db_schema: NonBlank | None = None
    """Schema of the tables in PostgreSQL; by default the first one of the search path."""
    timeout: Seconds = 30.0
    """Maximum seconds of one request to the store."""
    options: dict[str, Json] | None = None
    """Further arguments of `module:Class`."""

    _is_users: bool = PrivateAttr(default=False)

    @property
    def is_users(self) -> bool:
        """Whether the `config.yaml` of the user names it, so that its path may lie anywhere."""
        return self._is_users

    def of_user(self) -> Self:
        """Return it as a store in the `config.yaml` of the user."""
        copy = self.model_copy()
        copy._is_users = True  # noqa: SLF001 - a copy of its own class
        return copy

    @model_validator(mode="before")
    @classmethod
    def _resolve_alias(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("provider"), str):
            return data
        provider = ALIASES.get(data["provider"], data["provider"])
        names = _OTHER_NAMES.get(str(provider), {})
        renamed = {names.get(key, key): value for key, value in data.items()}
        if len(renamed) < len(data):
            return data  # two names of one key; the other one is unknown
        return {**renamed, "provider": provider}

    @property
    def named_class(self) -> str | None:
        """The store as `module:Class`; None for a product."""
        return None if isinstance(self.provider, VectorStoreProvider) else self.provider

    @property
    def is_embedded(self) -> bool:
        """Whether the store runs in the process, and no server is asked."""
        return self.provider in WITHOUT_SERVER or (
            self.named_class is None and self.path is not None
        )

    @model_validator(mode="after")
    def _check(self) -> "DatabaseConfig":
        given = [name for name in self.model_fields_set if getattr(self, name) is not None]
        is_product = self.named_class is None
        allowed = KEYS[VectorStoreProvider(self.provider)] if is_product else CLASS_KEYS
        others = sorted(set(given).difference(allowed, ("provider", "timeout")))
        if others:
            known = ", ".join(("provider", *allowed, "timeout"))
            raise InvalidKeys(
                [f"{name!r} is no key of {self.provider}; known: {known}" for name in others]
            )
        self._has_one_address(given)
        places = _KEY_MAY_BE_IN.get(self.provider)
        if places is not None and not set(given).intersection(places):
            name = self.provider.upper().replace("-", "_")
            raise ValueError(
                f"the API key of {self.provider} is missing; write, for example,"
                f" 'api_key: ${{{name}_API_KEY}}'"
            )
        return self

    def _has_one_address(self, given: list[str]) -> None:
        addresses = [name for name in _ADDRESSES if name in given]
        if len(addresses) > 1:
            names = " and ".join(f"'{name}'" for name in addresses)
            raise ValueError(f"{names} are both set; keep one of them")
        if not addresses and self.provider in _EXAMPLES:
            raise ValueError(
                f"the address of {self.provider} is missing; write, for example,"
                f" '{_EXAMPLES[VectorStoreProvider(self.provider)]}'"
            )


class VectorStoreSettings(DatabaseConfig):
    """A vector store of `config.yaml`, which tools name in `database`."""

    options: dict[str, Json] | None = None
    """Further keys of the store, which may also stand beside `provider`; further arguments of
    `module:Class`."""

    @model_validator(mode="before")
    @classmethod
    def _merge_options(cls, data: Any) -> Any:
        """Return the keys of a product with those in `options`."""
        if not isinstance(data, dict) or ":" in str(data.get("provider")):
            return data
        options = data.get("options")
        if not isinstance(options, dict):
            return data
        return {**options, **{key: value for key, value in data.items() if key != "options"}}
