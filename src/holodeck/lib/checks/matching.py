"""Which tool calls of a case or turn meet an expectation, and in which order, as far as known."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.support.patterns import compile_pattern, find
from holodeck.lib.support.tool_names import find_tool
from holodeck.models.cases.expectations import ExpectedApproval, ExpectedTool, ToolOrder
from holodeck.models.cases.matchers import ArgMatcher, NumberMatcher, ResultMatcher
from holodeck.models.results.evidence import Evidence, evidence, unknown_reason
from holodeck.models.results.turn import Approval
from holodeck.models.test_result import ToolInvocation

MATCH_SECONDS = 1.0
"""How long a pattern may take."""
RESULT_UNKNOWN = (
    "the result of {name!r} is unknown; return it as 'result' of the tool call, or in"
    " 'tool_results', from Python code"
)
ARGS_UNKNOWN = (
    "the arguments of {name!r} are unknown; return the tool call as {{'name': …, 'arguments': …}}"
    " from Python code"
)
AGENT_UNKNOWN = (
    "the agent that requested {name!r} is unknown; return it as 'agent' of the tool call from"
    " Python code, or test the object of a framework that reports it"
)
ERROR_UNKNOWN = (
    "whether {name!r} failed is unknown, because the agent's framework does not report it; check"
    " 'result' instead"
)
Fits = Sequence[Sequence[bool]]
"""For each expected call, which calls meet it."""


@dataclass(frozen=True)
class Trajectory:
    """What is known of the tool calls and the agents of a case or turn."""

    calls: Sequence[ToolInvocation]
    """The known calls; all of them, if `evidence` says that tool calls are known."""
    evidence: Evidence
    agents: Sequence[str] = ()
    """The agents that spoke, in order, as far as they are known."""
    tools: Sequence[str] = ()
    """The tools that the agent is known to have; it may have others."""
    withheld: Sequence[str] = ()
    """The agent's tools that the model was not offered."""

    def require_all_calls(self) -> None:
        """Raise EvaluationError unless all tool calls are known."""
        if self.evidence.tool_calls is None:
            raise EvaluationError(unknown_reason("tool_calls", self.evidence))

    @cached_property
    def names(self) -> list[str]:
        """The names of all known tools."""
        return list(dict.fromkeys([*self.tools, *(call.name for call in self.calls)]))

    def is_call_of(self, expected: str | ExpectedTool, call: ToolInvocation) -> bool:
        """Whether the call is of the expected tool, whatever its arguments.

        Raises EvaluationError if the expected name may mean several tools.
        """
        if isinstance(expected, str):
            return expected in call.full_name
        if expected.match == "substring":
            return expected.name in call.full_name
        return call.name == find_tool(expected.name, self.names)

    def compare(self, expected: str | ExpectedTool, call: ToolInvocation) -> "Comparison | None":
        """Return how the call meets the expectation; None if it is of another tool."""
        if not self.is_call_of(expected, call):
            return None
        if call.blocked and (isinstance(expected, str) or not expected.error):
            return Comparison(call, [f"it was {call.error}"])
        return Comparison(call) if isinstance(expected, str) else _compare(expected, call)


def match_approvals(
    expected: Sequence[ExpectedApproval], asked: Sequence[Approval]
) -> list[ExpectedApproval | None]:
    """Return the expectation that each approval meets, every one for a single approval."""
    left, matched = list(expected), []
    for approval in asked:
        call = ToolInvocation(name=approval.tool, args=approval.args)
        trajectory = Trajectory([call], evidence())
        compared = [(one, trajectory.compare(one.call, call)) for one in left]
        met = next((one for one, fit in compared if fit is not None and fit.is_met), None)
        if met is not None:
            left.remove(met)
        matched.append(met)
    return matched


@dataclass(frozen=True)
class Comparison:
    """How a call of the expected tool meets the rest of the expectation."""

    call: ToolInvocation
    differences: list[str] = field(default_factory=list)
    """What is wrong with the call."""
    unknown: list[str] = field(default_factory=list)
    """Why it cannot be decided, if nothing is wrong."""

    @property
    def is_met(self) -> bool:
        """Whether the call certainly meets the expectation."""
        return not self.differences and not self.unknown

    @property
    def may_be_met(self) -> bool:
        """Whether nothing that is known speaks against it."""
        return not self.differences


