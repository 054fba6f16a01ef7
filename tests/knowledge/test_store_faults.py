"""Stores that fail: one error with the store's name and what to change, within the time limit."""

import sqlite3

import pytest

from holodeck.errors import ConfigError, VectorStoreError
from holodeck.lib.knowledge.stores.base import Chunk
from support.vector_stores import StoreFactory

ONE_CHUNK = [Chunk("1", "a.md", "text", [1, 0, 0], {})]


@pytest.fixture
def factory(tmp_path) -> StoreFactory:
    return StoreFactory(tmp_path, provider="sqlite", path="knowledge.sqlite")


async def test_a_damaged_file_is_an_error_that_says_to_delete_it(factory, tmp_path):
    file = tmp_path / "knowledge.sqlite"
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)

    with pytest.raises(VectorStoreError, match=r"sqlite at .*knowledge\.sqlite: .*delete it"):
        await factory("facts").open(3)


async def test_a_file_damaged_in_the_middle_is_an_error(factory, tmp_path):
    store = factory("facts")
    await store.open(3)
    await store.replace("a.md", ONE_CHUNK * 500)
    await store.close()
    file = tmp_path / "knowledge.sqlite"
    data = bytearray(file.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    file.write_bytes(data)

    with pytest.raises(VectorStoreError, match="the file is damaged"):
        await store.open(3)


async def test_the_database_of_another_program_is_left_alone(factory, tmp_path):
    with sqlite3.connect(tmp_path / "knowledge.sqlite") as other:
        other.execute("CREATE TABLE chunks (mine)")
    before = (tmp_path / "knowledge.sqlite").read_bytes()

    with pytest.raises(VectorStoreError, match="database of another program"):
        await factory("facts").open(3)

    assert (tmp_path / "knowledge.sqlite").read_bytes() == before


async def test_a_file_of_another_version_is_an_error(factory, tmp_path):
    store = factory("facts")
    await store.open(3)
    await store.close()
    with sqlite3.connect(tmp_path / "knowledge.sqlite") as file:
        file.execute("PRAGMA user_version = 99")

    with pytest.raises(VectorStoreError, match=r"format 99.*delete it"):
        await store.open(3)


async def test_a_file_that_another_process_keeps_locked_is_an_error(tmp_path):
    config = {"provider": "sqlite", "path": "knowledge.sqlite", "timeout": 4}
    store = StoreFactory(tmp_path, **config)("facts")
    await store.open(3)
    other = sqlite3.connect(tmp_path / "knowledge.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(VectorStoreError, match="locked for"):
        await store.replace("a.md", ONE_CHUNK)

    other.close()
    await store.replace("a.md", ONE_CHUNK)
    await store.close()


async def test_a_folder_that_cannot_be_made_is_an_error(factory, tmp_path):
    (tmp_path / "cache").write_text("a file")
    embedded = StoreFactory(tmp_path, provider="sqlite")

    with pytest.raises(VectorStoreError, match="check the path"):
        await embedded("facts").open(3)


async def test_a_store_that_is_not_open_is_an_error(factory):
    with pytest.raises(VectorStoreError, match="not open"):
        await factory("facts").texts()


async def test_a_chunk_of_another_document_is_an_error(factory):
    store = factory("facts")
    await store.open(3)

    with pytest.raises(VectorStoreError, match=r"belongs to 'a\.md', not 'b\.md'"):
        await store.replace("b.md", ONE_CHUNK)

    await store.close()


def test_a_path_outside_of_the_folder_is_an_error(tmp_path):
    factory = StoreFactory(tmp_path, provider="sqlite", path="../elsewhere.sqlite")

    with pytest.raises(ConfigError, match=r"outside of the agent's folder.*--allow-outside"):
        factory("facts")
