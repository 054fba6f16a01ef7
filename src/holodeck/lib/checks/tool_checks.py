"""Check the tool calls and agents of a case or turn against its expectations."""

from collections.abc import Callable, Iterator, Sequence

from holodeck.errors import EvaluationError
from holodeck.lib.checks.matching import (
    ARGS_UNKNOWN,
    Comparison,
    Trajectory,
    describe_matcher,
    equal_json,
    is_in_order,
    match_approvals,
    short,
)
from holodeck.lib.support.text import plural
from holodeck.lib.support.tool_names import (
    did_you_mean_tool,
    is_forbidden,
    is_near,
    matches_tool_name,
    tools_named,
)
from holodeck.models.cases.expectations import Expectations, ExpectedTool, ForbiddenTool, ToolOrder
from holodeck.models.results.evidence import unknown_reason
from holodeck.models.results.turn import Approval
from holodeck.models.test_result import ToolCheck, ToolInvocation

NOT_RUN = (
    "it was called, but not run, because it has side effects; allow them with"
    " --allow-side-effects, or test without the call"
)
APPROVALS_UNKNOWN = "which approvals the agent asked for is unknown, because it was not recorded"
Decision = tuple[bool, str | None]
"""Whether an expectation was met, and why not, or what to know although it was."""
_ORDERS: dict[ToolOrder, tuple[str, str, str]] = {
    "exact": ("exact order: ", " → ", "the calls are not exactly"),
    "in_order": ("order: ", " → ", "not in the order"),
    "any_order": ("any order: ", ", ", "not every one has a call of its own:"),
    "superset": ("superset of: ", ", ", "not every one has a call of its own:"),
    "subset": ("subset of: ", ", ", "a call is not one of"),
}
"""Order → how its row begins, what stands between the names, and why it fails."""


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


def check_approvals(
    expectations: Expectations, asked: Sequence[Approval] | None
) -> Iterator[ToolCheck]:
    """Yield a row for each approval that a case or turn expects; `asked` is None if unknown."""
    met = [] if asked is None else match_approvals(expectations.expected_approvals, asked)
    for expected in expectations.expected_approvals:
        label = f"{expected.then} {_describe_tool(expected.call)}"
        if asked is None:
            yield ToolCheck(expectation=label, passed=False, error=APPROVALS_UNKNOWN)
            continue
        passed = expected in met
        if passed:
            met.remove(expected)
        waited = ", ".join(map(str, asked)) or "nothing"
        reason = None if passed else f"the agent did not ask for it; it asked for {waited}"
        yield ToolCheck(expectation=label, passed=passed, reason=reason)


def check_side_effects(calls: Sequence[ToolInvocation]) -> list[ToolCheck]:
    """Return a row for each tool that did not run, so that its case is not decided.

    What the agent would have done with the tool's result is unknown.
    """
    names = dict.fromkeys(call.name for call in calls if call.prevented)
    return [ToolCheck(expectation=f"run {name}", passed=False, error=NOT_RUN) for name in names]


def check_tools(case: Expectations, trajectory: Trajectory) -> Iterator[ToolCheck]:
    """Yield a row for each expectation of a case or turn about tool calls and agents.

    What is known decides as far as nothing unknown could change it: an expected call was made, or
    a forbidden call. Every other row about something unknown is an error.
    """
    expected, order, calls = case.expected_tools or (), case.order, trajectory.calls
    for tool in expected if order != "subset" else ():
        yield _check_row(_describe_tool(tool), _check_expected, tool, trajectory)
    if case.expected_tools == []:
        fault = f"no tool may be called, but {_names(calls)} was" if calls else None
        yield _check_row("no tool call", _check_faults, fault, trajectory)
    for forbidden in case.forbidden:
        label = f"no call of {', except '.join([forbidden.name, *forbidden.allow])}"
        yield _check_row(label, _check_forbidden, forbidden, expected, trajectory)
    if order is not None:
        begin, between, _ = _ORDERS[order]
        label = begin + between.join(map(_name_and_count, expected))
        yield _check_row(label, _check_order, order, expected, trajectory)
    if case.only_expected_tools:
        yield _check_row("no other tool call", _check_others, expected, trajectory)
    if case.max_tool_calls is not None:
        most, fault = case.max_tool_calls, None
        if len(calls) > most:
            number = plural(len(calls), "tool call")
            fault = f"{number} instead of at most {most}: {_names(calls)}"
        label = f"at most {plural(most, 'tool call')}"
        yield _check_row(label, _check_faults, fault, trajectory)
    if case.no_repeated_calls:
        yield _check_row("no repeated tool call", _check_repeated, trajectory)
    if case.handoffs is not None:
        yield _check_row(
            f"agents: {_path(case.handoffs)}", _check_handoffs, case.handoffs, trajectory
        )


