"""An agent's side of chat completions on the wire: what is offered, said and called."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from holodeck.lib.chat.completion import Completion, WireCall
from holodeck.lib.chat.settings import sampling
from holodeck.lib.tools.base import Tool
from holodeck.models.llm import LLMProvider

MOST_DEPTH = 100
"""Of tool arguments: deeper ones cannot be written into a report."""


def arguments_of(call: WireCall) -> tuple[dict[str, Any], str | None]:
    """The arguments as a mapping, and why they could not be read if they could not."""
    if not call.arguments.strip():
        return {}, None
    raw = {"raw": call.arguments}
    try:
        parsed = json.loads(call.arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return raw, f"the model wrote malformed arguments: {error}"
    if not isinstance(parsed, dict):
        return raw, "the model wrote arguments that are not a JSON object"
    if _is_deep(call.arguments) and _depth(parsed) > MOST_DEPTH:
        return raw, f"the model wrote arguments nested more than {MOST_DEPTH} levels deep"
    return parsed, None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_deep(text: str) -> bool:
    """Whether there are enough brackets for it to be deep; spares the walk."""
    return text.count("[") + text.count("{") > MOST_DEPTH


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        inner = [below for one in level if isinstance(one, dict) for below in one.values()]
        inner += [below for one in level if isinstance(one, list) for below in one]
        level, depth = inner, depth + 1
    return depth


def said(completion: Completion) -> dict[str, Any]:
    """The completion as a message of the conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    if completion.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in completion.calls
        ]
    return message


def fixed_part(
    llm: LLMProvider, tools: Sequence[Tool], schema: dict[str, Any] | None
) -> dict[str, Any]:
    """What every request of an agent holds besides the messages."""
    part = {"model": llm.name, **sampling(llm, schema)}
    return part | ({"tools": [_offered(tool) for tool in tools]} if tools else {})


def _offered(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
