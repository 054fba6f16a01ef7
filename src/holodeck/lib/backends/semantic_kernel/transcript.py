"""Reading tool calls and results back out of a chat history."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from semantic_kernel.contents import FunctionCallContent, FunctionResultContent

from holodeck.lib.backends.arguments import parse_arguments
from holodeck.lib.backends.base import ToolCall, ToolResult
from holodeck.lib.backends.semantic_kernel.calls import AgentCall

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatMessageContent


def tool_calls(call: AgentCall) -> list[ToolCall]:
    """The calls that the model asked for, in its order."""
    return [
        _tool_call(call, item)
        for message in _new_messages(call)
        for item in message.items
        if isinstance(item, FunctionCallContent)
    ]


def tool_results(call: AgentCall) -> list[ToolResult]:
    """What came of them, in the order of the calls."""
    found = {
        item.id: item
        for message in _new_messages(call)
        for item in message.items
        if isinstance(item, FunctionResultContent)
    }
    return [
        _tool_result(call, asked["name"], found[asked["call_id"]])
        for asked in tool_calls(call)
        if asked["call_id"] in found
    ]


def _new_messages(call: AgentCall) -> "Iterable[ChatMessageContent]":
    return [] if call.history is None else call.history.messages[call.first_new :]


def _tool_call(call: AgentCall, item: FunctionCallContent) -> ToolCall:
    read = call.arguments.get(item.id or "")
    arguments, error = parse_arguments(item.arguments) if read is None else read
    told = ToolCall(name=item.name or "", arguments=arguments, call_id=item.id or "")
    if error is not None:
        told["error"] = error
    return told


def _tool_result(call: AgentCall, name: str, item: FunctionResultContent) -> ToolResult:
    """The result; one that no run stands behind is Semantic Kernel's own refusal of the call."""
    result = ToolResult(name=name, call_id=item.id or "", result=item.result)
    run = call.tool_runs.get(item.id or "")
    if run is None:
        result["is_error"] = result["refused"] = call.runs_every_tool
        return result
    result["is_error"] = run.error is not None
    result["duration_ms"] = run.duration_ms
    if run.error is None:
        result["result"] = run.result
    if run.raised is not None:
        result["raised"] = run.raised
    return result
