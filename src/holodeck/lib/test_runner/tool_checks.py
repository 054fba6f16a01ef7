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
from holodeck.lib.tools.names import matches_tool_name
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
    """Return whether each expected name is part of the name of some call.

    Args:
        actual: Names of the tools that were called.
        expected: Names to find, each as a part of a name. None: nothing is checked. An empty
            list: no tool may be called.

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
    """Return a row for each expectation of a case or turn about tools.

    If not all tool calls are known, a row is valid only if the known calls decide it: an expected
    call was made, or a forbidden one. Every other row is an error.
    """
    known = evidence.tool_calls is not None
    rows = []
    for expected in case.expected_tools or ():
        row = _check_expected(expected, calls)
        is_certain = row.passed and (isinstance(expected, str) or expected.count is None)
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
    """Return the row, which passes if a call is absent; unknown calls prove no absence."""
    return row if known or not row.passed else _undecided(row)


def _undecided(row: ToolCheck) -> ToolCheck:
    return ToolCheck(expectation=row.expectation, passed=False, error=unknown_reason("tool_calls"))


def _check_no_call(calls: Sequence[ToolInvocation]) -> ToolCheck:
    reason = f"no tool may be called, but {_names(calls)} was"
    return ToolCheck(expectation="no tool call", passed=not calls, reason=_if(calls, reason))


def _check_expected(expected: str | ExpectedTool, calls: Sequence[ToolInvocation]) -> ToolCheck:
    if isinstance(expected, str):
        return _check_substring(expected, calls)
    named = [call for call in calls if _name_matches(expected, call)]
    matching = [call for call in named if not _differences(expected, call)]
    passed = len(matching) == expected.count if expected.count is not None else bool(matching)
    if passed:
        return ToolCheck(expectation=_describe_tool(expected), passed=True)
    if not named:
        reason = f"no call of {expected.name!r}; called: {_names(calls)}"
    elif expected.count is not None and matching:
        found = plural(len(matching), "matching call")
        reason = f"{found} of {expected.name!r} instead of {expected.count}"
    else:
        reason = f"{expected.name!r}: " + "; ".join(_differences(expected, named[-1]))
    return ToolCheck(expectation=_describe_tool(expected), passed=False, reason=reason)


def _check_substring(expected: str, calls: Sequence[ToolInvocation]) -> ToolCheck:
    matching = [call.name for call in calls if expected in call.name]
    if not matching:
        reason: str | None = f"no call of {expected!r}; called: {_names(calls)}"
    elif any(matches_tool_name(expected, name) for name in matching):
        reason = None
    else:
        part = f"{expected!r} is only a part of {matching[0]!r}"
        reason = f"{part}; write '{{name: …}}' for a whole name"
    return ToolCheck(expectation=expected, passed=bool(matching), reason=reason)


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
    in_order = all(any(_matches_tool(one, call) for call in remaining) for one in expected)
    order = " → ".join(one if isinstance(one, str) else one.name for one in expected)
    reason = f"not in the order {order}; called: {_names(calls)}"
    return ToolCheck(
        expectation=f"order: {order}", passed=in_order, reason=_if(not in_order, reason)
    )


def _check_others(
    expected: Sequence[str | ExpectedTool], calls: Sequence[ToolInvocation]
) -> ToolCheck:
    """Check that every call is of an expected tool, whatever its arguments."""
    others = [call for call in calls if not any(_is_call_of(one, call) for one in expected)]
    reason = f"only expected tools may be called, but {_names(others)} was"
    return ToolCheck(
        expectation="no other tool call", passed=not others, reason=_if(others, reason)
    )


def _is_call_of(expected: str | ExpectedTool, call: ToolInvocation) -> bool:
    return expected in call.name if isinstance(expected, str) else _name_matches(expected, call)


def _matches_tool(expected: str | ExpectedTool, call: ToolInvocation) -> bool:
    if not _is_call_of(expected, call):
        return False
    return isinstance(expected, str) or not _differences(expected, call)


def _name_matches(expected: ExpectedTool, call: ToolInvocation) -> bool:
    return expected.name == call.name if expected.match == "exact" else expected.name in call.name


def _differences(expected: ExpectedTool, call: ToolInvocation) -> list[str]:
    """Return what is wrong with the arguments of a call."""
    return [
        f"argument {name!r} is missing"
        if name not in call.args
        else f"argument {name!r} is {_short(call.args[name])}, not {_describe_matcher(matcher)}"
        for name, matcher in expected.matchers().items()
        if name not in call.args or not matches(matcher, call.args[name])
    ]


def matches(matcher: ArgMatcher, value: Any) -> bool:
    """Return whether an argument matches. Raises EvaluationError for a pattern that is too slow."""
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
        return find(compiled(pattern), text, MATCH_SECONDS, whole=True) is not None
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


def _describe_tool(expected: ExpectedTool) -> str:
    name = expected.name if expected.match == "exact" else f"*{expected.name}*"
    arguments = ", ".join(
        f"{key}={_describe_matcher(matcher)}" for key, matcher in expected.matchers().items()
    )
    return f"{name}({arguments})" + (f" × {expected.count}" if expected.count is not None else "")


def _describe_matcher(matcher: ArgMatcher) -> str:
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


_SEPARATORS = re.compile(r"[^\w]+")
"""What stands after a prefix such as `functions.`, and between two names written as one."""


def misnamed_tools(
    case: TestCaseModel, result: TestResult, known: Collection[str]
) -> Iterator[str]:
    """Return a note for each forbidden name that looks like the misspelt name of a called tool.

    Names are compared exactly, so such a check passes although the tool was called. `known` are
    tools of the agent, whose names are not misspelt.
    """
    called = dict.fromkeys(one.name for one in result.tool_invocations)
    parts = [case, *(part for _, part in case.parts)]
    forbidden = dict.fromkeys(name for part in parts for name in part.forbidden_tools or ())
    for name in forbidden:
        similar = [tool for tool in called if _is_similar(name, tool)]
        if similar and name not in called and name not in known:
            yield (
                f"the tool {name!r} is forbidden, and {similar[0]!r} was called; names are compared"
                " exactly, so correct the name if that tool is meant"
            )


def _is_similar(written: str, tool: str) -> bool:
    """Whether two names differ in case, punctuation or one slip of letters, or one holds both.

    A slip is a letter more or less, or two letters that are swapped; a different letter makes a
    different word (`get`, `set`).
    """
    ours, theirs = _letters(written), _letters(tool)
    if ours == theirs or any(_letters(part) == theirs for part in _SEPARATORS.split(written)):
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
    """Return an invocation for each call; results are matched by call id, or name and order."""
    left = list(results)
    return [_invocation(call, _pop_result(call, left)) for call in calls]


def _pop_result(call: ToolCall, left: list[ToolResult]) -> ToolResult | None:
    for index, result in enumerate(left):
        if _is_result_of(call, result):
            return left.pop(index)
    return None


def _is_result_of(call: ToolCall, result: ToolResult) -> bool:
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


def invalid_tool_calls(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[str]:
    """Return why calls never reached a tool, one line each."""
    lines = [f"{call['name']}: {call['error']}" for call in calls if "error" in call]
    malformed = {call.get("call_id") for call in calls if "error" in call}
    return lines + [
        f"{result['name']}: {_one_line(result.get('result'))}"
        for result in results
        if result.get("refused") and result.get("call_id") not in malformed
    ]


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:300]
