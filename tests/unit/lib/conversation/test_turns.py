"""The turns of a conversation, with and without a script."""

import pytest

from holodeck import scenario
from holodeck.scenario import AgentRole, ScenarioExecutor
from holodeck.scenario.script import DroppedStep
from support.participants import Log, Scripted, a_judge, a_user, an_agent, texts_of


def executor(*agents, script=None, **settings):
    return ScenarioExecutor("case", "a situation", list(agents), script, **settings)


@pytest.mark.parametrize("turns", [1, 2, 3, 7])
async def test_max_turns_is_exactly_so_many_turns(turns):
    user, agent, judge = a_user(), an_agent(), a_judge()

    result = await executor(user, agent, judge, max_turns=turns).run()

    assert (user.calls, agent.calls, judge.calls) == (turns, turns, turns)
    assert not result.success
    assert result.reasoning == f"Reached maximum turns ({turns}) without conclusion"
    assert result.reason_code == "max_turns"


async def test_unset_max_turns_are_ten():
    user = a_user()

    result = await executor(user, an_agent()).run()

    assert user.calls == 10
    assert "(10)" in result.reasoning


async def test_the_roles_speak_in_order_whatever_the_order_of_the_list():
    judge = a_judge([], scenario.ScenarioResult(success=True, messages=[]))

    result = await executor(judge, an_agent(), a_user()).run()

    assert texts_of(result.messages) == ["user says", "agent says", "user says", "agent says"]


async def test_agents_of_one_role_speak_in_the_order_of_the_list():
    first, second = an_agent("one"), an_agent("two")

    result = await executor(first, a_user("hi"), second, max_turns=1).run()

    assert texts_of(result.messages) == ["hi", "one", "two"]


async def test_each_agent_step_takes_the_next_one_and_a_third_opens_a_turn():
    turns = []
    note = lambda state: turns.append(state.current_turn)  # noqa: E731
    steps = [scenario.user("hi"), *[scenario.agent(), note] * 3, scenario.succeed()]

    result = await executor(a_user(), an_agent("one"), an_agent("two"), script=steps).run()

    assert texts_of(result.messages) == ["hi", "one", "two", "one"]
    assert turns == [0, 0, 1]


async def test_an_agent_listed_twice_speaks_once_a_turn():
    agent = an_agent()

    await executor(a_user(), agent, agent, max_turns=3).run()

    assert agent.calls == 3


async def test_scripted_steps_are_not_limited_by_max_turns():
    steps = [scenario.user("q"), scenario.agent()] * 4 + [scenario.succeed()]

    result = await executor(a_user(), an_agent(), max_turns=2, script=steps).run()

    assert result.success
    assert len(result.messages) == 8


async def test_going_on_after_too_many_scripted_turns_fails_at_once():
    user, agent = a_user(), an_agent()
    steps = [*[scenario.user("q"), scenario.agent("a")] * 4, scenario.proceed()]

    result = await executor(user, agent, max_turns=2, script=steps).run()

    assert result.reason_code == "max_turns"
    assert user.calls == agent.calls == 0


async def test_proceed_plays_its_turns_after_many_scripted_ones():
    user = a_user()
    played = [scenario.user("q"), scenario.agent("a")] * 4
    steps = [*played, scenario.proceed(turns=2), scenario.succeed()]

    result = await executor(user, an_agent(), max_turns=2, script=steps).run()

    assert result.success
    assert user.calls == 2


async def test_an_explicit_number_of_turns_does_not_exceed_max_turns():
    user = a_user()

    result = await executor(user, an_agent(), max_turns=3, script=[scenario.proceed(turns=9)]).run()

    assert user.calls == 3
    assert result.reason_code == "max_turns"


async def test_a_user_step_after_an_agent_step_opens_a_turn():
    turns = []
    steps = [scenario.agent("hello"), scenario.user("hi"), lambda s: turns.append(s.current_turn)]

    await executor(a_user(), an_agent(), script=steps).run()

    assert turns == [1]


async def test_a_second_user_step_skips_the_agent_and_opens_a_turn():
    agent = an_agent()
    talk = executor(a_user(), agent)

    await talk.user("one")
    await talk.user("two")

    assert talk.state.current_turn == 1
    assert agent.calls == 0


async def test_skipped_roles_lose_their_chance_in_this_turn():
    user, judge = a_user(), a_judge()
    steps = [scenario.judge(), scenario.proceed(turns=1), scenario.succeed()]

    await executor(user, an_agent(), judge, script=steps).run()

    assert (user.calls, judge.calls) == (1, 2)


@pytest.mark.parametrize("script", [None, []])
async def test_no_script_lets_everybody_speak_in_turn(script):
    result = await executor(a_user(), an_agent(), max_turns=1, script=script).run()

    assert len(result.messages) == 2


async def test_many_turns_need_no_deep_stack():
    result = await executor(a_user(), an_agent(), max_turns=600).run()

    assert len(result.messages) == 1200


async def test_executors_share_no_state():
    one, other = executor(a_user(), an_agent()), executor(a_user(), an_agent())

    await one.user("hi")

    assert other.state.messages == []
    assert one.state.thread_id != other.state.thread_id


async def test_reset_begins_anew():
    talk = executor(a_user(), an_agent())
    await talk.user("one")
    await talk.user("two")
    thread = talk.state.thread_id

    talk.reset()

    assert (talk.state.messages, talk.state.current_turn) == ([], 0)
    assert talk.state.thread_id != thread


