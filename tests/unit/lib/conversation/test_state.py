"""What script steps read from the state, and how messages are taken back."""

# ruff: noqa: A002 - `input` is what adapters call it

import pytest

from holodeck import scenario
from holodeck.lib.conversation.events import MessageAdded, RunStarted
from holodeck.scenario import (
    AgentInput,
    JudgmentRequest,
    ScenarioExecutor,
    ScenarioResult,
    ToolCall,
)
from support.participants import a_judge, a_user, an_agent, texts_of


def calls(*requests):
    functions = [{"name": name, "arguments": arguments} for name, arguments in requests]
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"call {number}", "type": "function", "function": one}
            for number, one in enumerate(functions)
        ],
    }


def found(number, content):
    return {"role": "tool", "tool_call_id": f"call {number}", "content": content}


def executor(*agents, script=None, **settings):
    return ScenarioExecutor("case", "a situation", list(agents), script, **settings)


async def test_tool_calls_have_inputs_outputs_and_the_index_of_their_turn():
    pay = calls(("pay", '{"amount": 3}'), ("look", "no JSON"))
    said = [pay, found(0, "paid"), found(1, "seen"), {"role": "assistant", "content": "Done."}]
    again = [calls(("pay", '{"amount": 4}')), {"role": "assistant", "content": "Again."}]
    talk = executor(a_user(), an_agent(said, again), max_turns=2)

    await talk.run()
    paid = talk.state.tool_calls("pay")

    assert list(paid) == [
        ToolCall("pay", {"amount": 3}, "paid", turn=0, source="message"),
        ToolCall("pay", {"amount": 4}, None, turn=1, source="message"),
    ]
    assert (paid.first, paid.last) == (paid[0], paid[-1])
    assert (paid.inputs, paid.outputs) == ([{"amount": 3}, {"amount": 4}], ["paid", None])
    assert talk.state.tool_calls("look").last.input == "no JSON"
    assert [one.name for one in talk.state.tool_calls()] == ["pay", "look", "pay"]


async def test_a_result_belongs_to_the_call_before_it_even_if_ids_come_again():
    said = [calls(("pay", "{}")), found(0, "one"), calls(("pay", "{}")), found(0, "two")]
    talk = executor(a_user(), an_agent(said), max_turns=1)

    await talk.run()

    assert talk.state.tool_calls("pay").outputs == ["one", "two"]


def test_a_tool_that_was_never_called_has_an_empty_call_that_is_false():
    talk = executor(a_user(), an_agent())
    talk.add_message({"role": "user", "content": "q"})

    paid = talk.state.tool_calls("pay")

    assert not paid
    assert not paid.last
    assert (paid.last.name, paid.last.input, paid.last.output) == ("pay", None, None)
    assert (paid.inputs, paid.outputs) == ([], [])


async def test_turns_have_their_messages_and_tool_calls():
    said = [calls(("pay", "{}")), {"role": "assistant", "content": "a1"}]
    talk = executor(a_user("q1", "q2"), an_agent(said, "a2"), max_turns=2)

    await talk.run()
    first, second = talk.state.turns

    assert [first.index, second.index] == [0, 1]
    assert texts_of(first.messages) == ["q1", None, "a1"]
    assert texts_of(second.messages) == ["q2", "a2"]
    assert len(first.tool_calls("pay")) == 1
    assert not second.tool_calls()


def test_texts_of_the_first_and_the_last_message_are_empty_while_there_is_none():
    talk = executor(a_user(), an_agent())
    assert (talk.state.first_user_message(), talk.state.last_agent_message()) == ("", "")

    talk.add_messages(
        [{"role": role, "content": f"{role} {n}"} for n in (1, 2) for role in ("user", "assistant")]
    )

    assert talk.state.first_user_message() == "user 1"
    assert talk.state.last_agent_message() == "assistant 2"


def test_fields_of_the_scenario_are_values_of_the_state():
    talk = executor(an_agent(), fields={"golden": "SELECT 1", "limit": 0, "blank": ""})

    assert talk.state.fields == {"golden": "SELECT 1", "limit": 0, "blank": ""}
    assert [talk.state.field(one) for one in ("golden", "limit", "blank", "missing")] == [
        "SELECT 1", 0, None, None,
    ]  # fmt: skip


def test_the_state_lists_the_criteria_of_all_judges():
    strict, empty = a_judge(), a_judge()
    strict.criteria, empty.criteria = ["kind", "short"], None

    assert executor(an_agent(), strict, empty).state.criteria == ["kind", "short"]