def _check_row(expectation: str, check: Callable[..., Decision], *inputs: object) -> ToolCheck:
    try:
        passed, reason = check(*inputs)
    except EvaluationError as error:
        return ToolCheck(expectation=expectation, passed=False, error=str(error))
    return ToolCheck(expectation=expectation, passed=passed, reason=reason)


def _check_faults(fault: str | None, trajectory: Trajectory) -> Decision:
    """Decide about the calls that are known, unless others may be wrong."""
    if fault is None:
        trajectory.require_all_calls()
    return fault is None, fault


def _check_expected(expected: str | ExpectedTool, trajectory: Trajectory) -> Decision:
    if isinstance(expected, str):
        return _check_substring(expected, trajectory)
    compared = [trajectory.compare(expected, call) for call in trajectory.calls]
    calls = [comparison for comparison in compared if comparison is not None]
    met = [comparison for comparison in calls if comparison.is_met]
    if expected.count is not None:
        return _check_count(expected, expected.count, calls, trajectory)
    if met:
        return True, _note_on_name(expected, met[0].call.name)
    trajectory.require_all_calls()
    _require_known(calls)
    return False, _why_unmet(expected.name, calls, trajectory)


def _check_count(
    expected: ExpectedTool, count: int, calls: Sequence[Comparison], trajectory: Trajectory
) -> Decision:
    met = [comparison for comparison in calls if comparison.is_met]
    wrong = f"{plural(len(met), 'matching call')} of {expected.name!r} instead of {count}"
    if len(met) > count:
        return False, wrong
    trajectory.require_all_calls()
    if len(met) == count and all(call.is_met or call.differences for call in calls):
        return True, _note_on_name(expected, met[0].call.name)
    if sum(comparison.may_be_met for comparison in calls) >= count:
        _require_known(calls)
    return False, wrong if met else _why_unmet(expected.name, calls, trajectory)


def _why_unmet(name: str, calls: Sequence[Comparison], trajectory: Trajectory) -> str:
    """Return what is wrong with the last call of a tool, or that it was not called."""
    if not calls:
        return _not_called(name, trajectory)
    return f"{calls[-1].call.name!r}: " + "; ".join(calls[-1].differences)


def _require_known(calls: Sequence[Comparison]) -> None:
    """Raise EvaluationError if unknown facts decide whether a call meets its expectation."""
    for comparison in calls:
        if comparison.unknown and comparison.may_be_met:
            raise EvaluationError(comparison.unknown[0])


def _check_substring(expected: str, trajectory: Trajectory) -> Decision:
    named = [call for call in trajectory.calls if expected in call.full_name]
    matching = [call for call in named if not call.blocked]
    if not matching:
        trajectory.require_all_calls()
        if named:
            return False, f"{named[0].name!r}: it was {named[0].error}"
        return False, _not_called(expected, trajectory)
    if any(
        matches_tool_name(expected, call.name) or expected in (call.server, call.full_name)
        for call in matching
    ):
        return True, None
    part = f"{expected!r} is only a part of {matching[0].full_name!r}"
    return True, f"{part}; write '{{name: …}}' for a whole name"


def _note_on_name(expected: ExpectedTool, called: str) -> str | None:
    if expected.match == "substring" or expected.name == called:
        return None
    return f"{expected.name!r} matches {called!r}"


def _not_called(name: str, trajectory: Trajectory) -> str:
    """Return what was called instead, and which of the known tools may be meant."""
    withheld = [tool for tool in trajectory.withheld if matches_tool_name(name, tool)]
    if withheld:
        return (
            f"no call of {name!r}: tool_filtering never offered {withheld[0]!r} to the model;"
            " add it to 'always_include', or raise 'top_k'"
        )
    hint = did_you_mean_tool(name, trajectory.names)
    return f"no call of {name!r}; called: {_names(trajectory.calls)}{hint}"


