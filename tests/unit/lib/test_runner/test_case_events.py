"""Whoever listens to a run of an agent.yaml hears what happens in every case, and harms none."""

import asyncio
import json
import os
import threading
import time

import pytest

from fakes import ScriptedBackend, run_cli
from holodeck.config.loader import ConfigLoader
from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.conversation.events import MessageAdded, RunFinished, RunStarted
from holodeck.lib.test_runner.executor import TestExecutor
from support.agents import an_agent, contains, executor_of

CALLED = ExecutionResult(
    response="OK",
    tool_calls=[{"name": "look", "arguments": {"at": "shoes"}, "call_id": "1"}],
    tool_results=[{"name": "look", "result": "red", "call_id": "1"}],
)
SAYS_HI = json.dumps({"message": "hi", "done": False})
JUDGED = json.dumps({"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"})
ONE = {"name": "one", "input": "hello", "evaluations": [contains("OK")]}
EXCHANGE = ["run_started", "message", "message"]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def types_in(path):
    return [line["type"] for line in lines_of(path)]


@pytest.fixture
def run(tmp_path):
    """Runs cases with a file for events; gives its lines."""
    path = tmp_path / "events.jsonl"

    async def call(*cases, backend=None, on_event=None):
        executor = executor_of(
            tmp_path,
            an_agent(*cases),
            backend or ScriptedBackend(),
            settings={"events": str(path)},
            on_event=on_event,
        )
        await executor.execute_tests()
        return lines_of(path)

    return call


@pytest.fixture
def judge(fake_openai):
    fake_openai.when("what the user writes next", SAYS_HI).when("# Criteria", JUDGED)
    model = {"provider": "openai", "name": "m", "endpoint": fake_openai.url, "api_key": "k"}
    return {"evaluations": {"model": model}}


async def test_a_case_of_one_input_is_told_from_its_input_to_its_verdict(run):
    lines = await run(
        ONE | {"id": "c-1", "suite": "shop"}, backend=ScriptedBackend({"hello": CALLED})
    )

    assert [one["type"] for one in lines] == [
        "run_started", "message", "message", "message", "message", "run_finished",
    ]  # fmt: skip
    named = ("scenario_id", "scenario_set_id", "case_id", "agent_name")
    assert {tuple(one[key] for key in named) for one in lines} == {
        ("one", "shop", "c-1", "scripted")
    }
    assert len({one["scenario_run_id"] for one in lines}) == 1
    said = [one["message"] for one in lines if one["type"] == "message"]
    assert [one["role"] for one in said] == ["user", "assistant", "tool", "assistant"]
    assert said[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "shoes"}'}
    assert said[2]["content"] == "red"
    assert [one["index"] for one in lines if one["type"] == "message"] == [0, 1, 2, 3]
    assert (lines[-1]["status"], lines[-1]["result"]["outcome"]) == ("SUCCESS", "passed")
    assert lines[-1]["result"]["metrics"][0]["score"] == 1
    assert "messages" not in lines[-1]["result"]


async def test_turns_are_told_one_after_the_other(run):
    turns = [{"input": "a", "evaluations": [contains("OK")]}, {"input": "b"}]
    lines = await run({"name": "two", "turns": turns})

    said = [(one["message"]["content"], one["turn"]) for one in lines if "message" in one]
    assert said == [("a", 0), ("OK: a", 0), ("b", 1), ("OK: b", 1)]
    assert [one["type"] for one in lines][::5] == ["run_started", "run_finished"]


@pytest.mark.parametrize(
    "case",
    [
        {"name": "n", "simulate": {"situation": "wants a recipe"}, "criteria": ["is kind"]},
        {"name": "n", "turns": [{"input": "hi"}], "criteria": ["is kind"]},
        {"name": "n", "input": "hi", "criteria": ["is kind"]},
        {"name": "n", "script": [{"user": "hi"}, "agent"], "criteria": ["is kind"]},
        {"name": "n", "script": [{"user": "hi"}, "agent", "succeed"], "criteria": ["is kind"]},
        {"name": "n", "script": [{"user": "hi"}, "agent", {"judge": ["is kind"]}]},
    ],
    ids=["simulate", "turns", "input", "script", "script that succeeds", "checkpoint"],
)
async def test_verdicts_on_criteria_are_told_once_whatever_the_kind_of_case(tmp_path, judge, case):
    heard = []
    agent = an_agent(case, **judge)
    executor = executor_of(tmp_path, agent, ScriptedBackend(), on_event=heard.append)
    await executor.execute_tests()

    assert [type(one).__name__ for one in heard] == [
        "RunStarted", "MessageAdded", "MessageAdded", "CriterionJudged", "RunFinished",
    ]  # fmt: skip
    assert len({one.scenario_run_id for one in heard}) == 1
    assert heard[3].verdict.reasoning == "seen"
    assert heard[4].result.passed_criteria == ["is kind"]
    [row] = heard[4].result.criteria
    assert row.is_checkpoint is ("criteria" not in case)


@pytest.mark.parametrize(
    ("answer", "status", "outcome", "told"),
    [
        ("NO", "FAILED", "failed", "contains"),
        (BackendSessionError("gone"), "ERROR", "agent_error", "gone"),
    ],
    ids=["failed", "broken"],
)
async def test_the_end_tells_how_and_why(run, answer, status, outcome, told):
    lines = await run(ONE, backend=ScriptedBackend({"hello": answer}))

    assert (lines[-1]["status"], lines[-1]["result"]["outcome"]) == (status, outcome)
    assert told in lines[-1]["result"]["reasoning"]