async def test_messages_taken_back_are_new_to_nobody_and_gone_for_all():
    agent, judge = an_agent("refused", "answered"), a_judge()

    def take_back(state):
        removed = state.rollback_messages_to(0)
        assert texts_of(removed) == ["q1", "refused"]

    steps = [scenario.user("q1"), scenario.agent(), take_back, scenario.user("q2")]
    steps += [scenario.agent(), scenario.judge(), scenario.succeed()]
    events = []
    result = await executor(a_user(), agent, judge, script=steps, events=events.append).run()

    assert texts_of(result.messages) == ["q2", "answered"]
    assert texts_of(judge.inputs[0].new_messages) == ["q2", "answered"]
    assert texts_of(agent.inputs[1].messages) == ["q2"]
    added = [one for one in events if isinstance(one, MessageAdded)]
    assert [one.index for one in added] == [0, 1, 0, 1], "a place that comes again was taken back"


async def test_a_participant_that_takes_messages_back_still_gets_those_added_after_that():
    class Attacker(scenario.AgentAdapter):
        role = scenario.AgentRole.USER

        async def call(self, input):
            if len(input.messages) == 1:
                input.scenario_state.rollback_messages_to(0)
                input.scenario_state.add_message({"role": "system", "content": "a hint"})
                return "q"
            return texts_of(input.new_messages)[0]

    refusal = {"role": "assistant", "content": "no"}
    steps = [lambda state: state.add_message(refusal), scenario.user(), scenario.user()]
    result = await executor(
        Attacker(), an_agent(), script=[*steps, scenario.agent(), scenario.succeed()]
    ).run()

    assert texts_of(result.messages)[:3] == ["a hint", "q", "a hint"]


def test_a_negative_place_to_take_back_to_is_an_error():
    with pytest.raises(ValueError, match=r"rollback_messages_to\(-1\): the index is negative"):
        executor(an_agent()).state.rollback_messages_to(-1)


async def test_the_messages_of_an_input_follow_the_conversation_during_the_call():
    seen = []

    async def look(input):
        seen.append(texts_of(input.messages))
        input.scenario_state.add_message({"role": "system", "content": "added"})
        seen.append(texts_of(input.messages))
        input.scenario_state.rollback_messages_to(1)
        seen.append(texts_of(input.messages))
        return "answer"

    class Agent(scenario.AgentAdapter):
        async def call(self, input):
            self.input = input
            return await look(input)

    agent = Agent()
    await executor(
        a_user(), agent, script=[scenario.user("q"), scenario.agent(), scenario.succeed()]
    ).run()

    assert seen == [["q"], ["q", "added"], ["q"]]
    assert texts_of(agent.input.messages) == ["q"], "after the call, what it was given"


async def test_a_judge_gets_the_criteria_of_a_checkpoint_in_the_request():
    passed = ScenarioResult(success=True, messages=[], passed_criteria=["kind"])
    judge = a_judge(lambda given: passed if given.judgment_request else [])
    steps = [scenario.user("q"), scenario.agent(), scenario.judge(["kind"]), scenario.judge()]

    await executor(a_user(), an_agent(), judge, script=steps).run()
    checkpoint, final = (one.judgment_request for one in judge.inputs)

    assert checkpoint.criteria == ["kind"]
    assert final.criteria is None
    assert final, "it is true, whatever it holds"


@pytest.mark.parametrize(
    ("given", "wanted"), [(True, JudgmentRequest()), (False, None), (None, None)]
)
def test_an_input_takes_a_request_for_judgment_as_a_truth_value(given, wanted):
    made = AgentInput(
        thread_id="t", messages=[], new_messages=[], judgment_request=given, scenario_state=None
    )

    assert made.judgment_request == wanted


async def test_listeners_get_the_metadata_of_a_run_and_can_leave():
    events, left = [], []
    steps = [scenario.user("q"), scenario.agent(), scenario.succeed()]
    talk = executor(a_user(), an_agent(), script=steps, metadata={"build": 7})
    talk.events.subscribe(on_next=events.append)
    talk.events.subscribe(on_next=left.append).dispose()

    await talk.run()

    assert [one.metadata for one in events if isinstance(one, RunStarted)] == [{"build": 7}]
    assert left == []


async def test_a_judge_with_an_empty_list_of_criteria_decides_at_checkpoints_only():
    judge = scenario.JudgeAgent(criteria=[], model="openai/none", api_key="none")

    result = await executor(
        a_user(), an_agent(), judge,
        script=[scenario.proceed(turns=1), scenario.judge(content="fine"), scenario.succeed()],
    ).run()  # fmt: skip

    assert result.success
