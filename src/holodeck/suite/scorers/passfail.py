"""The scorer `passfail`: an answer, its text and the tool calls are as expected."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.checks.matching import matches
from holodeck.lib.support.text import is_blank
from holodeck.lib.support.tool_names import did_you_mean_tool, tools_named
from holodeck.models.test_case import ArgMatcher
from holodeck.suite.results import AgentResult, ScoreResult, ToolCall
from holodeck.suite.scenario import Scenario
from holodeck.suite.scorers.base import BuiltInScorer

logger = logging.getLogger(__name__)

ONLY_AN_ANSWER = (
    "'passfail' only checks that there is an answer; write 'expected_output', 'expected_tools'"
    " or 'expected_tool_args'"
)
UNKNOWN_TOOL_CALLS = (
    "the agent's tool calls are unknown, because its adapter does not report them; return"
    " AgentResult(output=…, tool_calls=[…]), with [] if no tool was called"
)


class PassFailScorer(BuiltInScorer):
    """Passes an answer that is not blank if it contains the expected text in any letter case, every
    expected tool was called by its exact name, and one call of each has the expected arguments.

    A scenario that expects none of this passes with any answer that is not blank, as in
    AgenticAssure; the explanation and a warning say so.
    """

    name: str = "passfail"

    def _score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return 1 if everything is as expected, else 0 with the differences."""
        if scenario.expected_output == "":
            raise ConfigError("expected_output", "is empty, which every answer contains; remove it")
        expects_tools = scenario.expected_tools is not None or bool(scenario.expected_tool_args)
        if expects_tools and not result.knows_tool_calls:
            raise EvaluationError(UNKNOWN_TOOL_CALLS)
        wrong = list(_differences_from_expected(scenario, result))
        explanation = "; ".join(wrong) or "the answer and its tool calls are as expected"
        if scenario.expected_output is None and not expects_tools:
            logger.warning("%r: %s", scenario.name, ONLY_AN_ANSWER)
            explanation = "; ".join(wrong) or ONLY_AN_ANSWER
        return self._row(scenario, float(not wrong), passed=not wrong, explanation=explanation)


def _differences_from_expected(scenario: Scenario, result: AgentResult) -> Iterator[str]:
    if is_blank(result.output):
        yield "the agent answered nothing"
    called = {call.name for call in result.tool_calls}
    if scenario.expected_tools == [] and not scenario.expected_tool_args and called:
        yield f"no tool may be called, but {', '.join(sorted(called))} was"
    for tool in dict.fromkeys(scenario.expected_tools or ()):
        if tool not in called:
            yield f"tool {tool!r} was not called{_near_miss(tool, sorted(called))}"
    for tool, arguments in (scenario.expected_tool_args or {}).items():
        calls = [call for call in result.tool_calls if call.name == tool]
        if not calls:
            yield f"tool {tool!r} was not called, so its arguments are wrong"
        differences = [list(_argument_differences(arguments, call)) for call in calls]
        if differences and all(differences):  # of the first call, as none is right
            yield from (f"tool {tool!r}: {difference}" for difference in differences[0])
    expected = scenario.expected_output
    if expected is not None and expected.lower() not in result.output.lower():
        yield f"{expected[:80]!r} is not in the answer"


def _near_miss(tool: str, called: Sequence[str]) -> str:
    """Return which called tool may be meant; names are compared whole, as in AgenticAssure."""
    with_prefix = tools_named(tool, called)
    if with_prefix:
        return f", but {with_prefix[0]!r} was; names are compared whole here, so write that one"
    return did_you_mean_tool(tool, called)


def _argument_differences(expected: Mapping[str, Any], call: ToolCall) -> Iterator[str]:
    for key, value in expected.items():
        if key not in call.arguments:
            yield f"argument {key!r} is missing"
        elif not matches(ArgMatcher(equals=value), call.arguments[key]):
            written = str(call.arguments[key])[:80]
            yield f"argument {key!r} is {written!r}; expected {str(value)[:80]!r}"
