"""Messages: who gets which, what participants may return, and what results contain."""

# ruff: noqa: A002 - `input` is what adapters call it

import asyncio
import copy
import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from holodeck import scenario
from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.events import MessageAdded
from holodeck.lib.llm.model import ChatResponse, record_response
from holodeck.models.token_usage import TokenUsage
from holodeck.scenario import AgentRole, ScenarioExecutor, ScenarioResult
from support.participants import Scripted, a_judge, a_user, an_agent, texts_of

CALL = {
    "role": "assistant",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    ],
}
FOUND = {"role": "tool", "tool_call_id": "1", "content": "42"}


def executor(*agents, script=None, **settings):
    return ScenarioExecutor("case", "a situation", list(agents), script, **settings)


async def test_everybody_but_the_author_hears_a_message():
    user, agent, judge = a_user("q1", "q2"), an_agent("a1", "a2"), a_judge()

    await executor(user, agent, judge, max_turns=2).run()

    assert [texts_of(one.new_messages) for one in agent.inputs] == [["q1"], ["q2"]]
    assert [texts_of(one.new_messages) for one in user.inputs] == [[], ["a1"]]
    assert [texts_of(one.new_messages) for one in judge.inputs] == [["q1", "a1"], ["q2", "a2"]]
    assert texts_of(agent.inputs[1].messages) == ["q1", "a1", "q2"]


async def test_fixed_content_is_new_to_its_own_role_until_it_is_called():
    user = a_user("u1")
    system = {"role": "system", "content": "hurry"}
    steps = [
        scenario.user("fixed"),
        scenario.agent("canned"),
        lambda state: state.add_message(system),
        scenario.user(),
        scenario.succeed(),
    ]

    await executor(user, an_agent(), script=steps).run()

    assert texts_of(user.inputs[0].new_messages) == ["fixed", "canned", "hurry"]


async def test_a_queue_is_empty_only_after_its_owner_was_called():
    user, agent = a_user("u1"), an_agent("a1")
    steps = [scenario.user(), scenario.agent("canned"), scenario.user("again"), scenario.agent()]

    await executor(user, agent, script=steps).run()

    assert texts_of(agent.inputs[0].new_messages) == ["u1", "canned", "again"]


@pytest.mark.parametrize("content", ["q", [{"type": "text", "text": "q"}]], ids=["flat", "deep"])
async def test_what_is_handed_out_are_copies(content):
    def spoil(given):
        given.messages[0]["content"] = "spoilt"
        given.messages.clear()
        given.new_messages[0]["content"] = "spoilt"
        given.scenario_state.messages.clear()
        return "a"

    own = {"role": "user", "content": copy.deepcopy(content)}
    steps = [scenario.user(own), scenario.agent(), scenario.succeed()]
    result = await executor(a_user(), an_agent(spoil), script=steps).run()
    if isinstance(own["content"], list):
        own["content"][0]["text"] = "spoilt"
    own["content"] = "spoilt"

    assert result.messages[0] == {"role": "user", "content": content}
    assert len(result.messages) == 2


async def test_a_new_user_message_is_at_hand():
    agent = an_agent("a")
    steps = [scenario.user("one"), scenario.agent(), scenario.agent(), scenario.succeed()]

    await executor(a_user(), agent, script=steps).run()

    assert agent.inputs[0].last_new_user_message_str() == "one"
    with pytest.raises(ValueError, match="no new message"):
        agent.inputs[1].last_new_user_message_str()


async def test_a_user_message_that_is_not_a_text_is_an_error():
    agent = an_agent("a")
    steps = [scenario.user({"role": "user", "content": [{"type": "image"}]}), scenario.agent()]

    await executor(a_user(), agent, script=steps).run()

    with pytest.raises(ValueError, match="not a text"):
        agent.inputs[0].last_new_user_message_str()


class Answer(BaseModel):
    """A message as clients of providers have it."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] = []


@dataclass
class Message:
    """A library's own message."""

    role: str = "assistant"
    content: str = "dumped"
    unset: dict[str, Any] = field(default_factory=dict)

    def model_dump(self, **options):
        assert options == {"exclude_none": True}
        return {"content": self.content}


RETURNED = {
    "text": ("hi", [{"role": "assistant", "content": "hi"}]),
    "empty text": ("", [{"role": "assistant", "content": ""}]),
    "message": ({"role": "assistant", "content": "x"}, [{"role": "assistant", "content": "x"}]),
    "tool call and result": ([CALL, FOUND], [CALL, FOUND]),
    "object": (Message(), [{"role": "assistant", "content": "dumped"}]),
    "model": (Answer(content="x", refusal=None), [{"role": "assistant", "content": "x"}]),
    "texts": (["one", "two"], [{"role": "assistant", "content": one} for one in ("one", "two")]),
    "roles are not checked": ({"role": "user", "content": "x"}, [{"role": "user", "content": "x"}]),
    "nothing": ([], []),
}  # fmt: skip


