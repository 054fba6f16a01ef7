"""The scorer `passfail`: an answer, the tools that were to be called, the text that was to come."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.tool_checks import matches
from holodeck.models.test_case import ArgMatcher
from holodeck.suite.results import AgentResult, ScoreResult, ToolCall
from holodeck.suite.scenario import Scenario

logger = logging.getLogger(__name__)

ONLY_AN_ANSWER = (
    "'passfail' only looks whether there is an answer; write 'expected_output', 'expected_tools'"
    " or 'expected_tool_args'"
)


_UNKNOWN = (
    "the agent's tool calls are unknown, because its adapter does not report them; return"
    " AgentResult(output=…, tool_calls=[…]), with [] if no tool was called"
)


class PassFailScorer:
    """Passes an answer that is not blank, where every expected tool was called by its exact name,
    some call of each had the expected arguments, and the expected text is in the answer, whatever
    its case.

    A scenario that expects nothing of this passes with any answer that is not blank, as in
    AgenticAssure; the explanation and a warning say so.
    """

    name: str = "passfail"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """1 if all is as expected, else 0 and what is not."""
        if scenario.expected_output == "":
            raise ConfigError("expected_output", "is empty, which every answer contains; remove it")
        wants_tools = scenario.expected_tools is not None or bool(scenario.expected_tool_args)
        if wants_tools and not result.knows_tool_calls:
            return ScoreResult(
                scenario_id=scenario.id,
                scorer_name=self.name,
                score=0,
                passed=False,
                error=_UNKNOWN,
            )
        wrong = list(_wrong(scenario, result))
        expects_nothing = _expects_nothing(scenario)
        if expects_nothing:
            logger.warning("%r: %s", scenario.name, ONLY_AN_ANSWER)
        return ScoreResult(
            scenario_id=scenario.id,
            scorer_name=self.name,
            score=0.0 if wrong else 1.0,
            passed=not wrong,
            explanation="; ".join(wrong)
            or (
                ONLY_AN_ANSWER
                if expects_nothing
                else "the answer and its tool calls are as expected"
            ),
        )


def _expects_nothing(scenario: Scenario) -> bool:
    no_tools = scenario.expected_tools is None and not scenario.expected_tool_args
    return scenario.expected_output is None and no_tools


def _wrong(scenario: Scenario, result: AgentResult) -> Iterator[str]:
    if not result.output.strip():
        yield "the agent answered nothing"
    called = {call.name for call in result.tool_calls}
    if scenario.expected_tools == [] and not scenario.expected_tool_args and called:
        yield f"no tool may be called, but {', '.join(sorted(called))} was"
    for tool in dict.fromkeys(scenario.expected_tools or ()):
        if tool not in called:
            yield f"tool {tool!r} was not called"
    for tool, wanted in (scenario.expected_tool_args or {}).items():
        calls = [call for call in result.tool_calls if call.name == tool]
        yield from _wrong_arguments(tool, wanted, calls)
    expected = scenario.expected_output
    if expected is not None and expected.lower() not in result.output.lower():
        yield f"{expected[:80]!r} is not in the answer"


def _wrong_arguments(tool: str, wanted: Mapping[str, Any], calls: list[ToolCall]) -> Iterator[str]:
    """What is wrong with the first call, unless some call is right."""
    if not calls:
        yield f"tool {tool!r} was not called, so its arguments are wrong"
        return
    differences = [list(_differences(wanted, call)) for call in calls]
    if all(differences):
        yield from (f"tool {tool!r}: {one}" for one in differences[0])


def _differences(wanted: Mapping[str, Any], call: ToolCall) -> Iterator[str]:
    for key, value in wanted.items():
        if key not in call.arguments:
            yield f"argument {key!r} is missing"
        elif not matches(ArgMatcher(equals=value), call.arguments[key]):
            found = call.arguments[key]
            yield f"argument {key!r} is {str(found)[:80]!r}; wanted {str(value)[:80]!r}"
