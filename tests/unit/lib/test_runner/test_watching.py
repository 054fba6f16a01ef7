"""Played conversations of an agent.yaml are shown, and a person may take part in them."""

import asyncio
import io
import json
from contextlib import redirect_stderr

import pytest

from fakes import ScriptedBackend
from holodeck.errors import BackendSessionError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.conversation.debugger import Debugger
from holodeck.lib.test_runner.events import show_conversations
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome

CASE = {"name": "hungry", "simulate": {"situation": "wants a recipe"}, "criteria": ["is kind"]}
JUDGED = {"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"}


@pytest.fixture
def play(tmp_path, fake_openai):
    """The result of the case, what was shown of it, and what the agent was sent."""
    model = {"provider": "openai", "name": "m", "endpoint": fake_openai.url, "api_key": "k"}
    fields = {"name": "cook", "backend": "bot:Bot", "evaluations": {"model": model}}
    fake_openai.when("what the user writes next", json.dumps({"message": "hi", "done": False}))
    fake_openai.when("# Criteria", json.dumps(JUDGED))

    async def run(on_conversation, case=CASE, backend=None, **limits):
        agent = Agent.model_validate(fields | {"test_cases": [case]})
        backend, stream = backend or ScriptedBackend(), io.StringIO()
        executor = TestExecutor(
            str(tmp_path / "agent.yaml"),
            agent_config=agent,
            resolved_execution_config=ExecutionConfig(
                parallel_test_cases=1, file_timeout=120, **limits
            ),
            backend=backend,
            options=RunOptions(on_conversation=on_conversation),
        )
        with redirect_stderr(stream):
            report = await executor.execute_tests()
        return report.results[0], stream.getvalue(), backend.messages

    return run


class Remembering(ScriptedBackend):
    """May be told what was said before."""

    async def create_session(self, context=None):
        return await super().create_session()

    async def invoke_once(self, message, context=None):
        return await super().invoke_once(message)


def debugged(*lines, takes=0.0):
    """A person who types these lines, and takes so many seconds for each."""
    left = list(lines)

    async def ask(prompt):
        await asyncio.sleep(takes)
        return left.pop(0)

    def attend(talk):
        talk.debugger = Debugger(ask)

    return attend


async def test_the_conversation_is_shown_without_secrets(play):
    _, shown, _ = await play(show_conversations(lambda text: text.replace("kind", "***")))

    lines = [line for line in shown.splitlines() if line]
    assert lines[:2] == ["Scenario: hungry", "User: hi"]
    assert lines[2].startswith("Agent: ")
    assert lines[3:] == ["Judge, passed: is ***: seen"]


async def test_a_person_speaks_for_the_simulated_user(play):
    result, _, heard = await play(debugged("no meat, please"))

    assert heard == ["no meat, please"]
    assert result.turns[0].input == "no meat, please"
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        (["/pass"], Outcome.PASSED),
        (["/fail too dull"], Outcome.FAILED),
    ],
    ids=["pass", "fail"],
)
async def test_a_person_ends_the_case_even_before_it_began(play, lines, outcome):
    result, _, heard = await play(debugged(*lines))

    assert heard == []
    assert result.outcome is outcome
    assert result.ending.code == "by_hand"
    assert result.passed or "too dull" in "\n".join(result.reasons())


async def test_the_time_of_the_case_stands_still_while_a_person_thinks(play):
    result, _, _ = await play(debugged("hello", takes=1.6), case_timeout=1.5)

    assert result.outcome is Outcome.PASSED


CALLED = ExecutionResult(
    response="done",
    tool_calls=[{"name": "look", "arguments": {"q": 1}, "call_id": "a"}],
    tool_results=[{"call_id": "a", "name": "look", "result": [[1]] * 40}],
)


async def test_one_input_is_shown_as_a_conversation_of_one_turn(play):
    case = {"name": "one", "input": "hi", "criteria": ["is kind"]}
    _, shown, _ = await play(show_conversations(), case, ScriptedBackend({"hi": CALLED}))

    lines = [line for line in shown.splitlines() if line]
    assert lines[:4] == [
        "Scenario: one",
        "User: hi",
        'Agent calls look: {"q": 1}',
        "Result of look:",
    ]
    assert lines[-2].endswith(" more lines")
    assert lines[-1] == "Agent: done"


async def test_the_error_of_an_agent_leaves_the_input_shown(play):
    backend = ScriptedBackend({"hi": BackendSessionError("gone")})
    _, shown, _ = await play(show_conversations(), {"name": "one", "input": "hi"}, backend)

    assert [line for line in shown.splitlines() if line] == ["Scenario: one", "User: hi"]


HISTORY = [
    {"role": "user", "content": "where is it?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": {"q": 1}}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    {"role": "assistant", "content": "not here"},
]
PARTS = {
    "input": {"input": "hi"},
    "turns": {"turns": [{"input": "hi"}]},
    "script": {"script": [{"user": "hi"}, "agent", "succeed"]},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
async def test_what_was_said_before_the_case_is_shown_as_such(play, parts):
    case = {"name": "later", "history": HISTORY} | parts
    backend = Remembering({"hi": "ho"})
    _, shown, _ = await play(
        show_conversations(lambda text: text.replace("nothing", "***")), case, backend
    )

    assert [line for line in shown.splitlines() if line] == [
        "Scenario: later",
        "User, earlier: where is it?",
        'Agent calls look, earlier: {"q": 1}',
        "Result of look, earlier: ***",
        "Agent, earlier: not here",
        "User: hi",
        "Agent: ho",
    ]


async def test_written_turns_are_shown_until_one_of_them_breaks(play):
    case = {"name": "two", "turns": [{"input": "hi"}, {"input": "bye"}, {"input": "never"}]}
    found = ExecutionResult(
        response="done",
        tool_calls=[{"name": "look", "arguments": {"q": 1}, "call_id": "a"}],
        tool_results=[{"call_id": "a", "name": "look", "result": "nothing"}],
    )
    backend = ScriptedBackend({"hi": found, "bye": BackendSessionError("gone")})
    result, shown, _ = await play(show_conversations(), case, backend)

    assert result.outcome is Outcome.AGENT_ERROR
    assert [line for line in shown.splitlines() if line] == [
        "Scenario: two",
        "User: hi",
        'Agent calls look: {"q": 1}',
        "Result of look: nothing",
        "Agent: done",
        "User: bye",
    ]