@pytest.mark.parametrize(("returned", "messages"), RETURNED.values(), ids=RETURNED)
async def test_answers_become_messages(returned, messages):
    result = await executor(an_agent(returned), max_turns=1).run()

    assert result.messages == messages


class Greeting(BaseModel):
    """A message whose fields have defaults that say something."""

    role: str = "assistant"
    content: str = "Hello!"
    name: str = "desk"
    tool_calls: list[dict[str, Any]] | None = None


@pytest.mark.parametrize(
    "returned", [Greeting(), Greeting(content="Hello!", name="desk")], ids=["unset", "set"]
)
async def test_a_returned_model_keeps_fields_that_equal_their_defaults(returned):
    result = await executor(an_agent(returned), max_turns=1).run()

    assert result.messages == [{"role": "assistant", "content": "Hello!", "name": "desk"}]


@pytest.mark.parametrize(
    ("role", "name"),
    [(AgentRole.USER, "user"), (AgentRole.AGENT, "assistant"), (AgentRole.JUDGE, "assistant")],
)
async def test_a_bare_text_gets_the_role_of_its_author(role, name):
    result = await executor(Scripted(role, "hi"), an_agent([]), max_turns=1).run()

    assert result.messages == [{"role": name, "content": "hi"}]


@pytest.mark.parametrize("role", AgentRole)
async def test_a_result_of_anybody_ends_the_run(role):
    end = ScenarioResult(success=True, messages=[], reasoning="that is it")

    result = await executor(Scripted(role, end), an_agent([])).run()

    assert (result.success, result.reasoning) == (True, "that is it")


BAD = {
    "None": (None, "None is not a message; return a text"),
    "number": (3, "int 3 is not a message"),
    "no role": ({"content": "x"}, "dict .* is not a message"),
    "tuple": (("a", "b"), "tuple .* is not a message"),
    "None in a list": (["a", None], "None is not a message"),
    "not JSON": ({"role": "assistant", "content": object()}, "cannot be written as JSON"),
}


@pytest.mark.parametrize(("returned", "message"), BAD.values(), ids=BAD)
async def test_other_answers_are_refused_with_the_step_and_the_way_out(returned, message):
    with pytest.raises(ValueError, match=message) as caught:
        await executor(an_agent(returned), script=[scenario.agent()]).run()

    assert str(caught.value).startswith("case 'case', step 1 (agent): Scripted.call")


class Plain(scenario.AgentAdapter):
    def call(self, input):
        return "hi"


async def test_an_adapter_that_is_not_async_is_an_error():
    with pytest.raises(ValueError, match=r"Plain.call: is not async; write `async def call`"):
        await executor(Plain(), script=[scenario.agent()]).run()


async def slow(given):
    await asyncio.sleep(0.02)
    record_response(1, ChatResponse("a", TokenUsage.of(3, 4)))
    return "a"


class Slow(scenario.AgentAdapter):
    async def call(self, input):
        return await slow(input)


ENDS = {
    "succeed": [scenario.user("q"), scenario.agent(), scenario.succeed()],
    "fail": [scenario.user("q"), scenario.agent(), scenario.fail()],
    "no conclusion": [scenario.user("q"), scenario.agent()],
    "max turns": [scenario.proceed()],
    "a result": [
        scenario.agent(),
        lambda state: ScenarioResult(success=True, messages=state.messages),
    ],
    "judge": [scenario.agent(), scenario.judge()],
}


@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
async def test_every_result_carries_times_ids_and_tokens(script):
    judge = a_judge(
        lambda given: ScenarioResult(success=True, messages=[]) if given.judgment_request else []
    )

    result = await executor(a_user(), Slow(), judge, script=script, max_turns=1).run()

    assert result.total_time >= result.agent_time >= 0.015
    assert result.token_usage["Agent"].total_tokens == 7
    assert result.thread_id.startswith("thread_")
    assert result.scenario_run_id.startswith("scenariorun_")
    assert result.batch_run_id


async def test_the_time_of_agents_is_that_of_all_of_them_and_of_nobody_else():
    class Tired(Slow):
        role = AgentRole.USER

    result = await executor(Tired(), Slow(), Slow(), max_turns=1).run()

    assert 0.035 <= result.agent_time <= result.total_time - 0.015


async def test_events_carry_the_names_of_the_case_the_set_the_run_and_the_batch():
    events = []
    talk = executor(an_agent(), script=[scenario.succeed()], event_bus=events.append)

    result = await talk.run()

    assert {(one.scenario_id, one.scenario_set_id) for one in events} == {("case", "default")}
    assert {one.scenario_run_id for one in events} == {result.scenario_run_id}
    assert {one.batch_run_id for one in events} == {result.batch_run_id} == {talk.batch_run_id}
    assert all(one.timestamp > 1_600_000_000_000 for one in events)


def test_processes_may_share_a_batch(monkeypatch):
    monkeypatch.setenv("HOLODECK_BATCH_RUN_ID", "build-7")

    assert executor(an_agent()).batch_run_id == "build-7"
    assert executor(an_agent(), batch_run_id="mine").batch_run_id == "mine"


