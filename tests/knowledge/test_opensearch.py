"""Keyword search in OpenSearch: an index that follows the chunks, and faults."""

import sys
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from fakes import AgentFolder, FakeOpenAI, Reply, case
from holodeck.errors import MissingExtra, VectorStoreError
from holodeck.lib.knowledge.opensearch import OpenSearchIndex
from holodeck.models.tools.knowledge import KeywordIndexConfig
from support.opensearch_service import PASSWORD, USER, OpenSearchService
from support.rest_services import KEY
from support.store_servers import free_port


@pytest.fixture
def server() -> Iterator[OpenSearchService]:
    with OpenSearchService() as service:
        yield service


def settings(server: OpenSearchService, **more) -> dict:
    access = {} if "api_key" in more else {"username": USER, "password": PASSWORD}
    named = {"provider": "opensearch", "endpoint": server.url, "index_name": "terms"}
    return {**named, **access, **more}


@pytest.fixture
def open_index(server):
    def build(owner="kb_1", **more) -> OpenSearchIndex:
        config = KeywordIndexConfig.model_validate(settings(server, **more))
        return OpenSearchIndex(config, owner)

    return build


async def test_the_best_texts_are_found_and_the_index_follows_the_chunks(server, open_index):
    index = open_index()
    await index.build(["red shoes", "blue hats", "red hats"])
    assert await index.search("red hats", 2) == [(2, 2.0), (0, 1.0)]
    calls = len(server.calls)

    again = open_index(api_key=KEY)
    await again.build(["red shoes", "blue hats", "red hats"])
    assert len(server.calls) == calls + 1  # nothing has changed
    await again.build(["green socks"])

    assert await again.search("green", 5) == [(0, 1.0)]
    assert await again.search("red", 5) == []
    index.close()
    again.close()


async def test_an_index_that_was_not_finished_is_made_anew(server, open_index):
    index = open_index()
    await index.build(["one"])
    server.indexes["terms"].mappings["_meta"] = {"holodeck": {"owner": "kb_1"}}
    server.indexes["terms"].added.clear()

    await index.build(["one"])

    assert await index.search("one", 1) == [(0, 1.0)]
    index.close()


@pytest.mark.parametrize("meta", [{"holodeck": {"owner": "other_2"}}, {}])
async def test_the_index_of_another_tool_or_program_is_left_alone(server, open_index, meta):
    index = open_index()
    await index.build(["one"])
    server.indexes["terms"].mappings["_meta"] = meta

    with pytest.raises(VectorStoreError, match="of another tool or program; write another"):
        await index.build(["two"])

    assert [one["text"] for one in server.indexes["terms"].added.values()] == ["one"]
    index.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"password": "wrong-secret"}, r"rejects the credentials .*change 'password'"),
        ({"api_key": "wrong-secret"}, r"rejects the credentials .*change 'api_key'"),
        ({"endpoint": "http://127.0.0.1:PORT"}, "cannot be reached"),
    ],
)
async def test_a_server_that_cannot_be_used_is_an_error(open_index, changes, message):
    changes = {key: one.replace("PORT", str(free_port())) for key, one in changes.items()}
    index = open_index(**changes)

    with pytest.raises(VectorStoreError, match=message) as raised:
        await index.build(["one"])

    assert str(raised.value).startswith("keyword index opensearch at 127.0.0.1:")
    assert "wrong-secret" not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    index.close()


def test_the_missing_client_is_an_error_with_the_command(open_index, monkeypatch):
    monkeypatch.setitem(sys.modules, "opensearchpy", None)

    with pytest.raises(MissingExtra, match=r"keyword index opensearch: needs .*\bopensearch\W*$"):
        open_index()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"endpoint": None}, "'endpoint' is missing"),
        ({"index_name": None}, "'index_name' is missing"),
        ({"endpoint": "https://me:secret@host"}, "'endpoint' is no address"),
        ({"api_key": "x", "username": "me"}, "'api_key' and 'username' are both set"),
        ({"username": None}, "'username' is missing"),
        ({"provider": "in-memory"}, "has no effect in memory; add 'provider: opensearch'"),
    ],
)
def test_settings_that_do_not_fit_together_are_errors(server, changes, message):
    with pytest.raises(ValidationError, match=message):
        KeywordIndexConfig.model_validate({**settings(server), **changes})


def test_an_agent_searches_with_it_and_a_server_that_dies_is_an_error_row(server, tmp_path):
    def ask(one):
        if "second" in one.prompt:
            server.end()
        return Reply(tool_calls=[("kb", {"query": one.prompt})])

    with FakeOpenAI() as model:
        model.when(lambda one: bool(one.tool_results), lambda one: Reply(one.tool_results[-1]))
        model.otherwise(ask)
        folder = AgentFolder(tmp_path / "agent", model)
        folder.write("docs/terms.md", "# Shoes\n\nThirty days.\n\n# Hats\n\nNever back.\n")
        tool = {"type": "hierarchical_document", "name": "kb", "description": "Terms."}
        quiet = {"contextual_embeddings": False, "search_mode": "keyword", "top_k": 1}
        folder.write_agent(
            tools=[{**tool, **quiet, "source": "docs", "keyword_index": settings(server)}],
            test_cases=[case("first", "hats", contains="Never"), case("second", "second hats")],
            backend="chat",
        )

        ran = folder.run("test", "-j", "1", "-o", "out.json")

    shown = ran.stdout + ran.stderr + (folder.path / "out.json").read_text()
    assert "PASS first" in ran.stdout, shown
    assert "keyword index opensearch at 127.0.0.1" in shown
    assert PASSWORD not in shown
