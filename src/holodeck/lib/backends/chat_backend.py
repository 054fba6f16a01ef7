"""`backend: chat`: an agent on any OpenAI-compatible endpoint, Azure included."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import ExecutionResult, Message, ToolCall, ToolResult
from holodeck.lib.backends.parsing import parse_arguments, unique_call_id
from holodeck.lib.llm.client import ChatClient, RequestStats
from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.endpoint import Endpoint, ProxyFor, sampling
from holodeck.lib.llm.limits import build_limiters, call_limits, call_with_limit
from holodeck.lib.llm.retry import with_attempts
from holodeck.lib.tools.base import MAX_CONCURRENT_TOOLS, Tool, run_tool
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider

MAX_TOOL_ROUNDS = 20

ChatMessage = dict[str, Any]


class ChatBackend:
    """Sends requests to the endpoint itself, without an agent library.

    Args:
        llm: The model; its provider is `openai` or `azure_openai`.
        instructions: Sent unchanged as the system message; none if empty.
        tools: The tools that the model may call.
        schema: JSON schema of the response; any text if not given.
        execution: Time limits and retries; their defaults if not given.
        proxy_for: Returns the proxy for a URL.

    Raises:
        ConfigError: The provider, the key or the endpoint is unusable. Nothing is sent.
    """

    def __init__(
        self,
        llm: LLMProvider,
        instructions: str,
        tools: Sequence[Tool] = (),
        schema: dict[str, Any] | None = None,
        execution: ExecutionConfig | None = None,
        proxy_for: ProxyFor | None = None,
    ) -> None:
        self._limits = call_limits(execution)
        endpoint = Endpoint.of(llm, proxy_for)
        self._client = ChatClient(endpoint, llm.name, self._limits, build_limiters(execution))
        self._loop = ChatLoop(self._client, request_template(llm, tools, schema), tools)
        self._instructions = instructions
        self._has_schema = schema is not None

    async def initialize(self) -> None:
        """Do nothing: the first request shows whether the endpoint answers."""

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """Return the response to one message, in a conversation of its own. Raises BackendError."""
        return (await self.answer(message, self._opening(context)))[0]

    async def create_session(self, context: Sequence[Message] | None = None) -> "ChatSession":
        return ChatSession(self, self._opening(context))

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    async def answer(
        self, message: str, history: Sequence[ChatMessage]
    ) -> tuple[ExecutionResult, list[ChatMessage]]:
        """Return the result of one turn, and the history with all its messages.

        Raises BackendError.
        """
        turn = ChatTurn(messages=[*history, {"role": "user", "content": message}])
        try:
            run = partial(self._loop.run, turn)
            result = await call_with_limit(run, self._limits.timeout, turn.attempts)
        except BackendError as error:
            timed_out = isinstance(error, BackendTimeoutError)
            kind = BackendTimeoutError if timed_out else BackendSessionError
            shown = with_attempts(str(error), len(turn.attempts))
            raise kind(shown, turn.attempts, turn.result(), refusal=error.refusal) from error
        if self._has_schema:
            result.structured_output = _parsed(result.response)
        return result, turn.messages

    def _opening(self, context: Sequence[Message] | None) -> list[ChatMessage]:
        """Return the first messages of a conversation: the instructions and the context."""
        earlier: list[ChatMessage] = [dict(one) for one in context or ()]
        if not self._instructions:
            return earlier
        return [{"role": "system", "content": self._instructions}, *earlier]


class ChatSession:
    """One conversation; each request sends the whole history."""

    def __init__(self, backend: ChatBackend, history: list[ChatMessage]) -> None:
        self._backend = backend
        self._history = history
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        """Return the agent's response; a failed turn leaves the history unchanged.

        Raises BackendError.
        """
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result, self._history = await self._backend.answer(message, self._history)
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        self._history = [*self._history, *(dict(one) for one in messages)]

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in one piece. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        self._is_closed = True


def _parsed(text: str) -> object | None:
    """Return the JSON in a response; None if it is no JSON."""
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None


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

    async def _run_tools(self, calls: Sequence[RawToolCall], turn: ChatTurn) -> None:
        """Run the calls of one round concurrently; results keep the order of the calls."""
        slots = asyncio.Semaphore(MAX_CONCURRENT_TOOLS)

        async def run(
            call: RawToolCall, arguments: dict[str, Any], error: str | None
        ) -> "_ToolReply":
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
        self, call: RawToolCall, arguments: dict[str, Any], error: str | None
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


def _tool_call(call: RawToolCall, arguments: dict[str, Any], error: str | None) -> ToolCall:
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