async def test_each_run_has_ids_of_its_own():
    talk = executor(an_agent(), script=[scenario.agent(), scenario.succeed()])

    one, other = await talk.run(), await talk.run()

    assert one.thread_id != other.thread_id
    assert one.scenario_run_id != other.scenario_run_id
    assert one.batch_run_id == other.batch_run_id
    assert len(other.messages) == 1


async def test_the_executor_raises_what_an_agent_raises():
    with pytest.raises(LookupError, match="lost"):
        await executor(a_user(), an_agent(LookupError("lost"))).run()


class Hanging(scenario.AgentAdapter):
    def __init__(self, hang):
        self.hang = hang

    async def call(self, input):
        await self.hang.later()


@pytest.mark.parametrize(
    ("limit", "message"),
    [({"call_timeout": 0.5}, r"Hanging\.call took"), ({"timeout": 0.5}, r"case 'case' took")],
    ids=["call", "case"],
)
async def test_time_limits_fire(limit, message, hang):
    with pytest.raises(BackendTimeoutError, match=message):
        await executor(a_user(), Hanging(hang), **limit).run()


async def test_an_agent_that_blocks_past_its_limit_is_too_late():
    with pytest.raises(BackendTimeoutError, match=r"Scripted\.call took more than 0\.01 s"):
        await executor(an_agent(lambda _: time.sleep(0.03) or "a"), call_timeout=0.01).run()


async def test_the_state_tells_of_messages_and_tool_calls():
    talk = executor(a_user(), an_agent())
    state = talk.state
    with pytest.raises(ValueError, match="there is no message yet"):
        state.last_message()
    with pytest.raises(ValueError, match="no message of the user"):
        state.last_user_message()

    talk.add_messages([{"role": "user", "content": "q"}, CALL, FOUND])

    assert state.last_message() == FOUND
    assert state.last_user_message()["content"] == "q"
    assert state.last_agent_message() == json.dumps(CALL["tool_calls"][0])
    assert state.has_tool_call("search")
    assert state.last_tool_call("search")["id"] == "1"
    assert state.last_tool_call("other") is None
    assert [one.name for one in state.tool_calls()] == ["search"]
    assert state.tool_calls("search").last.output == FOUND["content"]
    assert state.transcript() == (
        "[1] user: q\n[2] assistant calls search({})\n[3] result of the tool: 42"
    )
    assert (state.description, state.current_turn) == ("a situation", 0)
    assert state.config.max_turns == 10


async def test_calls_of_the_older_format_and_refusals_are_seen_as_well():
    talk = executor(a_user(), an_agent())
    called = {"role": "assistant", "function_call": {"name": "pay", "arguments": "{}"}}
    paid = {"role": "function", "name": "pay", "content": "done"}

    talk.add_messages([called, paid, {"role": "assistant", "content": None, "refusal": "No."}])

    assert talk.state.has_tool_call("pay")
    assert talk.state.transcript() == (
        "[1] assistant calls pay({})\n[2] result of pay: done\n[3] assistant: No."
    )


async def test_listeners_get_every_message_of_every_run():
    events = []
    talk = executor(a_user("q"), an_agent("a"), a_judge(), max_turns=1, event_bus=events.append)

    await talk.run()
    result = await talk.run()

    assert [type(one).__name__ for one in events] == [
        "RunStarted", "MessageAdded", "MessageAdded", "RunFinished",
    ] * 2  # fmt: skip
    assert [one.message["content"] for one in events if isinstance(one, MessageAdded)] == list(
        "qaqa"
    )
    assert events[-1].status == "FAILED"
    assert events[-1].result == result


async def test_listeners_get_verdicts_and_errors():
    events = []
    judge = a_judge(ScenarioResult(success=True, messages=[], passed_criteria=["kind"]))
    await executor(judge, an_agent([]), event_bus=events.append).run()
    with pytest.raises(LookupError):
        await executor(an_agent(LookupError("lost")), event_bus=events.append).run()

    types = [type(one).__name__ for one in events]
    assert types == ["RunStarted", "CriterionJudged", "RunFinished", "RunStarted", "RunFinished"]
    assert events[1].verdict.criterion == "kind"
    assert (events[-1].status, events[-1].result.error) == ("ERROR", "LookupError: lost")


async def test_a_listener_that_fails_or_hangs_harms_nobody(caplog, hang):
    def fails(event):
        raise LookupError("deaf")

    talk = executor(an_agent(), script=[scenario.agent(), scenario.succeed()], event_bus=fails)
    talk.events.subscribe(hang)

    assert (await talk.run()).success

    assert "a listener failed at RunStarted" in caplog.text


async def test_an_unsubscribed_listener_gets_no_more_events():
    events = []
    talk = executor(an_agent(), script=[scenario.succeed()])

    talk.events.subscribe(events.append)()
    await talk.run()

    assert events == []
