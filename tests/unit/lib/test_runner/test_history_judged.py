"""What judges and simulated users make of an earlier conversation."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from fakes import ScriptedBackend
from holodeck.lib.records.run_store import Run
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.records.record import CaseFinished
from support.rescore import rescore

JUDGE, USER = "# Criteria", "what the user writes next"
HISTORY = [
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": "On its way."},
]
MARKED = "[1] before this, user: Where is it?\n[2] before this, assistant: On its way.\n"
PASSED = json.dumps({"c1": {"reasoning": "ok", "status": "passed"}, "decision": "verdict"})


def an_agent(server, folder=None, **case):
    model = {"provider": "openai", "name": "m", "endpoint": server.url, "api_key": "k"}
    case = {"history": HISTORY, "criteria": ["Helps"]} | case
    raw = {"name": "scripted", "backend": "bot:Bot", "test_cases": [case]}
    agent = Agent.model_validate(raw | {"evaluations": {"model": model}})
    return agent if folder is None else agent.with_base_dir(folder)


@pytest.fixture
def run_one(tmp_path, fake_openai):
    async def run(backend, **case):
        agent = an_agent(fake_openai, tmp_path, **case)
        executor = TestExecutor(str(tmp_path / "agent.yaml"), agent_config=agent, backend=backend)
        return (await executor.execute_tests()).results[0]

    return run


def prompts(server, mark):
    return [one.prompt for one in server.requests if mark in one.prompt]


@pytest.mark.parametrize(
    ("said", "first"),
    [({"input": "And now?"}, "[3] user: And now?"), ({"turns": [{"input": "a"}]}, "[3] user: a")],
    ids=["input", "turns"],
)
async def test_the_judge_of_criteria_reads_what_was_said_before_as_such(
    run_one, fake_openai, said, first
):
    fake_openai.when(JUDGE, PASSED)

    result = await run_one(ScriptedBackend(), **said)

    assert result.passed
    assert MARKED + first in prompts(fake_openai, JUDGE)[0]


async def test_a_simulated_user_goes_on_from_what_was_said_before(run_one, fake_openai):
    fake_openai.when(USER, json.dumps({"message": "and now?", "done": False}))
    fake_openai.when(JUDGE, PASSED)
    backend = ScriptedBackend()

    result = await run_one(backend, simulate={"situation": "waits", "opening": "Hello again"})

    [call] = backend.calls
    assert (call.message, [one["content"] for one in call.context]) == (
        "Hello again", ["Where is it?", "On its way."],
    )  # fmt: skip
    assert result.passed
    assert [one.input for one in result.turns] == ["Hello again"]
    assert result.messages == []
    assert MARKED + "[3] user: Hello again" in prompts(fake_openai, JUDGE)[0]


async def test_a_simulated_user_is_shown_what_was_said_before(run_one, fake_openai):
    fake_openai.when(USER, json.dumps({"message": "and now?", "done": False}))
    fake_openai.when(JUDGE, PASSED)
    backend = ScriptedBackend()

    await run_one(backend, simulate={"situation": "waits"})

    assert "USER: Where is it?\nASSISTANT: On its way." in prompts(fake_openai, USER)[0]
    assert backend.messages == ["and now?"]


async def test_criteria_are_judged_again_with_what_was_said_before(run_one, fake_openai):
    fake_openai.when(JUDGE, PASSED)
    held = await run_one(ScriptedBackend(), input="And now?")
    finished = {0: CaseFinished(index=0, hash="x", result=held)}
    run = Run(path=Path("run.jsonl"), started=None, finished=finished, ended=None)

    graded = await rescore(an_agent(fake_openai, input="And now?"), run)

    assert graded.report.results[0].passed
    assert [MARKED in one for one in prompts(fake_openai, JUDGE)] == [True, True]


async def test_a_script_goes_on_from_what_was_said_before(run_one, tmp_path):
    (tmp_path / "seen.py").write_text("def four(seen):\n    return len(seen.turns) == 4\n")
    backend = ScriptedBackend()
    four = {"metric": "seen:four", "threshold": 1}

    result = await run_one(
        backend,
        criteria=None,
        script=[{"user": "And now?"}, "agent", {"check": {"evaluations": [four]}}, "succeed"],
    )

    assert [len(call.context) for call in backend.calls] == [2]
    assert result.passed
    assert [one.input for one in result.turns] == ["And now?"]


async def test_a_script_whose_agent_has_nothing_to_answer_after_the_history_is_refused(run_one):
    backend = ScriptedBackend()

    with pytest.raises(ValidationError, match=r"'script\[0\]': 'agent' has .* write a 'user' step"):
        await run_one(backend, criteria=None, script=["agent", "succeed"])

    assert backend.calls == []


def test_the_agent_cannot_speak_first_where_it_has_spoken_last(fake_openai):
    with pytest.raises(ValidationError, match=r"'simulate\.agent_first': the agent"):
        an_agent(fake_openai, simulate={"situation": "waits", "agent_first": True})


async def test_every_repetition_begins_with_what_was_said_before(run_one, fake_openai):
    fake_openai.when(JUDGE, PASSED)
    backend = ScriptedBackend()

    result = await run_one(backend, input="And now?", repeat=2)

    assert [len(call.context) for call in backend.calls] == [2, 2]
    assert [len(one.history) for one in (result, *result.repeats.runs)] == [2, 2, 2]
