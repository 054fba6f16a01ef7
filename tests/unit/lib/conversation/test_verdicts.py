"""No scenario passes without a decision."""

import pytest

from holodeck import scenario
from holodeck.errors import ConfigError
from holodeck.scenario import ScenarioExecutor, ScenarioResult
from holodeck.scenario.script import DroppedStep
from support.participants import a_judge, a_user, an_agent

KIND = ScenarioResult(success=True, messages=[], passed_criteria=["kind"])
LEAKS = ScenarioResult(
    success=False, messages=[], failed_criteria=["keeps secrets"], reasoning="it leaked"
)
SAFE = ScenarioResult(success=True, messages=[], passed_criteria=["keeps secrets"])


async def play(*steps, judges=(), **settings):
    agents = [a_user(), an_agent(), *judges]
    return await ScenarioExecutor("case", "", agents, list(steps) or None, **settings).run()


def judging(*lines):
    """A judge with criteria of its own."""
    judge = a_judge(*lines)
    judge.criteria = ["something"]
    return judge


@pytest.mark.parametrize("word", [[], "I cannot tell", scenario.EndConversation()], ids=str)
async def test_a_checkpoint_whose_judge_gives_no_verdict_does_not_pass(word):
    result = await play(scenario.judge(["kind"]), scenario.succeed(), judges=[a_judge(word)])

    assert (result.success, result.reason_code) == (False, "inconclusive")
    assert [(one.criterion, one.status) for one in result.criteria] == [("kind", "inconclusive")]


async def test_without_a_final_verdict_a_passed_checkpoint_decides_nothing():
    steps = [scenario.judge(["kind"]), scenario.agent("bye"), scenario.judge()]

    result = await play(*steps, judges=[a_judge(KIND, [])])

    assert (result.success, result.reason_code) == (False, "no_conclusion")
    assert "gave none" in result.reasoning


@pytest.mark.parametrize("steps", [(), (scenario.agent(), scenario.judge())], ids=["turns", "step"])
async def test_a_second_judge_is_called_before_a_verdict_passes(steps):
    result = await play(*steps, judges=[judging(KIND), judging(LEAKS)])

    assert (result.success, result.reasoning) == (False, "it leaked")
    assert [one.criterion for one in result.criteria] == ["kind", "keeps secrets"]
    assert (result.passed_criteria, result.failed_criteria) == (["kind"], ["keeps secrets"])


async def test_two_passing_verdicts_contain_the_criteria_of_both_and_of_checkpoints():
    polite = ScenarioResult(success=True, messages=[], passed_criteria=["polite"])
    steps = [scenario.agent(), scenario.judge(["polite"]), scenario.user(), scenario.judge()]

    result = await play(*steps, judges=[judging(polite, KIND), judging(SAFE)])

    assert result.success
    assert result.passed_criteria == ["polite", "kind", "keeps secrets"]
    assert [one.criterion for one in result.criteria] == result.passed_criteria


async def test_a_conversation_goes_on_while_one_of_its_judges_wants_to_hear_more():
    patient = judging([], LEAKS)

    result = await play(judges=[judging(KIND), patient])

    assert not result.success
    assert patient.calls == 2


async def test_a_judge_without_criteria_or_verdict_holds_up_nobody():
    idle = a_judge([])
    idle.criteria = None
    watcher = a_judge([])

    assert (await play(judges=[judging(KIND), idle, watcher])).success
    assert (idle.calls, watcher.calls) == (0, 1)


async def test_a_verdict_that_passes_with_a_failed_criterion_is_refused():
    odd = ScenarioResult(success=True, messages=[], failed_criteria=["kind"])

    with pytest.raises(ConfigError, match="success=True, but 'kind' did not pass"):
        await play(scenario.agent(), scenario.judge(), judges=[a_judge(odd)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (False, "returned False, which decides nothing; write `assert …`"),
        (True, "returned True, which decides nothing"),
        (scenario.fail, "write it with parentheses"),
    ],
    ids=["false", "true", "no parentheses"],
)
async def test_a_step_that_returns_something_without_effect_warns(value, message):
    with pytest.warns(DroppedStep, match=message):
        await play(lambda _: value, scenario.succeed())


async def test_a_step_that_returns_an_awaitable_of_a_result_ends_the_case():
    async def lost(_):
        return LEAKS

    async def check(state):
        return lost(state)

    assert not (await play(check, scenario.succeed())).success


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: LEAKS, "a callback returned a result, which ends nothing"),
        (lambda: scenario.fail("x"), r"scenario.fail\(…\) was created but not used"),
    ],
    ids=["result", "step"],
)
async def test_a_callback_that_returns_a_result_warns(value, message):
    steps = [scenario.proceed(turns=1, on_step=lambda _: value()), scenario.succeed()]

    with pytest.warns(DroppedStep, match=message):
        await play(*steps)


DROPPED = {
    "fail": (scenario.fail("it lied"), "it lied"),
    "verdict": (scenario.judge(), "it leaked"),
    "checkpoint": (scenario.judge(["Is safe"]), "it leaked"),
    "proceed": (scenario.proceed(turns=1), "it leaked"),
}


@pytest.mark.parametrize(("step", "why"), DROPPED.values(), ids=DROPPED)
async def test_a_step_that_drops_a_result_against_the_agent_warns(step, why):
    async def drops(state):
        await step(state)

    with pytest.warns(DroppedStep, match=f"against the agent and dropped it: {why}"):
        await play(scenario.agent(), drops, scenario.succeed(), judges=[judging(LEAKS)])


async def test_a_result_against_the_agent_that_a_step_looks_at_is_its_own_affair():
    async def looks(state):
        assert (await scenario.judge()(state)).success, "not so"

    with pytest.raises(AssertionError, match="not so"):
        await play(scenario.agent(), looks, scenario.succeed(), judges=[judging(LEAKS)])


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
async def test_a_step_that_is_called_but_not_awaited_warns():
    with pytest.warns(DroppedStep, match=r"scenario.fail\(…\) was created but not used"):
        await play(lambda state: [scenario.fail("x")(state)], scenario.succeed())


def yields(state):
    assert state.messages
    yield


async def yields_later(state):
    assert state.messages
    yield


@pytest.mark.parametrize("step", [yields, yields_later], ids=["generator", "async"])
async def test_a_step_or_callback_whose_code_would_never_run_is_refused(step):
    for one in (step, scenario.proceed(turns=1, on_step=step)):
        with pytest.raises(ConfigError, match=r"step 1 .*a generator, whose code never runs"):
            await play(one, scenario.succeed())


@pytest.mark.parametrize("blank", ["", " \n", "\u200b\ufeff"], ids=ascii)
async def test_a_scenario_whose_agent_answers_nothing_visible_does_not_pass(blank):
    steps = [scenario.user("hi"), scenario.agent(), scenario.succeed()]

    result = await ScenarioExecutor("case", "", [a_user(), an_agent(blank)], steps).run()

    assert (result.success, result.reason_code) == (False, "empty_response")
    assert result.reasoning == "the agent returned an empty response"


async def test_a_scenario_whose_agent_calls_a_tool_without_a_text_can_pass():
    call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    steps = [scenario.user("hi"), scenario.agent(), scenario.succeed()]

    result = await ScenarioExecutor("case", "", [a_user(), an_agent(answer)], steps).run()

    assert result.success
