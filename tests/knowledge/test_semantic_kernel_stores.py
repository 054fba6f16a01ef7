"""Connectors of Semantic Kernel, and classes of users: settings, faults, and what shows late."""

import sys
from importlib.metadata import version

import pytest

from holodeck.errors import ConfigError, MissingExtra, VectorStoreError
from holodeck.lib.knowledge.stores.base import Chunk
from holodeck.lib.knowledge.stores.semantic_kernel_store import connector_arguments
from holodeck.models.tools.knowledge import DatabaseConfig
from support.store_servers import PASSWORD, free_port
from support.vector_stores import StoreFactory

ONE_CHUNK = [Chunk("1", "a.md", "text", [1, 0, 0], {})]
PINECONE = {"api_key": PASSWORD, "namespace": "n"}
COSMOS = {"key": "k==", "database_name": "holodeck", "create_database": True}
MEMORY = "from semantic_kernel.connectors.in_memory import InMemoryCollection\n"
LATE = f"""
{MEMORY}
class Late(InMemoryCollection):
    async def _inner_get(self, keys=None, options=None, **more):
        found = await super()._inner_get(keys, options, **more)
        if any(one["text"] for one in found or ()) and len(WAITS) < MOST:
            WAITS.append(keys)
            return []
        return found
"""


def test_settings_become_the_arguments_of_connectors():
    def arguments(provider, **keys):
        config = DatabaseConfig.model_validate({"provider": provider, **keys})
        return connector_arguments(config)

    sql = "Driver={ODBC Driver 18 for SQL Server};Server=db;Pwd=x"
    mongo = "mongodb://me:x@host:10255"
    endpoint = "AccountEndpoint=https://a.documents.azure.com/;AccountKey=k==;"
    own = arguments("azure-cosmos-nosql", url="https://a", key="k==", database_name="d")

    assert arguments("pinecone", api_key=PASSWORD, namespace="n") == PINECONE
    assert arguments("pinecone", api_key=PASSWORD) == {**PINECONE, "namespace": ""}
    assert arguments("weaviate", url="http://box:81") == {"local_host": "box", "local_port": 81}
    assert arguments("weaviate", url="https://w", api_key="x") == {
        "url": "https://w",
        "api_key": "x",
    }
    assert arguments("azure-ai-search", search_endpoint="https://s", api_key="x") == {
        "search_endpoint": "https://s",
        "api_key": "x",
    }
    url = "https://a.documents.azure.com/"
    assert arguments("azure-cosmos-nosql", connection_string=endpoint) == {**COSMOS, "url": url}
    assert own == {**COSMOS, "url": "https://a", "database_name": "d"}
    assert arguments("azure-cosmos-mongo", connection_string=mongo) == {
        "connection_string": mongo,
        "database_name": "holodeck",
    }
    assert arguments("sql-server", connection_string=sql) == {"connection_string": sql}


def test_a_key_that_would_be_sent_in_the_clear_is_an_error():
    config = DatabaseConfig.model_validate(
        {"provider": "weaviate", "url": "http://x", "api_key": "y"}
    )

    with pytest.raises(ConfigError, match="to https:// only"):
        connector_arguments(config)


@pytest.mark.parametrize(
    ("provider", "keys", "client"),
    [
        ("weaviate", {"url": "http://x"}, "weaviate"),
        ("pinecone", {"api_key": "x"}, "pinecone"),
        ("azure-ai-search", {"url": "https://x", "api_key": "x"}, "azure.search.documents"),
        ("azure-cosmos-nosql", {"url": "https://x", "api_key": "x"}, "azure.cosmos"),
        ("azure-cosmos-mongo", {"connection_string": "mongodb://x"}, "azure.cosmos"),
        ("sql-server", {"connection_string": "Server=x"}, "pyodbc"),
    ],
)
def test_a_missing_client_is_an_error_with_the_command_that_installs_it(
    provider, keys, client, tmp_path, monkeypatch
):
    for name in [name for name in sys.modules if name.startswith("semantic_kernel.connectors.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, client, None)
    factory = StoreFactory(tmp_path, provider=provider, **keys)

    with pytest.raises(MissingExtra, match=f"vector store {provider}: needs .*install"):
        factory("facts")


async def test_a_connector_that_does_not_fit_its_client_is_an_error_with_both_versions(tmp_path):
    connector = "semantic_kernel.connectors.qdrant:QdrantCollection"
    store = StoreFactory(tmp_path, provider=connector, options={"location": ":memory:"})("facts")
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK)

    with pytest.raises(VectorStoreError) as raised:
        await store.search([1, 0, 0], 1)

    assert "has no attribute 'search'; its connector and its client may not fit:" in str(
        raised.value
    )
    for name in ("semantic-kernel", "qdrant-client"):
        assert f"{name} {version(name)}" in str(raised.value)
    await store.close()


async def test_a_connector_whose_server_is_down_is_an_error_with_its_address(tmp_path):
    port = free_port()
    (tmp_path / "far.py").write_text(
        f"import asyncio\n{MEMORY}class Far(InMemoryCollection):\n"
        "    async def ensure_collection_exists(self, **more):\n"
        f"        await asyncio.open_connection('127.0.0.1', {port})\n"
    )
    store = StoreFactory(tmp_path, provider="far:Far", url=f"http://127.0.0.1:{port}")("facts")

    with pytest.raises(VectorStoreError, match=f"at 127.0.0.1:{port}: the server cannot be reach"):
        await store.open(3)

    await store.close()


def late(tmp_path, most, **more):
    (tmp_path / "late.py").write_text(f"WAITS, MOST = [], {most}\n{LATE}")
    return StoreFactory(tmp_path, provider="late:Late", **more)("facts")


async def test_a_search_waits_for_what_was_stored_before_it(tmp_path):
    store = late(tmp_path, 2)
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK)

    assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["1"]
    assert [text.id for text in await store.texts()] == ["1"]
    await store.close()


