"""Stores behind HTTP services: what they reject, when they are busy, and what they show late."""

import base64

import pytest

from holodeck.errors import ConfigError, VectorStoreError
from holodeck.lib.knowledge.stores.base import Chunk
from support.cosmos_service import COSMOS_KEY
from support.rest_services import KEY
from support.vector_stores import STORES, StoreFactory

SERVERS = {
    "weaviate": "weaviate_server",
    "pinecone": "pinecone_server",
    "azure-ai-search": "azure_search_server",
    "azure-cosmos-nosql": "cosmos_server",
}
WRONG = base64.b64encode(b"wrong-secret-key").decode()
ONE_CHUNK = [Chunk("1", "a.md", "text", [1, 0, 0], {})]


@pytest.fixture(params=SERVERS)
def name(request) -> str:
    return request.param


@pytest.fixture
def server(name, request):
    return request.getfixturevalue(SERVERS[name])


@pytest.fixture
def factory(name, request, tmp_path) -> StoreFactory:
    return STORES[name](tmp_path, request)


async def test_a_service_that_dies_in_the_middle_is_an_error_until_it_is_back(
    name, server, factory
):
    store = factory("facts")
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK)
    server.end()

    try:
        with pytest.raises(VectorStoreError) as raised:
            await store.search([1, 0, 0], 1)
        with pytest.raises(VectorStoreError):
            await store.replace("a.md", [])
    finally:
        server.start()

    assert str(raised.value).startswith(f"vector store {name} at 127.0.0.1:{server.port}: ")
    assert "cannot be reached" in str(raised.value)
    assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["1"]
    await store.close()


async def test_a_wrong_key_is_an_error_that_names_the_setting(name, server, tmp_path):
    config = {"provider": name, "url": server.url, "api_key": WRONG}
    store = StoreFactory(tmp_path, **config)("facts")

    with pytest.raises(VectorStoreError) as raised:
        await store.open(3)

    assert "the server rejects the credentials (HTTP 40" in str(raised.value)
    assert "change 'api_key'" in str(raised.value)
    assert WRONG not in str(raised.value)
    await store.close()


async def test_a_busy_service_is_asked_again(server, factory):
    store = factory("facts")
    await store.open(3)
    server.busy = 2

    await store.replace("a.md", ONE_CHUNK)

    assert server.busy == 0
    assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["1"]
    await store.close()


@pytest.mark.parametrize("name", ["weaviate"], indirect=True)
async def test_a_service_that_stays_busy_is_an_error_within_the_limit(server, factory):
    factory.config = factory.config.model_copy(update={"timeout": 2.0})
    store = factory("facts")
    server.busy = 10**9
    try:
        with pytest.raises(VectorStoreError, match=r"busy \(HTTP 429: too many|no answer within"):
            await store.open(3)
    finally:
        server.busy = 0
    await store.close()


@pytest.mark.parametrize("name", ["pinecone", "azure-ai-search"], indirect=True)
async def test_a_search_waits_for_what_was_written_before_it(server, factory):
    store = factory("facts")
    await store.open(3)
    server.lag = 2
    try:
        await store.replace("a.md", ONE_CHUNK)
        await store.set_manifest("a.md", "one")

        assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["1"]
        assert await store.manifest() == {"a.md": "one"}
        await store.replace("a.md", [])
        assert await store.search([1, 0, 0], 2) == []
    finally:
        server.lag = 0
    await store.close()


@pytest.mark.parametrize("name", ["pinecone", "azure-ai-search"], indirect=True)
async def test_a_service_that_never_shows_what_was_written_is_an_error(server, factory):
    factory.config = factory.config.model_copy(update={"timeout": 1.5})
    store = factory("facts")
    await store.open(3)
    server.lag = 10**9
    try:
        await store.replace("a.md", ONE_CHUNK)
        with pytest.raises(VectorStoreError, match=r"what was written within .*raise 'timeout'"):
            await store.search([1, 0, 0], 2)
    finally:
        server.lag = 0
    await store.close()


@pytest.mark.parametrize("name", ["weaviate"], indirect=True)
async def test_more_chunks_than_weaviate_deletes_at_a_time_are_all_deleted(server, factory):
    store = factory("facts")
    await store.open(3)
    await store.replace("a.md", [Chunk(str(n), "a.md", "x", [1, 0, n], {}) for n in range(5)])
    server.most_deleted = 2
    try:
        await store.delete("a.md")
    finally:
        server.most_deleted = 10_000

    assert await store.texts() == []
    await store.close()


async def test_tools_share_an_index_of_pinecone_that_the_configuration_names(
    pinecone_server, tmp_path
):
    config = {"url": pinecone_server.url, "api_key": KEY, "index_name": "shared"}
    factory = StoreFactory(tmp_path, provider="pinecone", namespace="mine", **config)
    one, other = factory("one"), factory("other")
    for store, name in ((one, "1.md"), (other, "2.md")):
        await store.open(3)
        await store.replace(name, [Chunk(name, name, "text", [1, 0, 0], {})])

    await one.open(3, empty=True)
    with pytest.raises(VectorStoreError, match="3 dimensions"):
        await factory("third").open(4, empty=True)

    assert await one.texts() == []
    assert [text.id for text in await other.texts()] == ["2.md"]
    namespaces = pinecone_server.indexes["shared"].namespaces
    assert all(name.startswith("mine-") for name in namespaces)
    await one.close()
    await other.close()


@pytest.mark.parametrize("name", ["pinecone"], indirect=True)
async def test_a_namespace_that_is_still_counted_is_not_read(server, factory):
    store = factory("facts")
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK)
    await store.set_manifest("a.md", "one")
    server.lag = 2
    try:
        await store.open(3, empty=True)
    finally:
        server.lag = 0

    assert await store.manifest() == {}
    assert await store.search([1, 0, 0], 2) == []
    await store.close()


@pytest.mark.parametrize("name", ["azure-ai-search"], indirect=True)
async def test_any_name_of_a_tool_makes_a_name_of_an_index(server, factory):
    store = factory("a__b_")
    await store.open(3)
    await store.close()


@pytest.mark.parametrize("name", ["azure-cosmos-nosql"], indirect=True)
async def test_requests_to_cosmos_say_what_they_have_seen(server, factory):
    store = factory("facts")
    await store.open(3)
    before = server.unaware
    await store.replace("a.md", ONE_CHUNK)

    assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["1"]
    assert server.unaware == before
    await store.close()


async def test_the_address_of_cosmos_may_hold_its_key(cosmos_server, tmp_path):
    text = f"AccountEndpoint={cosmos_server.url}/;AccountKey={COSMOS_KEY};"
    config = {"provider": "azure-cosmos-nosql", "connection_string": text}
    store = StoreFactory(tmp_path, **config)("facts")
    await store.open(3)
    await store.close()

    for wrong in ("AccountKey=x", f"AccountEndpoint={cosmos_server.url};AccountKey=no base64"):
        with pytest.raises(ConfigError, match="Azure Cosmos DB"):
            StoreFactory(tmp_path, **{**config, "connection_string": wrong})("facts")


async def test_the_address_of_pinecone_may_hold_key_and_namespace(pinecone_server, tmp_path):
    with pytest.raises(ConfigError, match="pinecone://KEY@NAMESPACE"):
        StoreFactory(tmp_path, provider="pinecone", connection_string="http://secret@x")("facts")

    store = StoreFactory(tmp_path, provider="pinecone", connection_string=f"pinecone://{KEY}@n")
    assert KEY not in repr(store.config)
    await store("facts").close()
