"""Ctrl-C in the middle of a run: what had finished is reported, and the end comes quickly."""

import json
import re
import socket

import pytest

from fakes import case, run_cli, start_cli
from support.a2a_service import Support, serving_a2a
from support.checks import assert_plain, results_in

CASES = [
    case("done", "say hello", contains="hello"),
    case("under way", "hang for ever", contains="hello"),
    case("never begun", "say hello", contains="hello"),
]
OUTPUT = ("-o", "report.md", "-o", "report.json")


@pytest.fixture
def hanging(agent_dir):
    agent_dir.server.when("hang", fault="hang").otherwise("hello")
    agent_dir.write_agent(test_cases=CASES, execution={"parallel_test_cases": 1})
    return agent_dir


def test_an_interrupted_run_ends_at_once_and_reports_what_had_finished(hanging):
    with start_cli("test", *OUTPUT, cwd=hanging.path, from_nothing=True) as run:
        hanging.server.wait_for_requests(2)
        run.interrupt()
        ran = run.finish()  # the model never answers

    assert_plain(ran)
    assert ran.code == 130
    assert ran.stderr.startswith("Interrupted")
    assert "[Test 1/3] PASS done" in ran.stdout
    assert "Not run: 2" in ran.stdout
    assert "**Interrupted: 1 of 3 tests ran.**" in (hanging.path / "report.md").read_text()
    assert list(results_in(hanging.path / "report.json")) == ["done"]
    assert hanging.server.requests[-1].prompt == "hang for ever"


def test_an_interrupted_run_cancels_the_task_of_an_a2a_agent(bot_dir):
    agent = Support()
    with serving_a2a(streaming=False, agent=agent) as url:
        cases = [{"name": "under way", "turns": [{"input": "ask"}, {"input": "hang"}]}]
        config = {"name": "support", "backend": {"type": "a2a", "url": url}, "test_cases": cases}
        bot_dir.write("agent.yaml", json.dumps(config))
        with start_cli("test", cwd=bot_dir.path) as run:
            assert agent.is_working.wait(180)
            run.interrupt()
            ran = run.finish()

        assert agent.is_canceled.wait(60)
    assert_plain(ran)
    assert ran.code == 130


def test_an_interrupted_run_closes_the_session_of_a_service(agent_dir):
    server = agent_dir.server
    server.when(lambda request: request.path == "/sessions", json={"id": "s1"})
    server.when(lambda request: request.method == "DELETE", json={}).otherwise(fault="hang")
    session = {
        "create": {"url": f"{server.root}/sessions", "id": "id"},
        "close": {"url": f"{server.root}/sessions/{{session_id}}"},
    }
    url = f"{server.root}/sessions/{{session_id}}/messages"
    backend = {"type": "http", "url": url, "session": session}
    agent_dir.write_agent(model=None, instructions=None, backend=backend, test_cases=CASES[:1])

    with start_cli("test", cwd=agent_dir.path) as run:
        server.wait_for_requests(2)
        run.interrupt()
        ran = run.finish()

    assert_plain(ran)
    assert ran.code == 130
    methods = [(request.method, request.path) for request in server.requests]
    assert methods[-1] == ("DELETE", "/sessions/s1"), methods


def test_a_second_ctrl_c_ends_the_run_even_where_the_first_cannot(bot_dir, write_bot):
    stubborn = """
import asyncio, signal

async def answer(message):
    while True:
        try:
            print("working", flush=True)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("not now", flush=True)
"""
    bot_dir.write("bot.py", stubborn)
    write_bot(test_cases=[case("stubborn", "hello", contains="hello")])

    with start_cli("test", "--timeout", "50", cwd=bot_dir.path) as run:
        read_until(run.stdout, b"working\n")
        run.interrupt()
        read_until(run.stdout, b"not now\n")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "Traceback" not in ran.stderr
    assert "press Ctrl-C again to abort" in ran.stderr


def read_until(stream, line):
    while (read := stream.readline()) != line:
        assert read, f"{line!r} never came"


INTERRUPTING = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "{module}":
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
"""


@pytest.mark.parametrize(
    "module",
    [
        "holodeck.cli",
        "click",
        "typing",
        "holodeck.cli.context",
        "holodeck.lib.processes.process_exit",
        "holodeck.cli.options",
        "holodeck.config.loader",
        "pydantic",
    ],
)
def test_ctrl_c_while_the_program_is_imported_prints_no_traceback(agent_dir, tmp_path, module):
    agent_dir.write_agent(test_cases=CASES)
    folder = tmp_path / "at_start"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(INTERRUPTING.format(module=module))

    with start_cli("test", cwd=agent_dir.path, env={"PYTHONPATH": str(folder)}) as run:
        ran = run.finish()

    assert (ran.code, ran.stderr.strip()) == (130, "Interrupted")


WRAPPING = """
import sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "pydantic":
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

sys.addaudithook(interrupt)
"""


def test_ctrl_c_while_a_class_is_created_is_no_internal_error(agent_dir, tmp_path):
    agent_dir.write_agent(test_cases=CASES)
    folder = tmp_path / "at_start"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WRAPPING)

    with start_cli("test", cwd=agent_dir.path, env={"PYTHONPATH": str(folder)}) as run:
        ran = run.finish()

    assert (ran.code, ran.stderr.strip()) == (130, "Interrupted")


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_a_collector_that_never_answers_does_not_delay_ctrl_c(hanging, workers):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and no more
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        telemetry = {"enabled": True, "exporters": {"otlp": {"endpoint": url}}}
        hanging.write_agent(test_cases=CASES, observability=telemetry)
        with start_cli("test", *workers, cwd=hanging.path) as run:
            hanging.server.wait_for_requests(2)
            run.interrupt()
            ran = run.finish()

    assert ran.code == 130
    # not the five seconds of a run that ends by itself
    assert re.search(r"could not be delivered within 0\.5 s; the rest is dropped", ran.stderr)
    assert "within 5 s" not in ran.stderr


def test_what_was_recorded_before_the_interruption_is_kept(hanging):
    with start_cli("test", "--record", cwd=hanging.path) as run:
        hanging.server.wait_for_requests(2)
        run.interrupt()
        ran = run.finish()
    folder = hanging.path / "recordings" / "agent"
    again = run_cli("test", "--replay", "-k", "done", cwd=hanging.path)

    assert ran.code == 130
    assert sorted(file.name for file in folder.iterdir()) == ["done.json", "index.json"]
    assert json.loads((folder / "index.json").read_text()).keys() == {"done.json"}
    assert again.code == 0
