"""What the steps of a script do, and how a script ends."""

import asyncio
import warnings

import pytest

from holodeck import scenario
from holodeck.scenario import AgentRole, ScenarioExecutor, ScenarioResult
from holodeck.scenario.script import DroppedStep
from support.participants import a_judge, a_user, an_agent, texts_of

GOOD = ScenarioResult(success=True, messages=[], passed_criteria=["kind"])
BAD = ScenarioResult(success=False, messages=[], failed_criteria=["kind"])


async def play(*steps, agents=None, **settings):
    agents = [a_user(), an_agent(), a_judge()] if agents is None else agents
    return await ScenarioExecutor("case", "a situation", agents, list(steps), **settings).run()


async def test_fixed_lines_call_nobody():
    user, agent = a_user(), an_agent()

    result = await play(
        scenario.user("hi"),
        scenario.agent({"role": "assistant", "content": "ho"}),
        scenario.succeed(),
        agents=[user, agent],
    )

    assert texts_of(result.messages) == ["hi", "ho"]
    assert user.calls == agent.calls == 0


async def test_a_fixed_message_of_another_role_stays_as_it_is():
    odd = {"role": "system", "content": "x"}

    result = await play(scenario.user(odd), scenario.succeed())

    assert result.messages == [odd]


async def test_a_judge_step_asks_for_a_verdict():
    judge = a_judge(GOOD)

    result = await play(scenario.judge(), agents=[an_agent(), judge])

    assert result.success
    assert judge.inputs[0].judgment_request


async def test_a_text_given_to_judge_is_a_criterion_and_no_message():
    judge = a_judge(scenario.ScenarioResult(success=False, messages=[], reasoning="it is rude"))

    result = await play(scenario.judge("The agent is kind"), scenario.succeed(), agents=[judge])

    assert (result.success, result.reasoning) == (False, "it is rude")
    assert [one.judgment_criteria for one in judge.inputs] == [["The agent is kind"]]
    assert judge.inputs[0].messages == []


async def test_content_for_the_judge_is_added_as_a_message():
    judge = a_judge(GOOD)

    result = await play(scenario.judge(content="well"), scenario.succeed(), agents=[judge])

    assert result.messages == [{"role": "assistant", "content": "well"}]
    assert judge.calls == 0


async def test_messages_go_the_way_of_their_role():
    tool = {"role": "tool", "tool_call_id": "1", "content": "42"}
    user = a_user()

    result = await play(
        scenario.message({"role": "user", "content": "q"}),
        scenario.message({"role": "assistant", "content": "a"}),
        scenario.message(tool),
        scenario.proceed(1),
        scenario.succeed(),
        agents=[user, an_agent()],
    )

    assert result.messages[:3][-1] == tool
    assert tool in user.inputs[0].new_messages


@pytest.mark.parametrize(
    ("step", "success", "reasoning"),
    [
        (scenario.succeed(), True, "Scenario marked as successful"),
        (scenario.succeed("fine"), True, "fine"),
        (scenario.fail(), False, "Scenario marked as failed"),
        (scenario.fail("bad"), False, "bad"),
    ],
    ids=["succeed", "succeed with reason", "fail", "fail with reason"],
)
async def test_a_script_may_say_the_result(step, success, reasoning):
    result = await play(scenario.user("hi"), step)

    assert (result.success, result.reasoning) == (success, reasoning)


async def ends(state):
    return ScenarioResult(success=False, messages=state.messages, reasoning="enough")


def awaitable(state):
    return ends(state)


def applied_by_hand(state):
    return scenario.fail("enough")(state)


@pytest.mark.parametrize(
    "step",
    [
        ends,
        awaitable,
        applied_by_hand,
        lambda _: scenario.fail("enough"),
        lambda _: ScenarioResult(success=False, messages=[], reasoning="enough"),
    ],
    ids=["async", "awaitable", "applied", "not applied", "sync"],
)
async def test_a_function_may_end_the_case(step):
    result = await play(scenario.user("hi"), step, scenario.succeed())

    assert (result.success, result.reasoning) == (False, "enough")
    assert texts_of(result.messages) == ["hi"]


