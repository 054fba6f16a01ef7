"""The tool loop of one agent turn: request a completion, run its tool calls, until it has none."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holodeck.lib.backends.arguments import parse_arguments, unique_call_id
from holodeck.lib.backends.base import ExecutionResult, ToolCall, ToolResult
from holodeck.lib.chat.client import ChatClient, RequestStats
from holodeck.lib.chat.completion import Completion, WireCall
from holodeck.lib.chat.settings import sampling
from holodeck.lib.tools.base import MOST_AT_ONCE, Tool, run_tool
from holodeck.models.llm import LLMProvider

MAX_TOOL_ROUNDS = 20

ChatMessage = dict[str, Any]


@dataclass
class ChatTurn(RequestStats):
    """One turn of an agent: its messages, tool calls and requests; readable after a failure."""

    messages: list[ChatMessage] = field(default_factory=list)
    """The whole conversation so far."""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)

    def result(self, response: str = "", error_reason: str | None = None) -> ExecutionResult:
        return ExecutionResult(
            response=response,
            tool_calls=self.tool_calls,
            tool_results=self.tool_results,
            token_usage=self.meter.known_usage,
            attempts=self.attempts,
            waited_ms=round(self.waited_s * 1000),
            is_error=error_reason is not None,
            error_reason=error_reason,
        )


class ChatLoop:
    """Requests completions from a model and runs the tools that it calls.

    Args:
        client: The client of the model's endpoint.
        template: The request body without the messages.
        tools: The tools that the model may call.
    """

    def __init__(
        self, client: ChatClient, template: Mapping[str, Any], tools: Sequence[Tool]
    ) -> None:
        self._client = client
        self._body_start = json.dumps(template)[:-1] + ', "messages": '
        self._tools = {tool.name: tool for tool in tools}

    async def run(self, turn: ChatTurn) -> ExecutionResult:
        """Complete the turn. Raises ChatFault."""
        text = ""
        for _ in range(MAX_TOOL_ROUNDS):
            completion = await self._complete(turn)
            text = completion.text or ""
            if not completion.calls:
                return turn.result(text)
            await self._run_tools(completion.calls, turn)
        return turn.result(text, f"stopped after {MAX_TOOL_ROUNDS} rounds of tool calls")

    async def _complete(self, turn: ChatTurn) -> Completion:
        body = f"{self._body_start}{json.dumps(turn.messages)}}}"
        completion = await self._client.complete(body, turn)
        if completion.calls:
            # Some providers send no ids, faulty ones the same id twice.
            calls = [
                replace(one, id=unique_call_id(one.id, turn.call_ids)) for one in completion.calls
            ]
            completion = replace(completion, calls=calls)
        turn.messages.append(assistant_message(completion))
        return completion

    async def _run_tools(self, calls: Sequence[WireCall], turn: ChatTurn) -> None:
        """Run the calls of one round concurrently; results keep the order of the calls."""
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def run(call: WireCall, arguments: dict[str, Any], error: str | None) -> "_ToolReply":
            async with slots:
                return await self._run_tool(call, arguments, error)

        parsed = [(call, *parse_arguments(call.arguments)) for call in calls]
        turn.tool_calls += [_tool_call(call, arguments, error) for call, arguments, error in parsed]
        for result, content in await asyncio.gather(*(run(*parts) for parts in parsed)):
            turn.tool_results.append(result)
            turn.messages.append(
                {"role": "tool", "tool_call_id": result["call_id"], "content": content}
            )

    async def _run_tool(
        self, call: WireCall, arguments: dict[str, Any], error: str | None
    ) -> "_ToolReply":
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            error = f"{call.name!r} is not part of the provided tools; there are: {known}"
        result = ToolResult(name=call.name, call_id=call.id)
        if tool is None or error is not None:
            content = f"Error: {error}"
            result |= ToolResult(name=call.name, result=content, is_error=True, refused=True)
            return result, content
        run = await run_tool(tool, arguments, call_id=call.id)
        result["duration_ms"] = run.duration_ms
        result["is_error"] = run.error is not None
        result["result"] = run.result if run.error is None else run.result_text
        if run.refused:
            result["refused"] = True
        if run.raised is not None:
            result["raised"] = run.raised
        return result, run.result_text


_ToolReply = tuple[ToolResult, str]
"""The result for the report, and the text for the model."""


def _tool_call(call: WireCall, arguments: dict[str, Any], error: str | None) -> ToolCall:
    tool_call = ToolCall(name=call.name, arguments=arguments, call_id=call.id)
    if error is not None:
        tool_call["error"] = error
    return tool_call


def assistant_message(completion: Completion) -> ChatMessage:
    """Return the completion as a message of the conversation."""
    message: ChatMessage = {"role": "assistant", "content": completion.text}
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
    """Return the body of an agent's requests without the messages."""
    body = {"model": llm.name, **sampling(llm, schema)}
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in tools
        ]
    return body