def _compare(expected: ExpectedTool, call: ToolInvocation) -> Comparison:
    comparison = Comparison(call)
    if expected.args and "args" in call.unknown:
        comparison.unknown.append(ARGS_UNKNOWN.format(name=call.name))
    else:
        comparison.differences.extend(_differences_in_args(expected, call))
    if expected.agent is not None and call.agent is None:
        comparison.unknown.append(AGENT_UNKNOWN.format(name=call.name))
    elif expected.agent not in (None, call.agent):
        comparison.differences.append(f"requested by {call.agent!r}, not by {expected.agent!r}")
    if expected.error is not None or expected.result is not None:
        _compare_result(expected, comparison)
    return comparison


def _differences_in_args(expected: ExpectedTool, call: ToolInvocation) -> list[str]:
    return [
        f"argument {name!r} is missing"
        if name not in call.args
        else f"argument {name!r} is {_describe_mismatch(matcher, call.args[name])}"
        for name, matcher in expected.matchers().items()
        if name not in call.args or not matches(matcher, call.args[name])
    ]


def _compare_result(expected: ExpectedTool, comparison: Comparison) -> None:
    """Compare the result of a call, or its message if it must have failed."""
    call, matcher, must_fail = comparison.call, expected.result_matcher(), bool(expected.error)
    if not call.is_result_known:
        comparison.unknown.append(RESULT_UNKNOWN.format(name=call.name))
        return
    has_failed = call.error is not None
    if not has_failed and "error" in call.unknown:
        if expected.error is not None:
            comparison.unknown.append(ERROR_UNKNOWN.format(name=call.name))
    elif has_failed != must_fail:
        comparison.differences.append(
            f"it failed: {short(call.error)}" if has_failed else "it succeeded"
        )
        return
    value = call.error if has_failed else call.result
    if matcher is not None and not matches(matcher, value):
        kind = "message" if has_failed else "result"
        comparison.differences.append(f"its {kind} is {_describe_mismatch(matcher, value)}")


def is_in_order(
    order: ToolOrder, expected: Sequence[str | ExpectedTool], trajectory: Trajectory
) -> bool:
    """Return whether the calls correspond to the expected ones. Raises EvaluationError.

    It is raised if unknown calls, arguments or results decide.
    """
    most = len(trajectory.calls) + 1  # further ones change nothing
    rows: list[list[Comparison | None]] = []
    for tool in expected:
        row = [trajectory.compare(tool, call) for call in trajectory.calls]
        rows += [row] * min(1 if isinstance(tool, str) else tool.count or 1, most)
    met = [[fit is not None and fit.is_met for fit in row] for row in rows]
    perhaps = [[fit is not None and fit.may_be_met for fit in row] for row in rows]
    if trajectory.evidence.tool_calls is None:
        decided = _decide_by_part(order, met, perhaps)
        if decided is None:
            raise EvaluationError(unknown_reason("tool_calls", trajectory.evidence))
        return decided
    total = len(trajectory.calls)
    if _holds(order, met, total):
        return True
    if _holds(order, perhaps, total):
        fits = [fit for row in rows for fit in row if fit is not None and fit.may_be_met]
        raise EvaluationError(next(reason for fit in fits for reason in fit.unknown))
    return False


def _holds(order: ToolOrder, fits: Fits, total: int) -> bool:
    if order == "exact":
        return len(fits) == total and all(row[at] for at, row in enumerate(fits))
    if order == "in_order":
        return _follow(fits, total)
    if order == "subset":
        return _assign(_transposed(fits, total))
    return _assign(fits)


def _decide_by_part(order: ToolOrder, met: Fits, perhaps: Fits) -> bool | None:
    """Return what some of the calls decide already; None if others may change it."""
    total = len(met[0])
    if order == "exact":
        return None if _follow(_transposed(perhaps, total), len(perhaps)) else False
    if order == "subset":
        return None if _holds(order, perhaps, total) else False
    return True if _holds(order, met, total) else None


