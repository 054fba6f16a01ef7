"""The contract of vector stores, on every store that can run here."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable

import pytest

from holodeck.errors import VectorStoreError
from holodeck.lib.knowledge.stores.base import Chunk, StoredText, VectorStore
from support.vector_stores import INSTALLED, MISSING, PERSISTENT, STORES, StoreFactory

Open = Callable[..., VectorStore]


@pytest.fixture(params=INSTALLED)
def factory(request, tmp_path) -> StoreFactory:
    """What builds stores of one product on one place, as several runs would."""
    return STORES[request.param](tmp_path, request)


@pytest.fixture
async def store(factory) -> AsyncIterator[VectorStore]:
    """An open collection for embeddings of three numbers."""
    store = factory("facts")
    await store.open(3)
    yield store
    await store.close()


def chunk(document: str, number: int, *embedding: float, **metadata: object) -> Chunk:
    return Chunk(f"{document}#{number}", document, f"text {number}", embedding, metadata)


@pytest.mark.parametrize("name", STORES)
def test_every_store_takes_part(name):
    if name in MISSING:
        pytest.skip(f"{MISSING[name]} is not installed; scripts/stores runs these tests with it")


async def test_a_search_returns_the_most_similar_chunks_with_their_cosines(store):
    await store.replace("a.md", [chunk("a.md", 0, 2, 0, 0, page=1), chunk("a.md", 1, 0, 5, 0)])
    await store.replace("b.md", [chunk("b.md", 0, 1, 1, 0), chunk("b.md", 1, -1, 0, 0)])

    hits = await store.search([3, 0, 0], 3)
    everything = await store.search([3, 0, 0], 100)

    assert [hit.id for hit in hits] == ["a.md#0", "b.md#0", "a.md#1"]
    assert [hit.score for hit in hits] == pytest.approx([1, math.sqrt(0.5), 0], abs=1e-6)
    assert hits[0].text == "text 0"
    assert hits[0].document == "a.md"
    assert hits[0].metadata == {"page": 1}
    assert {hit.id: hit.score for hit in everything}["b.md#1"] == 0  # opposite, clipped
    assert len(everything) == 4


async def test_an_empty_collection_has_no_hits(store):
    assert await store.search([1, 0, 0], 5) == []
    assert await store.texts() == []
    assert await store.manifest() == {}


async def test_replacing_a_document_removes_its_chunks_and_its_fingerprint(store):
    await store.replace("a.md", [chunk("a.md", n, 1, n, 0) for n in range(3)])
    await store.replace("b.md", [chunk("b.md", 0, 0, 0, 1)])
    await store.set_manifest("a.md", "one")
    await store.set_manifest("b.md", "two")

    await store.replace("a.md", [chunk("a.md", 7, 0, 1, 0)])

    assert [one.id for one in await store.texts()] == ["a.md#7", "b.md#0"]
    assert await store.manifest() == {"b.md": "two"}
    assert [hit.id for hit in await store.search([1, 0, 0], 9)] == ["a.md#7", "b.md#0"]


async def test_a_deleted_document_is_gone_and_others_stay(store):
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0)])
    await store.replace("b.md", [chunk("b.md", 0, 0, 1, 0)])
    await store.set_manifest("a.md", "one")

    await store.delete("a.md")
    await store.delete("never stored")

    assert [one.document for one in await store.texts()] == ["b.md"]
    assert await store.manifest() == {}


async def test_fingerprints_are_set_changed_and_forgotten(store):
    await store.set_manifest("a.md", "one")
    await store.set_manifest("b.md", "two")
    await store.set_manifest("a.md", "three")
    await store.set_manifest("b.md", None)
    await store.set_manifest("c.md", None)

    assert await store.manifest() == {"a.md": "three"}


async def test_texts_keep_order_metadata_and_every_character(store):
    nested = {"headings": ["1 Ä", "1.2"], "page": 3, "score": 0.5, "none": None, "ok": True}
    texts = ["'; DROP TABLE chunks; --", "\U0001f600 ä\r\n", "", "a\0b\ud800c"]
    chunks = [Chunk(str(n), "ü.md", text, [1, 0, n], nested) for n, text in enumerate(texts)]

    await store.replace("ü.md", chunks)

    texts[3] = "a\ufffdb\ufffdc"  # what some stores reject
    expected = [StoredText(str(n), "ü.md", text, nested) for n, text in enumerate(texts)]
    assert await store.texts() == expected


async def test_many_chunks_keep_their_order(store):
    chunks = [chunk("long.md", n, n, 1100, 0) for n in range(1100)]

    await store.replace("long.md", chunks)

    assert [one.id for one in await store.texts()] == [one.id for one in chunks]
    assert [hit.id for hit in await store.search([1, 0, 0], 2)] == ["long.md#1099", "long.md#1098"]


async def test_equal_scores_come_in_the_order_of_documents(store):
    for name in ("b.md", "a.md"):
        await store.replace(name, [chunk(name, n, 1, 0, 0) for n in range(2)])

    hits = await store.search([1, 0, 0], 4)

    assert [hit.id for hit in hits] == ["a.md#0", "a.md#1", "b.md#0", "b.md#1"]


async def test_zeros_are_stored_and_similar_to_nothing(store):
    await store.replace("a.md", [chunk("a.md", 0, 0, 0, 0), chunk("a.md", 1, 1, 0, 0)])

    hits = await store.search([1, 0, 0], 2)

    assert [(hit.id, round(hit.score, 6)) for hit in hits] == [("a.md#1", 1), ("a.md#0", 0)]


@pytest.mark.parametrize("embedding", [[1, 0], [1, 0, 0, 0], [], [math.nan, 0, 0]])
async def test_a_wrong_embedding_is_an_error_and_changes_nothing(store, embedding):
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0)])

    with pytest.raises(VectorStoreError, match=r"an embedding has .*(all embeddings|check)"):
        await store.replace("a.md", [chunk("a.md", 1, *embedding)])
    with pytest.raises(VectorStoreError):
        await store.search(embedding, 1)

    assert [one.id for one in await store.texts()] == ["a.md#0"]


async def test_collections_do_not_mix(factory, store):
    other = factory("Facts of somebody else's, with a long name: " + "x" * 200)
    await other.open(2)
    await other.replace("a.md", [chunk("a.md", 0, 1, 0)])
    await store.replace("a.md", [chunk("a.md", 5, 1, 0, 0)])
    await other.set_manifest("a.md", "other")

    assert [one.id for one in await other.texts()] == ["a.md#0"]
    assert [one.id for one in await store.texts()] == ["a.md#5"]
    assert await store.manifest() == {}
    await other.close()


async def test_searches_and_changes_at_once_see_whole_documents(store):
    await store.replace("a.md", [chunk("a.md", n, 1, n, 0) for n in range(4)])

    async def search() -> set[str]:
        return {hit.id for hit in await store.search([1, 0, 0], 10)}

    async def change(first: int) -> set[str]:
        await store.replace("a.md", [chunk("a.md", first + n, 1, n, 0) for n in range(4)])
        return set()

    found = await asyncio.gather(*(change(10 * n) if n % 3 else search() for n in range(12)))

    whole = [{f"a.md#{10 * n + i}" for i in range(4)} for n in range(12)]
    assert all(one in whole for one in found if one)


async def test_a_store_is_closed_twice_and_without_being_opened(factory):
    store = factory("facts")
    await store.close()
    await store.open(3)
    await store.close()
    await store.close()


async def test_opening_with_empty_removes_everything_whatever_its_size(factory, store):
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0)])
    await store.set_manifest("a.md", "one")
    await store.close()

    again = factory("facts")
    await again.open(2, empty=True)

    assert await again.texts() == []
    assert await again.manifest() == {}
    await again.replace("a.md", [chunk("a.md", 0, 0, 1)])
    assert len(await again.search([0, 1], 5)) == 1
    await again.close()


@pytest.mark.parametrize("factory", PERSISTENT, indirect=True)
async def test_what_is_stored_is_there_for_the_next_run(factory, store):
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0, page=2)])
    await store.set_manifest("a.md", "one")
    await store.close()

    again = factory("facts")
    await again.open(3)

    assert await again.manifest() == {"a.md": "one"}
    [hit] = await again.search([1, 0, 0], 5)
    assert (hit.id, hit.metadata) == ("a.md#0", {"page": 2})
    await again.close()


@pytest.mark.parametrize("factory", PERSISTENT, indirect=True)
async def test_a_collection_of_another_size_is_an_error_that_names_the_flag(factory, store):
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0)])
    await store.close()

    other = factory("facts")
    with pytest.raises(VectorStoreError, match=r"3 dimensions.* gives 4; .*--force-ingest"):
        await other.open(4)

    await store.open(3)
    assert len(await store.texts()) == 1
    await other.close()


@pytest.mark.parametrize("factory", PERSISTENT, indirect=True)
async def test_a_change_by_another_run_is_found_by_the_next_search(factory, store):
    other = factory("facts")
    await other.open(3)
    await store.replace("a.md", [chunk("a.md", 0, 1, 0, 0)])
    assert [hit.id for hit in await other.search([1, 0, 0], 5)] == ["a.md#0"]

    await store.replace("a.md", [chunk("a.md", 1, 1, 0, 0)])

    assert [hit.id for hit in await other.search([1, 0, 0], 5)] == ["a.md#1"]
    await other.close()
