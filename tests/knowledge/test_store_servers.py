"""Servers of vector stores that fail: one error that says what to change, and no password."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from holodeck.errors import ConfigError, MissingExtra, VectorStoreError
from holodeck.lib.knowledge.stores.base import Chunk
from support.store_servers import PASSWORD, PATIENCE_S, free_port
from support.vector_stores import MISSING, STORES, StoreFactory

ADDRESSES = {
    "postgres": ("psycopg", {"connection_string": f"postgresql://me:{PASSWORD}@127.0.0.1:PORT/x"}),
    "qdrant": ("qdrant_client", {"url": "http://127.0.0.1:PORT"}),
    "chromadb": ("chromadb", {"connection_string": f"http://me:{PASSWORD}@127.0.0.1:PORT"}),
}
HOW_TO_DIE = {"postgres": signal.SIGQUIT, "chroma": signal.SIGKILL}
MORTAL = [name for name in HOW_TO_DIE if name not in MISSING]
WITH_PASSWORD = [name for name in ("postgres",) if name not in MISSING]


def factory_for(provider: str, port: int, tmp_path, **more: object) -> StoreFactory:
    module, keys = ADDRESSES[provider]
    pytest.importorskip(module, reason=f"the client of {provider} is not installed")
    address = {key: value.replace("PORT", str(port)) for key, value in keys.items()}
    return StoreFactory(tmp_path, provider=provider, **address, **more)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        yield server.getsockname()[1]


@pytest.mark.parametrize("provider", ADDRESSES)
async def test_a_server_that_is_down_is_an_error_with_its_address(provider, tmp_path):
    port = free_port()
    store = factory_for(provider, port, tmp_path)("facts")

    with pytest.raises(VectorStoreError) as raised:
        await store.open(3)

    await store.close()
    assert str(raised.value).startswith(f"vector store {provider} at 127.0.0.1:{port}: the server")
    assert "cannot be reached" in str(raised.value)
    assert "start it, or change the address" in str(raised.value)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("provider", ADDRESSES)
async def test_a_server_that_never_answers_is_an_error_after_the_limit(
    provider, tmp_path, silent_port
):
    store = factory_for(provider, silent_port, tmp_path, timeout=0.3)("facts")

    with pytest.raises(
        VectorStoreError, match=r"no answer (within|in time)|cannot be reached|[Tt]imeout"
    ):
        await store.open(3)

    await _no_call_goes_on()


@pytest.mark.skipif("chroma" in MISSING, reason="chromadb is not installed")
async def test_a_server_that_hangs_keeps_no_thread(tmp_path, request, chroma_server):
    url = f"http://127.0.0.1:{chroma_server.port}"
    store = StoreFactory(tmp_path, provider="chromadb", connection_string=url, timeout=5)("facts")
    await store.open(3)
    chroma_server.send(signal.SIGSTOP)

    try:
        with pytest.raises(VectorStoreError, match=r"no answer within 5 s; check that it runs"):
            await store.search([1, 0, 0], 1)
        await _no_call_goes_on()
    finally:
        chroma_server.send(signal.SIGCONT)

    await store.close()


async def _no_call_goes_on() -> None:
    """Return once no thread waits for a server any more."""
    for thread in threading.enumerate():
        if thread.name == "holodeck-vector-store":
            await asyncio.to_thread(thread.join, PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("name", MORTAL)
async def test_a_server_that_dies_in_the_middle_is_an_error_until_it_is_back(
    name, tmp_path, request
):
    factory = STORES[name](tmp_path, request)
    server = request.getfixturevalue(f"{name}_server")
    store = factory("facts")
    await store.open(3)
    await store.replace("a.md", [Chunk("1", "a.md", "text", [1, 0, 0], {})])
    server.end(HOW_TO_DIE[name])

    try:
        with pytest.raises(VectorStoreError) as raised:
            await store.search([1, 0, 0], 1)
        with pytest.raises(VectorStoreError):
            await store.replace("a.md", [])
    finally:
        server.start()

    assert f"127.0.0.1:{server.port}: " in str(raised.value)
    assert PASSWORD not in str(raised.value)
    await store.open(3)
    await store.replace("b.md", [Chunk("2", "b.md", "text", [1, 0, 0], {})])
    assert "2" in {hit.id for hit in await store.search([1, 0, 0], 2)}
    await store.close()


@pytest.mark.parametrize("name", WITH_PASSWORD)
async def test_a_connection_that_the_server_closed_is_made_anew(name, tmp_path, request):
    store = STORES[name](tmp_path, request)("facts")
    server = request.getfixturevalue(f"{name}_server")
    await store.open(3)
    server.end(HOW_TO_DIE[name])
    server.start()

    assert await store.manifest() == {}

    await store.close()


@pytest.mark.parametrize("name", WITH_PASSWORD)
async def test_wrong_credentials_are_an_error_that_says_so(name, tmp_path, request):
    config = STORES[name](tmp_path, request).config
    address = config.connection_string.get_secret_value().replace(PASSWORD, "wrong-password")
    store = StoreFactory(tmp_path, provider=name, connection_string=address)("facts")

    with pytest.raises(VectorStoreError) as raised:
        await store.open(3)

    assert "the server rejects the credentials" in str(raised.value)
    assert "change 'connection_string'" in str(raised.value)
    assert "wrong-password" not in str(raised.value)


@pytest.mark.skipif("postgres" in MISSING, reason="psycopg is not installed")
async def test_a_missing_database_is_an_error_that_says_so(tmp_path, request):
    config = STORES["postgres"](tmp_path, request).config
    address = config.connection_string.get_secret_value().replace("/postgres", "/nothing")
    store = StoreFactory(tmp_path, provider="postgres", connection_string=address)("facts")

    with pytest.raises(VectorStoreError, match=r'"nothing" does not exist; create it'):
        await store.open(3)


@pytest.mark.parametrize(
    ("provider", "address"),
    [
        ("postgres", f"mysql://me:{PASSWORD}@127.0.0.1"),
        ("qdrant", f"127.0.0.1:6333/{PASSWORD}"),
        ("chromadb", f"grpc://{PASSWORD}"),
    ],
)
def test_a_wrong_address_is_an_error_without_its_secrets(provider, address, tmp_path):
    pytest.importorskip(ADDRESSES[provider][0], reason=f"{provider} is not installed")
    factory = StoreFactory(tmp_path, provider=provider, connection_string=address)

    with pytest.raises(ConfigError, match="connection_string: is not an address of") as raised:
        factory("facts")

    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "provider", "extra"),
    [
        ("psycopg", "postgres", "postgres"),
        ("qdrant_client", "qdrant", "qdrant"),
        ("chromadb", "chromadb", "chroma"),
    ],
)
def test_a_missing_client_is_an_error_with_the_command_that_installs_it(
    module, provider, extra, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    address = ADDRESSES[provider][1]
    factory = StoreFactory(tmp_path, provider=provider, **address)

    with pytest.raises(MissingExtra, match=f"vector store {provider}: needs .*install.*{extra}"):
        factory("facts")


@pytest.mark.skipif("qdrant-folder" in MISSING, reason="qdrant_client is not installed")
async def test_a_qdrant_folder_that_another_process_uses_is_an_error(tmp_path, request):
    factory = STORES["qdrant-folder"](tmp_path, request)
    from qdrant_client import QdrantClient

    other = QdrantClient(path=str(tmp_path / "qdrant"))
    with pytest.raises(VectorStoreError, match="another process uses the folder"):
        await factory("facts").open(3)

    other.close()
    store = factory("facts")
    await store.open(3)
    await store.close()
