"""Servers of vector stores, started once for all tests of a process."""

from collections.abc import Iterator

import pytest

from support import store_servers
from support.cosmos_service import CosmosService
from support.store_servers import StoreServer
from support.vector_services import AzureSearchService, PineconeService, WeaviateService


@pytest.fixture(scope="session")
def redis_server() -> Iterator[StoreServer]:
    with store_servers.redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[StoreServer]:
    with store_servers.postgres_server(store_servers.debians_postgres()) as server:
        yield server


@pytest.fixture(scope="session")
def pgvector_server() -> Iterator[StoreServer]:
    with store_servers.postgres_server(store_servers.postgres_with_pgvector()) as server:
        yield server


@pytest.fixture(scope="session")
def chroma_server() -> Iterator[StoreServer]:
    with store_servers.chroma_server() as server:
        yield server


@pytest.fixture(scope="session")
def weaviate_server() -> Iterator[WeaviateService]:
    with WeaviateService() as server:
        yield server


@pytest.fixture(scope="session")
def pinecone_server() -> Iterator[PineconeService]:
    with PineconeService() as server:
        yield server


@pytest.fixture(scope="session")
def azure_search_server() -> Iterator[AzureSearchService]:
    with AzureSearchService() as server:
        yield server


@pytest.fixture(scope="session")
def cosmos_server() -> Iterator[CosmosService]:
    with CosmosService() as server:
        yield server
