"""Conversations and tool calls, in the words of Azure AI Evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.lib.evaluators.base import OfferedTool
from holodeck.models.test_result import ToolInvocation

JsonObject = dict[str, Any]

_KINDS = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))


def system_message(instructions: str | None) -> list[JsonObject]:
    """What the agent was told to be; nothing if that is not known."""
    return [] if instructions is None else [{"role": "system", "content": instructions}]


def user_message(text: str) -> list[JsonObject]:
    """What the user said."""
    return [{"role": "user", "content": _text(text)}]


def agent_messages(text: str, calls: Sequence[ToolInvocation] = ()) -> list[JsonObject]:
    """Return what the agent did and answered: its calls with their results, then its words."""
    steps = [step for call in tool_call_list(calls) for step in _call_and_result(call)]
    return [*steps, {"role": "assistant", "content": _text(text)}]


def tool_call_list(calls: Sequence[ToolInvocation]) -> list[JsonObject]:
    """The calls, each with what came of it."""
    return [
        {
            "type": "tool_call",
            "tool_call_id": f"call_{number}",
            "name": call.name,
            "arguments": dict(call.args),
            "tool_result": call.result if call.error is None else {"error": call.error},
        }
        for number, call in enumerate(calls, start=1)
    ]


def tool_definitions(
    offered: Sequence[OfferedTool], calls: Sequence[ToolInvocation]
) -> list[JsonObject]:
    """The tools on offer, and those that were called though nobody knows what they take."""
    known: dict[str, JsonObject] = {tool.name: _definition(tool) for tool in offered}
    seen: dict[str, JsonObject] = {}
    for call in calls:
        if call.name not in known:
            taken = seen.setdefault(call.name, {})
            taken |= {name: {"type": _kind(value)} for name, value in call.args.items()}
    return [
        *known.values(),
        *(
            {"name": name, "parameters": {"type": "object", "properties": properties}}
            for name, properties in seen.items()
        ),
    ]


def _definition(tool: OfferedTool) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }


def _call_and_result(call: Mapping[str, Any]) -> list[JsonObject]:
    asked = {key: value for key, value in call.items() if key != "tool_result"}
    result = {"type": "tool_result", "tool_result": call["tool_result"]}
    return [
        {"role": "assistant", "content": [asked]},
        {"role": "tool", "tool_call_id": call["tool_call_id"], "content": [result]},
    ]


def _text(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}]


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "object")
