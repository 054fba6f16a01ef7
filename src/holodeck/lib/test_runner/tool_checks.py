"""Tool calls of a case: pair them with their results and compare them with the expectations."""

import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.backends.base import ToolCall, ToolResult
from holodeck.lib.patterns import compiled, find
from holodeck.lib.text import plural
from holodeck.lib.tools.names import is_whole_name
from holodeck.models.evidence import Evidence, unknown_reason
from holodeck.models.test_case import (
    ArgMatcher,
    ExpectedTool,
    NumberMatcher,
    TestCaseModel,
    TurnModel,
)
from holodeck.models.test_result import TestResult, ToolCheck, ToolInvocation

MATCH_SECONDS = 1.0


def validate_tool_calls(actual: list[str], expected: list[str] | None) -> bool | None:
    """Whether each expected name is part of the name of some call.

    Args:
        actual: Names of the tools that were called.
        expected: Names to find, each as a part of a name; None means that nothing is checked, an
            empty list that no tool may be called.

    Returns:
        True or False; None if nothing is checked.

    Examples:
        >>> validate_tool_calls(["vectorstore-search"], ["search"])
        True
        >>> validate_tool_calls(["fetch"], ["search"])
        False
        >>> validate_tool_calls(["delete"], [])
        False
    """
    if expected is None:
        return None
    if not expected:
        return not actual
    return all(any(name in called for called in actual) for name in expected)


def check_tools(
    case: TurnModel, calls: Sequence[ToolInvocation], evidence: Evidence
) -> list[ToolCheck]:
    """Return a row for each expectation of a case or turn about tools; none if it has none.

    If the evidence does not hold all tool calls, a row stands only if the calls that are known
    decide it: one that was wanted is there, or one that must not be. Every other row is an error.
    """
    known = evidence.tool_calls is not None
    rows = []
    for wanted in case.expected_tools or ():
        row = _check_wanted(wanted, calls)
        is_certain = row.passed and (isinstance(wanted, str) or wanted.count is None)
        rows.append(row if known or is_certain else _undecided(row))
    if case.expected_tools == []:
        rows.append(_unless_absent(_check_no_call(calls), known=known))
    forbidden = [_check_forbidden(name, calls) for name in case.forbidden_tools or ()]
    rows += [_unless_absent(row, known=known) for row in forbidden]
    if case.tool_order and case.expected_tools:
        row = _check_order(case.expected_tools, calls)
        rows.append(row if known or row.passed else _undecided(row))
    if case.only_expected_tools and case.expected_tools:
        rows.append(_unless_absent(_check_others(case.expected_tools, calls), known=known))
    return rows


def _unless_absent(row: ToolCheck, *, known: bool) -> ToolCheck:
    """Return the row that wants some call to be absent; calls that nobody saw prove no absence."""
    return row if known or not row.passed else _undecided(row)


def _undecided(row: ToolCheck) -> ToolCheck:
    return ToolCheck(expectation=row.expectation, passed=False, error=unknown_reason("tool_calls"))


def _check_no_call(calls: Sequence[ToolInvocation]) -> ToolCheck:
    reason = f"no tool may be called, but {_names(calls)} was"
    return ToolCheck(expectation="no tool call", passed=not calls, reason=_if(calls, reason))


def _check_wanted(wanted: str | ExpectedTool, calls: Sequence[ToolInvocation]) -> ToolCheck:
    if isinstance(wanted, str):
        return _check_substring(wanted, calls)
    return _check_strict(wanted, calls)


def _check_substring(wanted: str, calls: Sequence[ToolInvocation]) -> ToolCheck:
    met_by = [call.name for call in calls if wanted in call.name]
    missing = f"no call of {wanted!r}; called: {_names(calls)}"
    reason = _only_a_part(wanted, met_by) if met_by else missing
    return ToolCheck(expectation=wanted, passed=bool(met_by), reason=reason)


def _only_a_part(wanted: str, met_by: Sequence[str]) -> str | None:
    """What to say of an expectation that only a part of a tool's name met."""
    if any(is_whole_name(wanted, name) for name in met_by):
        return None
    return f"{wanted!r} is only a part of {met_by[0]!r}; write '{{name: …}}' for a whole name"


def _check_strict(wanted: ExpectedTool, calls: Sequence[ToolInvocation]) -> ToolCheck:
    named = [call for call in calls if _name_fits(wanted, call)]
    matching = [call for call in named if not _differences(wanted, call)]
    passed = len(matching) == wanted.count if wanted.count is not None else bool(matching)
    return ToolCheck(
        expectation=_in_words(wanted),
        passed=passed,
        reason=_if(not passed, _why_not(wanted, calls, named, matching)),
    )


