"""Servers of vector stores, started once for all tests of a process."""

from collections.abc import Iterator

import pytest

from support import store_servers
from support.store_servers import StoreServer


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