def _transposed(fits: Fits, total: int) -> Fits:
    return [[row[at] for row in fits] for at in range(total)]


def _follow(fits: Fits, total: int) -> bool:
    """Whether each of the first fits one of the second, in the same order."""
    left = iter(range(total))
    return all(any(row[at] for at in left) for row in fits)


def _assign(fits: Fits) -> bool:
    """Whether each of the first fits one of the second that is its own (a bipartite matching)."""
    owners: dict[int, int] = {}
    return all(_find_place(index, fits, owners) for index in range(len(fits)))


def _find_place(start: int, fits: Fits, owners: dict[int, int]) -> bool:
    """Give `start` a place of its own, for which others may move to another of theirs."""
    places = {owner: place for place, owner in owners.items()}
    wanted_by: dict[int, int] = {}
    waiting = [start]
    while waiting:
        seeker = waiting.pop()
        for place, is_fit in enumerate(fits[seeker]):
            if not is_fit or place in wanted_by:
                continue
            wanted_by[place] = seeker
            if place in owners:
                waiting.append(owners[place])
                continue
            moved: int | None = place
            while moved is not None:
                owner = wanted_by[moved]
                owners[moved] = owner
                moved = places.get(owner)
            return True
    return False


def matches(matcher: ArgMatcher, value: Any) -> bool:
    """Return whether a value matches. Raises EvaluationError for a pattern that is too slow."""
    if isinstance(matcher, ResultMatcher) and matcher.contains is not None:
        # what is not text, as JSON
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        return matcher.contains in text
    if matcher.regex is not None:
        return _regex_matches(matcher.regex, value)
    if matcher.number is not None:
        return _number_matches(matcher.number, value)
    if matcher.fuzzy is not None:
        return _normalize(matcher.fuzzy) == _normalize(value)
    return equal_json(matcher.equals, value)


def _regex_matches(pattern: str, value: Any) -> bool:
    text = value if isinstance(value, str) else str(value)
    try:
        return find(compile_pattern(pattern), text, MATCH_SECONDS, whole=True) is not None
    except TimeoutError as error:
        raise EvaluationError(
            f"the pattern {pattern!r} takes longer than {MATCH_SECONDS:g} s; simplify it"
        ) from error


def _number_matches(matcher: NumberMatcher, value: Any) -> bool:
    number = _number(value)
    return number is not None and math.isclose(
        number,
        matcher.value,
        rel_tol=matcher.relative_tolerance,
        abs_tol=matcher.absolute_tolerance,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _normalize(value: Any) -> str | float:
    """Return the value without differences in case, spaces, separators and percent signs."""
    text = re.sub(r"[\s,_]", "", str(value)).casefold()
    number = _number(text.removesuffix("%"))
    if number is None:
        return text
    return round(number / 100 if text.endswith("%") else number, 9)


def equal_json(expected: Any, value: Any) -> bool:
    """Return whether JSON values are equal: 1 equals 1.0, but true does not equal 1."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, dict) and isinstance(value, dict):
        same_keys = expected.keys() == value.keys()
        return same_keys and all(equal_json(expected[key], value[key]) for key in expected)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(equal_json, expected, value))
    are_numbers = isinstance(expected, int | float) and isinstance(value, int | float)
    return (are_numbers or type(expected) is type(value)) and bool(expected == value)


def _describe_mismatch(matcher: ArgMatcher, value: Any) -> str:
    """Return a value, and what it must be; a metric's pattern would search in the text."""
    whole = "" if matcher.regex is None else ", which must match all of it"
    return f"{short(value)}, not {describe_matcher(matcher)}{whole}"


def describe_matcher(matcher: ArgMatcher) -> str:
    """Return what a value must be, as rows of checks show it."""
    if isinstance(matcher, ResultMatcher) and matcher.contains is not None:
        return f"*{matcher.contains}*"
    if matcher.regex is not None:
        return f"/{matcher.regex}/"
    if matcher.number is not None:
        return f"{matcher.number.value:g}"
    if matcher.fuzzy is not None:
        return f"≈{matcher.fuzzy!r}"
    return short(matcher.equals)


def short(value: Any) -> str:
    """Return the value as Python writes it, in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