def _why_not(
    wanted: ExpectedTool,
    calls: Sequence[ToolInvocation],
    named: Sequence[ToolInvocation],
    matching: Sequence[ToolInvocation],
) -> str:
    if not named:
        return f"no call of {wanted.name!r}; called: {_names(calls)}"
    if wanted.count is not None and matching:
        found = plural(len(matching), "matching call")
        return f"{found} of {wanted.name!r} instead of {wanted.count}"
    return f"{wanted.name!r}: " + "; ".join(_differences(wanted, named[-1]))


def _check_forbidden(name: str, calls: Sequence[ToolInvocation]) -> ToolCheck:
    called = any(call.name == name for call in calls)
    reason = f"{name!r} is forbidden, but was called"
    return ToolCheck(
        expectation=f"no call of {name}", passed=not called, reason=_if(called, reason)
    )


def _check_order(
    expected: Sequence[str | ExpectedTool], calls: Sequence[ToolInvocation]
) -> ToolCheck:
    """Whether the expectations can be met by calls in the order written, others in between."""
    remaining = iter(calls)
    in_order = all(any(_fits(wanted, call) for call in remaining) for wanted in expected)
    order = " → ".join(wanted if isinstance(wanted, str) else wanted.name for wanted in expected)
    reason = f"not in the order {order}; called: {_names(calls)}"
    return ToolCheck(
        expectation=f"order: {order}", passed=in_order, reason=_if(not in_order, reason)
    )


def _check_others(
    expected: Sequence[str | ExpectedTool], calls: Sequence[ToolInvocation]
) -> ToolCheck:
    """Whether every call is of a tool that is expected, whatever its arguments."""
    others = [call for call in calls if not any(_is_of(wanted, call) for wanted in expected)]
    reason = f"only expected tools may be called, but {_names(others)} was"
    return ToolCheck(
        expectation="no other tool call", passed=not others, reason=_if(others, reason)
    )


def _is_of(wanted: str | ExpectedTool, call: ToolInvocation) -> bool:
    return wanted in call.name if isinstance(wanted, str) else _name_fits(wanted, call)


def _fits(wanted: str | ExpectedTool, call: ToolInvocation) -> bool:
    is_of = _is_of(wanted, call)
    return is_of and (isinstance(wanted, str) or not _differences(wanted, call))


def _name_fits(wanted: ExpectedTool, call: ToolInvocation) -> bool:
    return wanted.name == call.name if wanted.match == "exact" else wanted.name in call.name


def _differences(wanted: ExpectedTool, call: ToolInvocation) -> list[str]:
    """What is wrong with the arguments of a call, in words."""
    return [
        f"argument {name!r} is missing"
        if name not in call.args
        else f"argument {name!r} is {_short(call.args[name])}, not {_matcher_in_words(matcher)}"
        for name, matcher in wanted.matchers().items()
        if name not in call.args or not matches(matcher, call.args[name])
    ]


def matches(matcher: ArgMatcher, value: Any) -> bool:
    """Whether an argument is as the matcher wants it. Raises EvaluationError on a slow pattern."""
    if matcher.regex is not None:
        return _regex_matches(matcher.regex, value)
    if matcher.number is not None:
        return _number_matches(matcher.number, value)
    if matcher.fuzzy is not None:
        return _fuzzy(matcher.fuzzy) == _fuzzy(value)
    return _same(matcher.equals, value)


def _regex_matches(pattern: str, value: Any) -> bool:
    text = value if isinstance(value, str) else str(value)
    try:
        return find(compiled(pattern), text, MATCH_SECONDS, whole=True) is not None
    except TimeoutError as error:
        raise EvaluationError(
            f"the pattern {pattern!r} takes longer than {MATCH_SECONDS:g} s; simplify it"
        ) from error


