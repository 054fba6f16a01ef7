"""The connectors of Semantic Kernel: their products, and how settings become their arguments."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Any
from urllib.parse import urlsplit

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.knowledge.stores.base import settings_of
from holodeck.models.tools.database import DatabaseConfig


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