async def applied(state):
    return await scenario.fail("enough")(state)


async def test_a_step_may_be_awaited_inside_of_a_function():
    assert (await play(applied, scenario.succeed())).reasoning == "enough"


async def test_an_unapplied_step_of_any_kind_takes_effect_when_returned():
    result = await play(lambda _: scenario.user("hi"), scenario.succeed())

    assert texts_of(result.messages) == ["hi"]


async def test_a_step_made_and_dropped_warns():
    def check(state):
        scenario.fail("lost")

    with pytest.warns(
        DroppedStep, match=r"step 1 \(check\): scenario.fail\(…\) was created but not used"
    ):
        result = await play(check, scenario.succeed())

    assert result.success


async def test_steps_made_beforehand_do_not_warn():
    with warnings.catch_warnings(record=True) as seen:
        scenario.fail("never used")
        await play(scenario.user("hi"), scenario.succeed())

    assert seen == []


@pytest.mark.parametrize("value", ["text", 3, ["x"]])
async def test_whatever_else_a_function_returns_is_ignored(value):
    assert (await play(lambda _: value, scenario.succeed())).success


async def test_a_script_without_a_conclusion_fails_and_says_what_to_add():
    result = await play(scenario.user("hi"), scenario.agent())

    assert not result.success
    assert result.reason_code == "no_conclusion"
    assert "scenario.proceed()" in result.reasoning


async def test_a_judge_who_gives_no_verdict_lets_the_script_go_on():
    result = await play(scenario.user("hi"), scenario.judge(), scenario.user("again"))

    assert result.reason_code == "no_conclusion"
    assert texts_of(result.messages) == ["hi", "again"]


async def test_a_checkpoint_that_passes_lets_the_script_go_on():
    judge = a_judge(GOOD)

    result = await play(
        scenario.user("hi"),
        scenario.judge(["kind"]),
        scenario.user("again"),
        agents=[a_user(), judge],
    )

    assert result.success
    assert result.passed_criteria == ["kind"]
    assert texts_of(result.messages) == ["hi", "again"]
    assert judge.inputs[0].judgment_criteria == ["kind"]


async def test_a_checkpoint_that_fails_ends_the_case():
    steps = [scenario.judge(["polite"]), scenario.judge(["kind"]), scenario.succeed()]

    result = await play(*steps, agents=[a_judge(GOOD, BAD)])

    assert not result.success
    assert [one.status for one in result.criteria] == ["passed", "failed"]


async def test_an_exception_of_a_step_propagates():
    def check(state):
        assert state.has_tool_call("search"), "no search"

    events = []
    with pytest.raises(AssertionError, match="no search"):
        await play(scenario.user("hi"), check, event_bus=events.append)

    assert (events[-1].status, events[-1].result.reason_code) == ("ERROR", "step_failed")


async def test_an_exit_inside_a_run_leaves_a_final_event():
    events = []
    with pytest.raises(SystemExit):
        await play(scenario.agent(), agents=[an_agent(SystemExit(3))], event_bus=events.append)

    await until(lambda: len(events) == 2)
    assert events[-1].status == "ERROR"


