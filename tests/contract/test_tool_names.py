"""Names of tools in every check that compares them: one rule, with or without a prefix."""

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.lib.evaluators.deepeval.agentic import ToolCorrectnessEvaluator
from holodeck.lib.evaluators.inputs import Observation
from holodeck.lib.evaluators.observation_metrics import PassFailEvaluator
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import ExpectedTool, TestCaseModel
from holodeck.models.test_result import ToolInvocation
from holodeck.suite import AgentResult, Scenario, ToolCall, get_scorer


async def expected_tools(name, calls):
    case = TestCaseModel.model_validate({"input": "x", "expected_tools": [{"name": name}]})
    [row] = check_tools(case, Trajectory(calls, evidence(tool_calls="backend")))
    if row.error is not None:
        raise EvaluationError(row.error)
    return row.passed, row.reason


async def passfail(name, calls):
    seen = Observation("ok", tool_calls=calls, expected_tools=[name])
    found = await PassFailEvaluator().evaluate(response="ok", observation=seen)
    return found["passed"], found["reasoning"]


async def tool_correctness(name, calls):
    evaluator = ToolCorrectnessEvaluator(threshold=1.0)
    await evaluator.prepare()
    wanted = [ExpectedTool(name=name)]
    found = await evaluator.evaluate(tools_called=calls, expected_tools=wanted)
    return found["passed"], found["reasoning"]


CHECKS = pytest.mark.parametrize(
    "check", [expected_tools, passfail, tool_correctness], ids=lambda check: check.__name__
)


def calls_of(*names):
    return tuple(ToolInvocation(name=name) for name in names)


@CHECKS
@pytest.mark.parametrize(
    ("name", "called", "passes"),
    [
        ("lookup_order", ["lookup_order"], True),
        ("lookup_order", ["OrderPlugin-lookup_order"], True),
        ("lookup_order", ["mcp__orders__lookup_order"], True),
        ("lookup_order", ["lookup_order", "OrderPlugin-lookup_order"], True),
        ("order", ["lookup_order"], False),
        ("lookup_order", [], False),
    ],
)
async def test_a_name_matches_with_or_without_the_prefix_of_a_framework(
    check, name, called, passes
):
    passed, _ = await check(name, calls_of(*called))

    assert passed is passes


@CHECKS
async def test_a_name_that_may_mean_two_tools_is_an_error(check):
    with pytest.raises(EvaluationError, match="'lookup' is ambiguous: it may be 'A-lookup' or"):
        await check("lookup", calls_of("A-lookup", "B-lookup"))


@pytest.mark.parametrize("check", [expected_tools, passfail], ids=lambda check: check.__name__)
async def test_a_call_that_a_filter_blocked_is_no_expected_one(check):
    blocked = ToolInvocation(name="lookup_order", blocked=True, error="not run")

    assert (await check("lookup_order", [blocked]))[0] is False
    assert (await check("lookup_order", [blocked, *calls_of("lookup_order")]))[0] is True


@CHECKS
async def test_a_near_miss_is_named(check):
    passed, reason = await check("lookup_ordr", calls_of("OrderPlugin-lookup_order"))

    assert not passed
    assert "did you mean 'lookup_order'?" in reason


@pytest.mark.parametrize(
    ("called", "passes", "reason"),
    [
        ("lookup_order", True, ""),
        ("OrderPlugin-lookup_order", False, "but 'OrderPlugin-lookup_order' was"),
        ("lookup_ordr", False, "did you mean 'lookup_ordr'?"),
    ],
)
def test_a_suite_of_agenticassure_compares_whole_names_and_tells_a_near_miss(
    called, passes, reason
):
    scenario = Scenario(name="s", input="x", expected_tools=["lookup_order"])
    result = AgentResult(output="ok", tool_calls=[ToolCall(name=called)])

    found = get_scorer("passfail").score(scenario, result)

    assert found.passed is passes
    assert reason in found.explanation


@pytest.mark.parametrize("check", [expected_tools, passfail], ids=lambda check: check.__name__)
async def test_a_match_with_a_prefix_shows_both_names(check):
    passed, reason = await check("lookup_order", calls_of("OrderPlugin-lookup_order"))

    assert passed
    assert "'lookup_order' matches 'OrderPlugin-lookup_order'" in reason
