"""Which connectors of Semantic Kernel serve which products, and how they are set up."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from holodeck.errors import ConfigError, MissingExtra
from holodeck.models.tools.database import DatabaseConfig


@dataclass(frozen=True)
class Connector:
    """A class of Semantic Kernel, and how settings become its arguments."""

    target: str
    extra: str
    arguments: Callable[[DatabaseConfig], dict[str, Any]]
    index: str = "default"
    created_with: tuple[str, ...] = ()
    """Settings for new collections."""
    imports: str | None = None
    """A module that the connector imports only when it connects."""


def _secret(config: DatabaseConfig, name: str) -> str | None:
    value: SecretStr | None = getattr(config, name)
    return None if value is None else value.get_secret_value()


def address_of(config: DatabaseConfig) -> str:
    """Return the URL or connection string of a store; empty if it has none."""
    return config.url or _secret(config, "connection_string") or ""


def _weaviate(config: DatabaseConfig) -> dict[str, Any]:
    parts = urlsplit(address_of(config))
    if parts.scheme == "https":
        return {"url": parts.geturl(), "api_key": _secret(config, "api_key")}
    if config.api_key is not None:
        raise ConfigError("database.api_key", "is sent by Semantic Kernel to https:// only")
    return {"local_host": parts.hostname, "local_port": parts.port or 8080}


def _pinecone(config: DatabaseConfig) -> dict[str, Any]:
    """Key and namespace may be in `pinecone://KEY@NAMESPACE`. Raises ConfigError."""
    if config.connection_string is None:
        return {"api_key": _secret(config, "api_key"), "namespace": config.namespace or ""}
    parts = urlsplit(address_of(config))
    if parts.scheme != "pinecone" or not parts.username:
        problem = "is none of pinecone; write pinecone://KEY@NAMESPACE"
        raise ConfigError("database.connection_string", problem)
    return {"api_key": unquote(parts.username), "namespace": parts.netloc.rpartition("@")[2]}


def _azure_ai_search(config: DatabaseConfig) -> dict[str, Any]:
    return {"search_endpoint": address_of(config), "api_key": _secret(config, "api_key")}


def _cosmos_nosql(config: DatabaseConfig) -> dict[str, Any]:
    address = _secret(config, "connection_string") or ""
    values = dict(part.partition("=")[::2] for part in address.split(";"))
    return {
        "url": config.url or values.get("AccountEndpoint"),
        "key": _secret(config, "api_key") or values.get("AccountKey"),
        "database_name": config.database or "holodeck",
        "create_database": True,
    }


def _cosmos_mongo(config: DatabaseConfig) -> dict[str, Any]:
    return {
        "connection_string": address_of(config),
        "database_name": config.database or "holodeck",
    }


def _sql_server(config: DatabaseConfig) -> dict[str, Any]:
    return {"connection_string": address_of(config)}


_PACKAGE = "semantic_kernel.connectors"
CONNECTORS: Mapping[str, Connector] = {
    "weaviate": Connector(f"{_PACKAGE}.weaviate:WeaviateCollection", "weaviate", _weaviate),
    "pinecone": Connector(
        f"{_PACKAGE}.pinecone:PineconeCollection",
        "pinecone",
        _pinecone,
        created_with=("cloud", "region"),
    ),
    "azure-ai-search": Connector(
        f"{_PACKAGE}.azure_ai_search:AzureAISearchCollection",
        "azure-ai-search",
        _azure_ai_search,
        index="flat",
    ),
    "azure-cosmos-nosql": Connector(
        f"{_PACKAGE}.azure_cosmos_db:CosmosNoSqlCollection", "azure-cosmos", _cosmos_nosql
    ),
    "azure-cosmos-mongo": Connector(
        f"{_PACKAGE}.azure_cosmos_db:CosmosMongoCollection", "azure-cosmos", _cosmos_mongo
    ),
    "sql-server": Connector(
        f"{_PACKAGE}.sql_server:SqlServerCollection", "sql-server", _sql_server, imports="pyodbc"
    ),
}


def load_connector(provider: str) -> Any:
    """Return the class of a product's connector. Raises ConfigError, or MissingExtra."""
    known = CONNECTORS[provider]
    module, _, name = known.target.partition(":")
    try:
        if known.imports is not None:
            import_module(known.imports)
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise MissingExtra(known.extra, f"vector store {provider}") from error
    except (ImportError, AttributeError) as error:
        message = f"{provider}: {error}; {_versions([error.name or ''])}"
        raise ConfigError("database.provider", message) from error


def versions_of(connector: type) -> str:
    """Return the versions of Semantic Kernel and of the libraries that a connector uses."""
    used = vars(import_module(connector.__module__)).values()
    modules = [
        getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in used
    ]
    return _versions([connector.__module__, *map(str, modules)])


def _versions(modules: Iterable[str]) -> str:
    """Return the versions of the clients among the libraries of some modules."""
    clients = [text for text in metadata.requires("semantic-kernel") or () if "extra ==" in text]
    names = {re.split(r"[^\w.-]", text)[0] for text in clients}
    homes = metadata.packages_distributions()
    used = {name for module in modules for name in homes.get(module.partition(".")[0], ())}
    shown = [f"{name} {metadata.version(name)}" for name in sorted(used & names)]
    versions = " and ".join([f"semantic-kernel {metadata.version('semantic-kernel')}", *shown])
    return f"its connector and its client may not fit: {versions}"