async def test_after_a_reset_nobody_has_anything_left_to_hear():
    agent = an_agent()
    talk = executor(a_user(), agent)
    await talk.user("one")
    talk.reset()

    await talk.agent()

    assert agent.inputs[0].new_messages == []


async def test_agents_play_one_role_each_in_one_turn_and_all_again_in_the_next():
    participants = [a_judge(), an_agent("a1"), a_user("u1"), an_agent("a2"), a_user("u2")]

    result = await executor(*participants, max_turns=2).run()

    assert texts_of(result.messages) == ["u1", "u2", "a1", "a2"] * 2


async def test_a_step_lets_the_next_one_speak():
    talk = executor(a_user("hi"), an_agent("ho"), max_turns=1)

    assert await talk.step() == [{"role": "user", "content": "hi"}]
    assert await talk.step() == [{"role": "assistant", "content": "ho"}]
    assert (await talk.step()).reason_code == "max_turns"


@pytest.mark.parametrize(
    ("with_judge", "turns", "messages"),
    [(True, 1, 2), (False, 1, 4), (True, 2, 4), (False, 2, 6), (True, 3, 6)],
)
async def test_the_turn_under_way_counts_if_anybody_is_left_in_it(with_judge, turns, messages):
    judges = [a_judge()] if with_judge else []
    steps = [scenario.user("hi"), scenario.agent(), scenario.proceed(turns), scenario.succeed()]

    result = await executor(a_user(), an_agent(), *judges, script=steps).run()

    assert len(result.messages) == messages


async def test_proceed_gives_none_when_its_turns_are_used_up():
    talk = executor(a_user(), an_agent())

    assert await talk.proceed(turns=2) is None
    assert len(talk.state.messages) == 4


async def test_on_turn_is_called_for_later_turns_and_on_step_for_every_call():
    log = Log()
    done = scenario.ScenarioResult(success=True, messages=[])
    talk = executor(a_user(), an_agent(), a_judge([], done))

    result = await talk.proceed(None, log.note("turn"), log.note("step"), log.note("end"))

    assert result.success
    assert log.entries == [
        "step 0", "step 0", "step 0", "end 0", "turn 1", "step 1", "step 1", "step 1",
    ]  # fmt: skip


async def test_on_turn_is_called_for_the_turn_beyond_the_maximum():
    log = Log()

    await executor(a_user(), an_agent(), max_turns=2).proceed(on_turn=log.note("turn"))

    assert log.entries == ["turn 1", "turn 2"]


async def test_callbacks_may_be_async_and_what_they_give_is_ignored():
    turns = []

    async def on_step(state):
        turns.append(state.current_turn)
        return scenario.ScenarioResult(success=False, messages=[])

    talk = executor(a_user(), an_agent())

    with pytest.warns(DroppedStep, match="a result, which ends nothing"):
        assert await talk.proceed(turns=1, on_step=on_step) is None
    assert turns == [0, 0]


async def test_what_a_callback_raises_ends_the_run():
    def on_turn(state):
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await executor(a_user(), an_agent(), script=[scenario.proceed(on_turn=on_turn)]).run()


async def test_no_judge_is_called_before_min_turns():
    judge = a_judge(scenario.ScenarioResult(success=True, messages=[]))

    result = await executor(a_user(), an_agent(), judge, min_turns=3, max_turns=5).run()

    assert judge.calls == 1
    assert len(result.messages) == 6


def when_asked(given):
    """What a judge says who decides only when that is asked for."""
    if not given.judgment_request:
        return []
    return scenario.ScenarioResult(success=True, messages=[], reasoning="decided")


async def test_a_judge_with_criteria_is_called_at_max_turns():
    judge = a_judge(when_asked)
    judge.criteria = ["is kind"]

    result = await executor(a_user(), an_agent(), judge, max_turns=2).run()

    assert (result.success, result.reasoning) == (True, "decided")
    assert [bool(one.judgment_request) for one in judge.inputs] == [False, True]


async def test_a_judge_is_asked_again_at_max_turns_if_a_callback_may_have_spoken():
    judge = a_judge(when_asked)
    judge.criteria = ["is kind"]

    def speak(state):
        state.add_message({"role": "user", "content": "one more thing"})

    script = [scenario.proceed(on_turn_end=speak)]
    result = await executor(a_user(), an_agent(), judge, max_turns=1, script=script).run()

    assert result.success
    assert [bool(one.judgment_request) for one in judge.inputs] == [False, True]
    assert "one more thing" in texts_of(judge.inputs[1].messages)


async def test_the_verdict_follows_when_a_user_leaves():
    judge = a_judge(when_asked)
    judge.criteria = ["is kind"]
    user = a_user("hi", scenario.EndConversation("bye"))

    result = await executor(user, an_agent(), judge).run()

    assert result.success
    assert texts_of(result.messages) == ["hi", "agent says", "bye"]


async def test_without_a_judge_the_script_goes_on_when_a_user_leaves():
    user = a_user("hi", scenario.EndConversation())

    result = await executor(user, an_agent(), script=[scenario.proceed(), scenario.succeed()]).run()

    assert result.success
    assert len(result.messages) == 2


async def test_a_judge_who_leaves_is_not_called_again():
    judge = a_judge(scenario.EndConversation())
    judge.criteria = ["is kind"]

    result = await executor(a_user(), an_agent(), judge).run()

    assert judge.calls == 1
    assert result.reason_code == "no_conclusion"


def test_parties_need_not_be_hashable():
    class Odd(Scripted):
        __hash__ = None

    assert executor(Odd(AgentRole.AGENT)).agents
