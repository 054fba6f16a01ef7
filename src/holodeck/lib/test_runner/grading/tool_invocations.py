"""Pair the tool calls of an agent with their results."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from holodeck.lib.backends.base import ExecutionResult, RequestedCall, ToolResult
from holodeck.lib.support.tool_names import tools_named
from holodeck.models.test_result import NO_RESULT, ToolInvocation

BLOCKED = "not run, because a filter or middleware of the agent kept it from running"


def pair_tool_calls(
    calls: Sequence[RequestedCall], results: Sequence[ToolResult]
) -> list[ToolInvocation]:
    """Return an invocation for each call; results are matched by call id, or name and order."""
    left = list(results)
    return [_invocation(call, _pop_result(call, left)) for call in calls]


def _pop_result(call: RequestedCall, left: list[ToolResult]) -> ToolResult | None:
    for index, result in enumerate(left):
        if _is_result_of(call, result):
            return left.pop(index)
    return None


def _is_result_of(call: RequestedCall, result: ToolResult) -> bool:
    if call.get("call_id") or result.get("call_id"):
        return call.get("call_id") == result.get("call_id")
    return call["name"] == result["name"]


def _invocation(call: RequestedCall, result: ToolResult | None) -> ToolInvocation:
    value = None if result is None else result.get("result")
    return ToolInvocation(
        name=call["name"],
        args=call.get("arguments", {}),
        result=value,
        bytes=len(json.dumps(value, default=str).encode()) if result is not None else 0,
        duration_ms=None if result is None else result.get("duration_ms"),
        error=_error(call, result),
        raised=None if result is None else result.get("raised"),
        agent=call.get("agent"),
        server=None if result is None else result.get("server"),
        passages=None if result is None else result.get("passages"),
        model_cost=None if result is None else result.get("model_cost"),
        blocked=result is not None and result.get("blocked", False),
        prevented=result is not None and result.get("prevented", False),
        unknown=list(_unknown_facts(call, result)),
    )


def _unknown_facts(
    call: RequestedCall, result: ToolResult | None
) -> Iterator[Literal["args", "error"]]:
    if "arguments" not in call:
        yield "args"
    if result is not None and result.get("is_error_unknown"):
        yield "error"


def _error(call: RequestedCall, result: ToolResult | None) -> str | None:
    if "error" in call:
        return call["error"]
    if result is None:
        return NO_RESULT
    if result.get("blocked"):
        answer = result.get("result")
        return BLOCKED if answer is None else f"{BLOCKED}: {answer}"
    return str(result.get("result", "the tool failed")) if result.get("is_error") else None


def invalid_tool_calls(answer: ExecutionResult) -> list[str]:
    """Return why calls never reached a tool, one line each."""
    calls = answer.tool_calls or ()
    lines = [f"{call['name']}: {call['error']}" for call in calls if "error" in call]
    malformed = {call.get("call_id") for call in calls if "error" in call}
    return lines + [
        f"{result['name']}: {_one_line(result.get('result'))}"
        for result in answer.tool_results
        if result.get("refused") and result.get("call_id") not in malformed
    ]


def refuse_last_call(answer: ExecutionResult, error: str) -> bool:
    """Note that the framework ended the turn because it refused the last call.

    It did if the error names the tool of a call without a result, and says of a tool that the agent
    does not have that it was not found, or the framework refused a call of it before.
    """
    answered = {result.get("call_id") for result in answer.tool_results}
    refused = {returned["name"] for returned in answer.tool_results if returned.get("refused")}
    for call in answer.tool_calls or ():
        name, call_id = call["name"], call.get("call_id", "")
        is_unknown = answer.tools is not None and not tools_named(name, answer.tools)
        is_invalid = name in refused or (is_unknown and "not found" in error)
        if call_id not in answered and name in error and is_invalid:
            result = ToolResult(name=name, call_id=call_id, result=error)
            answer.tool_results.append(result | {"is_error": True, "refused": True})
            return True
    return False


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:300]