async def test_each_repetition_of_a_case_is_a_run_of_its_own(run):
    lines = await run(ONE | {"repeat": 3})

    assert [one["type"] for one in lines].count("run_finished") == 3
    assert len({one["scenario_run_id"] for one in lines}) == 3


async def test_a_message_is_in_the_file_before_the_agent_answers(tmp_path):
    path, seen = tmp_path / "events.jsonl", []

    async def look(_):
        deadline = time.monotonic() + 60
        while seen != ["run_started", "message"] and time.monotonic() < deadline:
            await asyncio.sleep(0)
            seen[:] = types_in(path)
        return "OK"

    backend = ScriptedBackend(look)
    executor = executor_of(tmp_path, an_agent(ONE), backend, settings={"events": str(path)})
    await executor.execute_tests()

    assert seen == ["run_started", "message"]
    assert types_in(path) == [*EXCHANGE, "run_finished"]


async def test_a_run_that_is_cancelled_says_so(tmp_path):
    path, begun = tmp_path / "events.jsonl", asyncio.Event()

    async def hang(_):
        begun.set()
        await asyncio.Event().wait()

    backend = ScriptedBackend(hang)
    executor = executor_of(tmp_path, an_agent(ONE), backend, settings={"events": str(path)})
    running = asyncio.create_task(executor.execute_tests())
    await begun.wait()
    running.cancel()
    await asyncio.wait({running})

    assert types_in(path) == ["run_started", "message", "run_finished"]
    assert lines_of(path)[-1]["status"] == "CANCELLED"


async def test_a_listener_that_fails_harms_neither_the_run_nor_the_file(run, caplog):
    def fail(_):
        raise OSError("no more")

    lines = await run(ONE, on_event=fail)

    assert [one["type"] for one in lines] == [*EXCHANGE, "run_finished"]
    assert "a listener failed at RunStarted" in caplog.text


async def test_a_listener_that_hangs_is_waited_for_once_and_not_in_every_case(run, hang):
    cases = [ONE | {"name": f"n{at}"} for at in range(70)]

    lines = await run(*cases, on_event=hang)  # which would fail if it took a second a case

    assert [one["type"] for one in lines].count("run_finished") == 70


async def test_a_function_hears_events(tmp_path):
    heard = []
    executor = executor_of(tmp_path, an_agent(ONE), ScriptedBackend(), on_event=heard.append)
    await executor.execute_tests()

    assert [type(one) for one in heard] == [RunStarted, MessageAdded, MessageAdded, RunFinished]


async def test_no_thread_is_started_where_nobody_listens(tmp_path):
    names = set()

    def note(_):
        names.update(thread.name for thread in threading.enumerate())
        return "OK"

    await executor_of(tmp_path, an_agent(ONE), ScriptedBackend(note)).execute_tests()

    assert names
    assert "holodeck-events" not in names


@pytest.mark.parametrize("name", ["missing/events.jsonl", "pipe"])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")  # nobody reads from it

    with pytest.raises(ConfigError, match="cannot write to"):
        executor_of(
            tmp_path, an_agent(ONE), ScriptedBackend(), settings={"events": str(tmp_path / name)}
        )


BOT = "def answer(text):\n    return 'OK'\n"
AGENT = """
name: NAME
backend: "bot:answer"
test_cases:
  - {name: one, input: "key sk-1234567890abcdefgh", evaluations: [{metric: contains, value: OK}]}
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bot.py").write_text(BOT)
        (tmp_path / name / "agent.yaml").write_text(AGENT.replace("NAME", name))
    return tmp_path


def test_all_agents_of_a_call_append_to_the_same_file_under_their_records(folder):
    ran = run_cli("test", "a", "b", "--events", "events.jsonl", cwd=folder)

    lines = lines_of(folder / "events.jsonl")
    runs = {one: folder / one / ".holodeck" / "runs" for one in ("a", "b")}
    assert ran.code == 0, ran.stderr
    assert [one["type"] for one in lines] == [*EXCHANGE, "run_finished"] * 2
    assert [one["agent_name"] for one in lines] == ["a"] * 4 + ["b"] * 4
    assert all((runs[one["agent_name"]] / one["run_id"] / "run.jsonl").exists() for one in lines)
    assert "sk-1234567890abcdefgh" not in (folder / "events.jsonl").read_text()


def test_a_path_in_a_file_starts_from_the_folder_of_the_agent(folder):
    file = folder / "a" / "agent.yaml"
    file.write_text(file.read_text() + "execution: {events: e.jsonl}\n")
    executor = TestExecutor(str(file))

    assert executor.config.source_of("events").startswith(str(file))
    assert (folder / "a" / "e.jsonl").exists()


def test_a_variable_starts_from_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOLODECK_EVENTS", "e.jsonl")
    TestExecutor("a/agent.yaml", config_loader=ConfigLoader())

    assert (folder / "e.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--events", "no/e.jsonl"), "--events: cannot write to"),
        (("--dry-run", "--events", "e.jsonl"), "--dry-run runs nothing; remove --events"),
        (("--events", " "), "--events"),
    ],
    ids=["no folder", "plan", "blank"],
)
def test_events_that_cannot_be_told_are_refused(folder, args, told):
    ran = run_cli("test", "a", *args, cwd=folder)

    assert ran.code == 2
    assert told in ran.stderr
    assert not (folder / "a" / ".holodeck").exists()
