"""An agent's side of chat completions on the wire: what is offered, said and called."""

from collections.abc import Sequence
from typing import Any

from holodeck.lib.chat.completion import Completion
from holodeck.lib.chat.settings import sampling
from holodeck.lib.tools.base import Tool
from holodeck.models.llm import LLMProvider


def assistant_message(completion: Completion) -> dict[str, Any]:
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


def request_template(
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