def _check_forbidden(
    forbidden: ForbiddenTool, expected: Sequence[str | ExpectedTool], trajectory: Trajectory
) -> Decision:
    name, tools = forbidden.name, trajectory.tools
    names = [
        tool
        for tool in dict.fromkeys(call.name for call in trajectory.calls)
        if not any(is_forbidden(tool, allowed) for allowed in forbidden.allow)
    ]
    called = [tool for tool in names if is_forbidden(tool, name, tools)]
    if called:
        full = "" if name in called else f" as {called[0]!r}"
        return False, f"{name!r} is forbidden, but was called{full}"
    trajectory.require_all_calls()
    if not any(is_forbidden(tool, name, tools) for tool in tools):  # no tool is known to be meant
        meant = [tool if isinstance(tool, str) else tool.name for tool in expected]
        others = {tool for name in meant for tool in tools_named(name, trajectory.names)}
        similar = [tool for tool in names if tool not in others and is_near(name, tool)]
        if similar:
            raise EvaluationError(_near_calls(forbidden, similar))
    return True, None


def _near_calls(forbidden: ForbiddenTool, similar: Sequence[str]) -> str:
    name, called = forbidden.name, similar[0]
    pattern = f"*{name}" if called.endswith(name) else f"{name}*"
    meant = pattern if is_forbidden(called, pattern) else called
    allow = [*forbidden.allow, *similar]
    return (
        f"{name!r} is forbidden, and {called!r} was called, which may be the same tool; write"
        f" {meant!r} to forbid it, or {{name: {name!r}, allow: {allow}}} if it is another"
    )


def _check_order(
    order: ToolOrder, expected: Sequence[str | ExpectedTool], trajectory: Trajectory
) -> Decision:
    if is_in_order(order, expected, trajectory):
        return True, None
    _, between, reason = _ORDERS[order]
    names = between.join(map(_name_and_count, expected))
    return False, f"{reason} {names}; called: {_names(trajectory.calls)}"


def _check_others(expected: Sequence[str | ExpectedTool], trajectory: Trajectory) -> Decision:
    """Check that every call is of an expected tool, whatever its arguments."""
    others = [
        call
        for call in trajectory.calls
        if not any(trajectory.is_call_of(tool, call) for tool in expected)
    ]
    fault = f"only expected tools may be called, but {_names(others)} was" if others else None
    return _check_faults(fault, trajectory)


def _check_repeated(trajectory: Trajectory) -> Decision:
    """Check that no tool is called twice with equal arguments."""
    by_name: dict[str, list[ToolInvocation]] = {}
    for call in trajectory.calls:
        by_name.setdefault(call.name, []).append(call)
    for name, calls in by_name.items():
        for at, call in enumerate(calls):
            if any(_is_same_call(call, earlier) for earlier in calls[:at]):
                arguments = ", ".join(f"{key}={short(value)}" for key, value in call.args.items())
                return False, f"{name}({arguments}) was called more than once"
    trajectory.require_all_calls()
    for calls in by_name.values():
        if len(calls) > 1 and any("args" in call.unknown for call in calls):
            raise EvaluationError(ARGS_UNKNOWN.format(name=calls[0].name))
    return True, None


def _is_same_call(call: ToolInvocation, other: ToolInvocation) -> bool:
    are_known = "args" not in call.unknown and "args" not in other.unknown
    return are_known and equal_json(call.args, other.args)


def _check_handoffs(expected: Sequence[str], trajectory: Trajectory) -> Decision:
    spoke = list(trajectory.agents)
    left = iter(expected)
    if trajectory.evidence.agents is None and all(name in left for name in spoke):
        raise EvaluationError(unknown_reason("agents"))  # the others may be the missing ones
    if spoke == list(expected):
        return True, None
    return False, f"the agents spoke in the order {_path(spoke) or 'of none'}"


def _name_and_count(expected: str | ExpectedTool) -> str:
    if isinstance(expected, str):
        return expected
    return expected.name + (f" × {expected.count}" if (expected.count or 1) > 1 else "")


def _describe_tool(expected: str | ExpectedTool) -> str:
    if isinstance(expected, str):
        return expected
    name = expected.name if expected.match == "exact" else f"*{expected.name}*"
    arguments = ", ".join(
        f"{key}={describe_matcher(matcher)}" for key, matcher in expected.matchers().items()
    )
    result = expected.result_matcher()
    parts = [
        f"{name}({arguments})",
        "" if expected.agent is None else f"by {expected.agent}",
        "" if expected.error is None else "failing" if expected.error else "without error",
        "" if result is None else f"→ {describe_matcher(result)}",
        "" if expected.count is None else f"× {expected.count}",
    ]
    return " ".join(filter(None, parts))


def _path(names: Sequence[str]) -> str:
    return " → ".join(names)


def _names(calls: Sequence[ToolInvocation]) -> str:
    return ", ".join(call.name for call in calls) or "nothing"
