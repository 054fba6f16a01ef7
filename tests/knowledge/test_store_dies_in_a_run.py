"""A store that dies between two cases of a run: one error row, in time, and no password."""

import json
import signal

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, case
from support.rest_services import KEY
from support.store_servers import PASSWORD

RETURNS = "You may return shoes within thirty days of purchase.\n"


def redis_database(server, folder):
    return {
        "provider": "redis",
        "connection_string": f"redis://:{PASSWORD}@127.0.0.1:{server.port}",
    }


def postgres_database(server, folder):
    address = f"postgresql://tester:{PASSWORD}@127.0.0.1:{server.port}/postgres"
    return {"provider": "postgres", "connection_string": address}


def pinecone_database(server, folder):
    return {"provider": "pinecone", "url": server.url, "api_key": KEY}


@pytest.mark.parametrize(
    ("fixture", "database", "how"),
    [
        ("redis_server", redis_database, signal.SIGKILL),
        ("postgres_server", postgres_database, signal.SIGQUIT),
        ("pinecone_server", pinecone_database, None),
    ],
    ids=["redis", "postgres", "pinecone"],
)
def test_a_server_that_dies_between_two_cases_is_an_error_row(
    request, tmp_path, fixture, database, how
):
    server = request.getfixturevalue(fixture)
    is_dead = []

    def search(one):
        if "second" in one.prompt and not is_dead:
            is_dead.append(True)
            server.end(how)
        return Reply(tool_calls=[("kb", {"query": one.prompt})])

    with FakeOpenAI() as model:
        model.when(lambda one: bool(one.tool_results), lambda one: Reply(one.tool_results[-1]))
        model.otherwise(search)
        folder = AgentFolder(tmp_path / "agent", model)
        folder.write("docs/returns.md", RETURNS)
        tool = {"type": "vectorstore", "name": "kb", "description": "Terms.", "source": "docs"}
        folder.write_agent(
            tools=[{**tool, "database": {**database(server, folder.path), "timeout": 5}}],
            test_cases=[
                case("first", "first", contains="thirty days"),
                case("second", "second", contains="thirty days"),
            ],
            backend="chat",
        )
        try:
            ran = folder.run("test", "-j", "1", "-o", "out.json")
        finally:
            if is_dead:
                server.start()

    results = json.loads((folder.path / "out.json").read_text())["results"]
    assert [one["outcome"] for one in results] == ["passed", "failed"]
    [call] = results[1]["tool_invocations"]
    assert f"127.0.0.1:{server.port}" in call["error"]
    shown = ran.stdout + ran.stderr + (folder.path / "out.json").read_text()
    assert PASSWORD not in shown
    assert KEY not in shown
