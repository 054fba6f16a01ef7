"""One agent call: the model is asked, its tools are run, until it has an answer."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holodeck.lib.backends.arguments import parse_arguments
from holodeck.lib.backends.base import ExecutionResult, ToolCall, ToolResult
from holodeck.lib.backends.chat.wire import assistant_message
from holodeck.lib.chat.client import ChatClient, RequestStats, to_json
from holodeck.lib.chat.completion import Completion, WireCall
from holodeck.lib.tools.base import MOST_AT_ONCE, Tool, run_tool

MOST_TOOL_ROUNDS = 20

ChatMessage = dict[str, Any]


@dataclass
class AgentCall:
    """One agent call and what was seen of it so far; stays readable after a failure."""

    messages: list[ChatMessage]
    """The whole conversation, growing as the call goes on."""
    request_stats: RequestStats = field(default_factory=RequestStats)
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def result(self, response: str = "", stopped: str | None = None) -> ExecutionResult:
        """What the call gave."""
        return ExecutionResult(
            response=response,
            tool_calls=self.tool_calls,
            tool_results=self.tool_results,
            token_usage=None if self.request_stats.unmetered else self.request_stats.usage,
            attempts=self.request_stats.attempts,
            waited_ms=round(self.request_stats.waited_s * 1000),
            is_error=stopped is not None,
            error_reason=stopped,
        )

    def unique(self, call: WireCall) -> WireCall:
        """The call with an id of its own: some providers send none, faulty ones the same twice."""
        number, call_id = len(self.ids) + 1, call.id
        while not call_id or call_id in self.ids:
            call_id, number = f"{call.id or 'call'}_{number}", number + 1
        self.ids.add(call_id)
        return call if call_id == call.id else replace(call, id=call_id)


class ChatLoop:
    """Asks a model and runs the tools it calls.

    Args:
        client: The way to the model.
        fixed: What every request holds besides the messages.
        tools: What the model may call.
    """

    def __init__(self, client: ChatClient, fixed: Mapping[str, Any], tools: Sequence[Tool]) -> None:
        self._client = client
        self._before = to_json(fixed)[:-1] + ', "messages": '
        self._tools = {tool.name: tool for tool in tools}

    async def run(self, call: AgentCall) -> ExecutionResult:
        """What the model answers in the end. Raises ChatFault."""
        text = ""
        for _ in range(MOST_TOOL_ROUNDS):
            completion = await self._asked(call)
            text = completion.text or ""
            if not completion.calls:
                return call.result(text)
            await self._run_tools(completion.calls, call)
        return call.result(text, f"stopped after {MOST_TOOL_ROUNDS} rounds of tool calls")

    async def _asked(self, call: AgentCall) -> Completion:
        body = f"{self._before}{to_json(call.messages)}}}"
        answer = await self._client.complete(body, call.request_stats)
        if answer.calls:
            answer = replace(answer, calls=[call.unique(one) for one in answer.calls])
        call.messages.append(assistant_message(answer))
        return answer

    async def _run_tools(self, calls: Sequence[WireCall], call: AgentCall) -> None:
        """Run the calls of one round at the same time; results keep the order of the calls."""
        read = [(one, *parse_arguments(one.arguments)) for one in calls]
        call.tool_calls += [_tool_call(one, found, error) for one, found, error in read]
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def run(one: WireCall, found: dict[str, Any], error: str | None) -> "_Ran":
            async with slots:
                return await self._ran(one, found, error)

        for result, told in await asyncio.gather(*(run(*parts) for parts in read)):
            call.tool_results.append(result)
            call.messages.append(
                {"role": "tool", "tool_call_id": result["call_id"], "content": told}
            )

    async def _ran(self, one: WireCall, found: dict[str, Any], error: str | None) -> "_Ran":
        """The result for the report, and what the model is told."""
        tool = self._tools.get(one.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            error = f"{one.name!r} is not part of the provided tools; there are: {known}"
        if tool is None or error is not None:
            return _refusal(one, f"Error: {error}")
        run = await run_tool(tool, found, call_id=one.id)
        result = ToolResult(name=one.name, call_id=one.id, duration_ms=run.duration_ms)
        result["is_error"] = run.error is not None
        result["result"] = run.result if run.error is None else run.result_text
        if run.refused:
            result["refused"] = True
        if run.raised is not None:
            result["raised"] = run.raised
        return result, run.result_text


_Ran = tuple[ToolResult, str]


def _refusal(one: WireCall, words: str) -> _Ran:
    result = ToolResult(name=one.name, call_id=one.id, result=words, is_error=True, refused=True)
    return result, words


def _tool_call(one: WireCall, found: dict[str, Any], error: str | None) -> ToolCall:
    call = ToolCall(name=one.name, arguments=found, call_id=one.id)
    if error is not None:
        call["error"] = error
    return call
