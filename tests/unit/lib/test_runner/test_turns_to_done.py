"""After how many turns of the agent a conversation ended with success."""

import pytest

from fakes import ScriptedBackend
from holodeck.models.test_result import Outcome
from support.played import JUDGE, USER, an_agent, recorded, report_of, says, words
from support.rescore import rescore


@pytest.fixture
def run(tmp_path, fake_openai):
    """The result of a case, and the outcome when it is graded again."""

    async def run_it(case):
        agent = an_agent(fake_openai, case).with_base_dir(tmp_path)
        report = await report_of(tmp_path, agent, ScriptedBackend())
        again = await rescore(agent, recorded(*report.results))
        [result], [graded] = report.results, again.report.results
        assert graded.outcome is result.outcome
        return result

    return run_it


def simulated(most, **fields):
    return {"simulate": {"situation": "wants a recipe"}, "max_turns_to_done": most} | fields


@pytest.mark.parametrize(
    ("most", "outcome", "reason"),
    [
        (2, Outcome.PASSED, None),
        (1, Outcome.FAILED, "it took 2 turns of the agent instead of at most 1"),
    ],
)
async def test_a_judge_who_is_content_ends_it_with_success(run, fake_openai, most, outcome, reason):
    fake_openai.when(USER, says("and then?"))
    fake_openai.when(JUDGE, words("inconclusive", decision="continue"), times=1)
    fake_openai.when(JUDGE, words("passed"))

    result = await run(simulated(most, criteria=["Names a recipe"]))

    [row] = result.tool_checks
    assert row.expectation == f"done within {most} turn{'s' if most > 1 else ''} of the agent"
    assert (result.outcome, row.reason) == (outcome, reason)
    assert result.reasons() == ([] if reason is None else [reason])


async def test_a_user_who_is_done_ends_it_with_success(run, fake_openai):
    fake_openai.when(USER, says("a recipe"), times=1).when(USER, says("bye", done=True))

    result = await run(simulated(1))

    assert (result.outcome, len(result.turns)) == (Outcome.PASSED, 1)


async def test_a_criterion_that_is_missed_is_no_success_however_few_the_turns(run, fake_openai):
    fake_openai.when(USER, says("a recipe")).when(JUDGE, words("failed"))

    result = await run(simulated(3, criteria=["Names a recipe"]))

    [row] = result.tool_checks
    assert result.outcome is Outcome.FAILED
    assert row.reason == "it ended without success: criterion 'Names a recipe' was missed"


async def test_a_user_who_is_never_done_is_no_success(run, fake_openai):
    fake_openai.when(USER, says("and then?"))

    result = await run(simulated(1, max_turns=2))

    [row] = result.tool_checks
    assert result.outcome is Outcome.FAILED
    assert row.reason == "it ended without success: Reached maximum turns (2) without conclusion"


@pytest.mark.parametrize(
    ("end", "most", "outcome"),
    [
        (["succeed"], 2, Outcome.PASSED),
        (["succeed"], 1, Outcome.FAILED),
        (["fail"], 2, Outcome.FAILED),
        ([], 2, Outcome.FAILED),
    ],
    ids=["succeeded", "too late", "failed", "no conclusion"],
)
async def test_a_script_says_whether_it_ended_with_success(
    run, fake_openai, tmp_path, end, most, outcome
):
    (tmp_path / "steps.py").write_text("def look(state):\n    pass\n")
    script = [{"user": "a"}, "agent", {"user": "b"}, "agent", {"call": "steps:look"}, *end]

    result = await run({"script": script, "max_turns_to_done": most})

    assert (result.outcome, result.tool_checks[-1].passed) == (outcome, outcome is Outcome.PASSED)


async def test_checks_that_fail_do_not_change_how_the_conversation_ended(run, fake_openai):
    fake_openai.when(USER, says("a recipe"), times=1).when(USER, says("bye", done=True))
    metric = {"metric": "contains", "value": "never said"}

    result = await run(simulated(1, evaluations=[metric]))

    assert (result.outcome, result.tool_checks[-1].passed) == (Outcome.FAILED, True)


async def test_a_conversation_that_breaks_off_is_undecided(tmp_path, fake_openai):
    fake_openai.when(USER, status=400)
    agent = an_agent(fake_openai, simulated(1))

    report = await report_of(tmp_path, agent, ScriptedBackend())

    [result] = report.results
    assert (result.outcome, result.tool_checks) == (Outcome.METRIC_ERROR, [])