async def test_a_run_that_is_given_up_leaves_an_event_that_ends_it():
    events = []

    class Hanging(type(an_agent())):
        async def call(self, given):
            await asyncio.sleep(30)

    run = asyncio.create_task(
        play(scenario.agent(), agents=[Hanging(AgentRole.AGENT)], event_bus=events.append)
    )
    await until(lambda: len(events) == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    await until(lambda: len(events) == 2)
    assert events[-1].status == "CANCELLED"


async def until(is_so):
    """Wait for a thread to have done it."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - a thread sets no event of a loop
            await asyncio.sleep(0.001)


NOBODY = r"step 1 \(user\).*`User`.*with content 'hi'.*UserSimulatorAgent"
EMPTY = r"user\(''\): the text is empty; write what the user says"
NO_TURN = r"proceed\(turns=0\).*write 1 or more"
MISUSE = {
    "nobody plays the user": (scenario.user("hi"), [an_agent()], NOBODY),
    "a message of nobody": (
        scenario.message({"role": "user", "content": "hi"}),
        [an_agent()],
        r"`User`.*UserSim",
    ),
    "an agent's word and no agent": (scenario.agent("ho"), [a_user()], r"with content 'ho'"),
    "nobody plays the agent": (scenario.agent(), [a_user()], r"`Agent`.*add your agent"),
    "nobody judges": (scenario.judge(), [an_agent()], r"`Judge`.*JudgeAgent"),
    "empty user text": (scenario.user(""), None, EMPTY),
    "blank agent text": (scenario.agent(" \n"), None, r"the text is empty"),
    "a message without role": (scenario.user({"content": "x"}), None, r"not a message; return"),
    "no criteria": (scenario.judge([]), None, r"judge\(\[\]\): write one criterion"),
    "an empty criterion": (scenario.judge(["a", " "]), None, r"none of them empty"),
    "an empty criterion without a list": (scenario.judge(""), None, r"none of them empty"),
    "a message for the judge": (
        scenario.judge({"role": "assistant", "content": "hi"}),
        None,
        r"the first argument is the criteria; to add a message, write message\(",
    ),
    "criteria and content": (
        scenario.judge("kind", content="hi"),
        None,
        r"has both criteria and content",
    ),
    "a message that is none": (scenario.message("hi"), None, r"message\('hi'\): write \{'role'"),
    "turns in words": (scenario.proceed(turns="two"), None, r"turns='two'.*write 1 or more"),
    "no parentheses": (scenario.succeed, None, r"scenario.succeed makes a step; write succeed\(\)"),
    "no turns": (scenario.proceed(turns=0), None, NO_TURN),
    "fewer than no turns": (scenario.proceed(turns=-1), None, r"write 1 or more"),
    "nobody at all": (scenario.proceed(), [], r"there are no participants"),
    "nobody to be tested": (scenario.proceed(), [a_user(), a_judge()], r"nobody has .*`Agent`"),
    "no function": ("user", None, r"'user' is not a step"),
}


@pytest.mark.parametrize(("step", "agents", "message"), MISUSE.values(), ids=MISUSE)
async def test_usage_errors_name_the_case_and_the_step(step, agents, message):
    with pytest.raises(ValueError, match=message) as caught:
        await play(step, agents=agents)

    assert str(caught.value).startswith("case 'case', step 1")


LIMITS = [
    {"max_turns": 0},
    {"max_turns": -2},
    {"min_turns": -1},
    {"timeout": 0},
    {"call_timeout": -1},
    {"min_turns": 9, "max_turns": 3},
]


@pytest.mark.parametrize("settings", LIMITS, ids=str)
def test_limits_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=f"case 'case': {next(iter(settings))}="):
        ScenarioExecutor("case", "", [an_agent()], **settings)


def test_no_least_number_of_turns_may_be_written_as_0():
    assert ScenarioExecutor("case", "", [an_agent()], min_turns=0).config.min_turns == 0


async def test_a_step_or_an_agent_without_its_list_is_refused():
    with pytest.raises(ValueError, match=r"case 'case': agents is not a list.*write agents=\[…\]"):
        ScenarioExecutor("case", "", an_agent())
    with pytest.raises(ValueError, match=r"case 'case': script is not a list.*write script=\[…\]"):
        ScenarioExecutor("case", "", [an_agent()], scenario.succeed())


PARTIES = {"function": an_agent, "object": object(), "class": type(an_agent())}


@pytest.mark.parametrize("participant", PARTIES.values(), ids=PARTIES)
def test_an_invalid_participant_is_rejected(participant):
    with pytest.raises(ValueError, match=r"agents\[0\]"):
        ScenarioExecutor("case", "", [participant])


@pytest.mark.parametrize("play_it", [scenario.run, scenario.arun])
async def test_a_step_that_is_not_async_is_called_on_the_loop_of_its_run(play_it):
    loops = []
    script = [scenario.user("a"), lambda _: loops.append(asyncio.get_running_loop())]

    result = await play_it("n", "d", [an_agent(), a_user()], script=[*script, scenario.succeed()])

    assert result.success
    assert (loops[0] is asyncio.get_running_loop()) is (play_it is scenario.arun)