async def test_a_store_that_never_shows_what_was_stored_is_an_error_within_the_limit(tmp_path):
    store = late(tmp_path, 10**9, timeout=1)
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK)

    with pytest.raises(VectorStoreError, match=r"no answer within .* raise 'timeout'"):
        await store.search([1, 0, 0], 2)

    await store.close()


async def test_chunks_that_the_store_lost_are_an_error(tmp_path):
    (tmp_path / "lossy.py").write_text(
        f"{MEMORY}class Lossy(InMemoryCollection):\n"
        "    async def _inner_upsert(self, records, **more):\n"
        "        await super()._inner_upsert(records[-1:], **more)\n"
        "        return [one['id'] for one in records]\n"
    )
    store = StoreFactory(tmp_path, provider="lossy:Lossy")("facts")
    await store.open(3)
    await store.replace("a.md", [*ONE_CHUNK, Chunk("2", "a.md", "text", [0, 1, 0], {})])
    await store.set_manifest("a.md", "one")

    with pytest.raises(VectorStoreError, match=r"'a.md' has 1 of its 2 chunks; .*--force-ingest"):
        await store.texts()

    await store.close()


OWN = """
import asyncio

class Store:
    def __init__(self, collection, **settings):
        self.settings = settings

    async def open(self, dimensions, *, empty=False):
        raise RuntimeError(f"no {self.settings}")

    async def search(self, embedding, top_k):
        await asyncio.Event().wait()

    async def replace(self, document, chunks): ...
    async def delete(self, document): ...
    async def texts(self): ...
    async def manifest(self): ...
    async def set_manifest(self, document, fingerprint): ...
    async def close(self): ...

class Picky(Store):
    def __init__(self, collection, *, wanted): ...

class Half:
    async def open(self, dimensions, *, empty=False): ...
    async def search(self, embedding, top_k): ...
"""


def own_store(tmp_path, name, **keys):
    (tmp_path / "own.py").write_text(OWN)
    return StoreFactory(tmp_path, provider=f"own:{name}", **keys)("facts")


async def test_a_class_gets_its_keys_and_options_and_its_errors_have_no_secret(tmp_path):
    keys = {"api_key": PASSWORD, "path": "x", "options": {"size": 3}}
    store = own_store(tmp_path, "Store", **keys)

    with pytest.raises(VectorStoreError) as raised:
        await store.open(3)

    given = {"path": str(tmp_path / "x"), "api_key": "***", "size": 3}
    assert str(raised.value) == f"vector store own:Store: RuntimeError: no {given}"
    await store.close()


async def test_a_class_that_does_not_answer_is_an_error_after_the_limit(tmp_path):
    store = own_store(tmp_path, "Store", timeout=0.2)

    with pytest.raises(VectorStoreError, match=r"own:Store: no answer within 0\.2 s"):
        await store.search([1, 0, 0], 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Half", "'own:Half' is no vector store; it has no replace, delete, texts, manifest"),
        ("Picky", "database.provider: own:Picky: cannot be made: TypeError: .*'wanted'"),
        ("Stor", "there is no 'Stor' in it; did you mean 'Store'"),
    ],
)
def test_a_class_that_is_no_store_is_an_error(tmp_path, name, message):
    with pytest.raises(ConfigError, match=message):
        own_store(tmp_path, name)