def _number_matches(wanted: NumberMatcher, value: Any) -> bool:
    number = _number(value)
    return number is not None and math.isclose(
        number,
        wanted.value,
        rel_tol=wanted.relative_tolerance,
        abs_tol=wanted.absolute_tolerance,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _fuzzy(value: Any) -> str | float:
    """The value without what people write differently: case, spaces, separators, percent signs."""
    text = re.sub(r"[\s,_]", "", str(value)).casefold()
    number = _number(text.removesuffix("%"))
    if number is None:
        return text
    return round(number / 100 if text.endswith("%") else number, 9)


def _same(wanted: Any, value: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, but true is not 1."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(_same(wanted[k], value[k]) for k in wanted)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(_same, wanted, value))
    return (type(wanted) is type(value) and wanted == value) or _both_numbers_equal(wanted, value)


def _both_numbers_equal(wanted: Any, value: Any) -> bool:
    return isinstance(wanted, int | float) and isinstance(value, int | float) and wanted == value


def _in_words(wanted: ExpectedTool) -> str:
    name = wanted.name if wanted.match == "exact" else f"*{wanted.name}*"
    arguments = ", ".join(
        f"{key}={_matcher_in_words(matcher)}" for key, matcher in wanted.matchers().items()
    )
    return f"{name}({arguments})" + (f" × {wanted.count}" if wanted.count is not None else "")


def _matcher_in_words(matcher: ArgMatcher) -> str:
    if matcher.regex is not None:
        return f"/{matcher.regex}/"
    if matcher.number is not None:
        return f"{matcher.number.value:g}"
    if matcher.fuzzy is not None:
        return f"≈{matcher.fuzzy!r}"
    return _short(matcher.equals)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _names(calls: Sequence[ToolInvocation]) -> str:
    return ", ".join(call.name for call in calls) or "nothing"


def _if(condition: object, text: str) -> str | None:
    return text if condition else None


_PREFIX = re.compile(r".*[.:/]")
"""`functions.` and the like, which some libraries write before a tool's name."""


def misnamed_tools(
    case: TestCaseModel, result: TestResult, known: Collection[str]
) -> Iterator[str]:
    """A sentence for each forbidden name that is nearly the name of a tool that was called.

    Names are compared as they are written, so such a check passes although the tool was called.
    `known` are tools that the agent has; a name of one of them is meant as it is.
    """
    called = dict.fromkeys(one.name for one in result.tool_invocations)
    parts = [case, *(part for _, part in case.parts)]
    forbidden = dict.fromkeys(name for part in parts for name in part.forbidden_tools or ())
    for name in forbidden:
        near = [tool for tool in called if _is_near(name, tool)]
        if near and name not in called and name not in known:
            yield (
                f"the tool {name!r} is forbidden, and {near[0]!r} was called; names are compared"
                " as they are written, so correct the name if that tool is meant"
            )


def _is_near(written: str, tool: str) -> bool:
    """Whether two names differ in case, in signs, in a prefix, or in one letter at most.

    One letter more, one less, or two that changed places; another letter (`get`, `set`) is another
    word.
    """
    ours, theirs = _letters(written), _letters(tool)
    if ours == theirs or _letters(_PREFIX.sub("", written)) == theirs:
        return True
    shorter, longer = sorted((ours, theirs), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
    swapped = (ours[:at] + ours[at + 1] + ours[at] + ours[at + 2 :] for at in range(len(ours) - 1))
    return len(shorter) == len(longer) and theirs in swapped


def _letters(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


NO_RESULT = "no result received"


def pair_tool_calls(
    calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> list[ToolInvocation]:
    """One invocation for each call, in order; results go by call id, else by name and order."""
    left = list(results)
    return [_invocation(call, _take(call, left)) for call in calls]


def _take(call: ToolCall, left: list[ToolResult]) -> ToolResult | None:
    for index, result in enumerate(left):
        if _belongs(call, result):
            return left.pop(index)
    return None


def _belongs(call: ToolCall, result: ToolResult) -> bool:
    if call.get("call_id") or result.get("call_id"):
        return call.get("call_id") == result.get("call_id")
    return call["name"] == result["name"]


def _invocation(call: ToolCall, result: ToolResult | None) -> ToolInvocation:
    value = None if result is None else result.get("result")
    return ToolInvocation(
        name=call["name"],
        args=call.get("arguments", {}),
        result=value,
        bytes=len(json.dumps(value, default=str).encode()) if result is not None else 0,
        duration_ms=None if result is None else result.get("duration_ms"),
        error=_error(call, result),
        raised=None if result is None else result.get("raised"),
    )


def _error(call: ToolCall, result: ToolResult | None) -> str | None:
    if "error" in call:
        return call["error"]
    if result is None:
        return NO_RESULT
    return str(result.get("result", "the tool failed")) if result.get("is_error") else None


def refusals(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[str]:
    """What is wrong with calls that never reached a tool, one line each."""
    lines = [f"{call['name']}: {call['error']}" for call in calls if "error" in call]
    malformed = {call.get("call_id") for call in calls if "error" in call}
    return lines + [
        f"{result['name']}: {_one_line(result.get('result'))}"
        for result in results
        if result.get("refused") and result.get("call_id") not in malformed
    ]


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:300]
