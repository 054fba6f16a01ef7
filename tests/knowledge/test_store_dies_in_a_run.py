"""A store that dies between two cases of a run: one error row, in time, and no password."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, case
from support.store_servers import PASSWORD

RETURNS = "You may return shoes within thirty days of purchase.\n"


def postgres_database(server, folder):
    address = f"postgresql://tester:{PASSWORD}@127.0.0.1:{server.port}/postgres"
    return {"provider": "postgres", "connection_string": address}


def chroma_database(server, folder):
    address = f"http://me:{PASSWORD}@127.0.0.1:{server.port}"
    return {"provider": "chromadb", "connection_string": address}


@pytest.mark.parametrize(
    ("fixture", "database", "how"),
    [
        ("postgres_server", postgres_database, signal.SIGQUIT),
        ("chroma_server", chroma_database, signal.SIGKILL),
    ],
    ids=["postgres", "chroma"],
)
def test_a_server_that_dies_between_two_cases_is_an_error_row(
    request, tmp_path, fixture, database, how
):
    server = request.getfixturevalue(fixture)
    is_dead = []

    def kill():
        is_dead.append(True)
        server.end(how)

    try:
        ran, error = run_until_second(tmp_path, database(server, tmp_path), kill)
    finally:
        if is_dead:
            server.start()

    assert f"127.0.0.1:{server.port}" in error
    assert PASSWORD not in ran.stdout + ran.stderr + error


def put_garbage(file: Path) -> None:
    (file.parent / "garbage").write_bytes(b"\xff" * 5000)
    (file.parent / "garbage").replace(file)


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (put_garbage, "another file was put in its place during the run"),
        (Path.unlink, "No such file or directory; check the path"),
        (lambda file: shutil.rmtree(file.parent), "No such file or directory; check the path"),
    ],
    ids=["garbage", "deleted", "folder deleted"],
)
def test_an_embedded_store_that_is_lost_between_two_cases_is_an_error_row(tmp_path, lose, said):
    file = tmp_path / "agent/kept/terms.sqlite"
    database = {"provider": "sqlite", "path": "kept/terms.sqlite"}

    _, error = run_until_second(tmp_path, database, lambda: lose(file))

    assert f"sqlite at {file}: {said}" in error


def run_until_second(tmp_path, database, lose):
    """Run two cases that search, with `lose` before the search of the second.

    Return how the command ended, and the error of that search.
    """
    is_lost = []

    def search(one):
        if "second" in one.prompt and not is_lost:
            is_lost.append(True)
            lose()
        return Reply(tool_calls=[("kb", {"query": one.prompt})])

    with FakeOpenAI() as model:
        model.when(lambda one: bool(one.tool_results), lambda one: Reply(one.tool_results[-1]))
        model.otherwise(search)
        folder = AgentFolder(tmp_path / "agent", model)
        folder.write("docs/returns.md", RETURNS)
        tool = {"type": "vectorstore", "name": "kb", "description": "Terms.", "source": "docs"}
        folder.write_agent(
            tools=[{**tool, "database": {**database, "timeout": 5}}],
            test_cases=[
                case("first", "first", contains="thirty days"),
                case("second", "second", contains="thirty days"),
            ],
            backend="chat",
        )
        ran = folder.run("test", "-j", "1", "-o", "out.json")

    written = (folder.path / "out.json").read_text()
    assert PASSWORD not in written
    results = json.loads(written)["results"]
    assert [one["outcome"] for one in results] == ["passed", "failed"]
    [call] = results[1]["tool_invocations"]
    return ran, call["error"]
