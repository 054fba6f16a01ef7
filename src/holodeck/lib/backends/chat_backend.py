"""`backend: chat`: an agent on any OpenAI-compatible endpoint, Azure included."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    RequestedCall,
    ToolResult,
)
from holodeck.lib.backends.parsing import requested_call, unique_call_id
from holodeck.lib.backends.tool_work import ToolWork, result_of
from holodeck.lib.llm.client import ChatClient, RequestStats
from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.endpoint import Endpoint, ProxyFor, sampling
from holodeck.lib.llm.limits import build_limiters, call_limits, call_with_limit
from holodeck.lib.llm.retry import with_attempts
from holodeck.lib.support.text import json_or_none
from holodeck.lib.tools.base import (
    IMAGES_OF_TOOLS,
    MAX_CONCURRENT_TOOLS,
    Tool,
)
from holodeck.lib.tools.toolbox import FilterFactory, Toolbox
from holodeck.models.cases.messages import (
    Image,
    Message,
    MessageWithImages,
    tool_call,
    tool_calls_in,
    tool_name,
)
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from holodeck.lib.tools.toolbox import ToolFilterManager

MAX_TOOL_ROUNDS = 20


@dataclass
class ChatTurn(RequestStats):
    """One turn of an agent: its messages, tool calls and requests; readable after a failure."""

    messages: list[Message] = field(default_factory=list)
    """The whole conversation so far."""
    tool_calls: list[RequestedCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    offered: list[str] | None = None
    """Names of the tools that the model is offered, unless these are those of the agent.yaml."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that the model is offered, by name."""
    body_start: str = ""
    """The JSON of each request before its messages."""
    tool_work: ToolWork = field(default_factory=ToolWork)

    def result(self, response: str = "", error_reason: str | None = None) -> ExecutionResult:
        result = ExecutionResult(
            response=response,
            tool_calls=self.tool_calls,
            tool_results=self.tool_results,
            token_usage=self.meter.known_usage,
            attempts=self.attempts,
            tools=self.offered,
            waited_ms=round(self.waited_s * 1000),
            is_error=error_reason is not None,
            error_reason=error_reason,
        )
        return self.tool_work.added_to(result)


class ChatBackend(AgentBackend):
    """Requests completions and runs the tools that the model calls, without an agent library.

    Args:
        llm: The model; its provider has the protocol of OpenAI or Azure.
        instructions: Sent unchanged as the system message; none if empty.
        toolbox: The tools that the model may call; none if not given.
        filters: Makes the manager that selects the tools of each message; all without one.
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
        toolbox: Toolbox | None = None,
        schema: dict[str, Any] | None = None,
        execution: ExecutionConfig | None = None,
        proxy_for: ProxyFor | None = None,
        filters: FilterFactory | None = None,
    ) -> None:
        limits = call_limits(execution)
        endpoint = Endpoint.of(llm, proxy_for)
        self._client = ChatClient(endpoint, llm.name, limits, build_limiters(execution))
        self._timeout = limits.timeout
        self._instructions = instructions
        self._toolbox = toolbox
        self._has_schema = schema is not None
        self._settings = {"model": llm.name, **sampling(llm, schema)}
        self._filters = filters
        self._filter: ToolFilterManager | None = None
        self._use(() if toolbox is None else toolbox.tools or ())

    def _use(self, tools: Sequence[Tool]) -> None:
        """Offer these tools to the model, or those of them that are selected for a message."""
        self._tools = {tool.name: tool for tool in tools}
        self._body_start = self._start_of_body(tools)
        self._filter = None if self._filters is None else self._filters(tools)

    def _start_of_body(self, tools: Sequence[Tool]) -> str:
        body = self._settings
        if tools:
            body = {**body, "tools": [_tool_definition(tool) for tool in tools]}
        return json.dumps(body)[:-1] + ', "messages": '

    async def _offer_tools(self, message: str, turn: ChatTurn) -> None:
        """Note in the turn which tools the model is offered."""
        turn.tools, turn.body_start = self._tools, self._body_start
        if self._toolbox is not None and self._toolbox.has_sources:
            turn.offered = [*self._tools]
        if self._filter is not None:
            turn.offered = await self._filter.filter_tools(message, _calls_in(turn.messages))
            turn.tools = {name: self._tools[name] for name in turn.offered}
            turn.body_start = self._start_of_body([*turn.tools.values()])

    @property
    def capabilities(self) -> Capabilities:
        """It takes images; its tools are known once initialized."""
        toolbox = self._toolbox
        return Capabilities(
            accepts_images=True,
            seal_problem=None,
            stub_problem=None,
            model_problem=None,
            tools=() if toolbox is None else toolbox.tools,
            preparation_costs=() if toolbox is None else toolbox.preparation_costs,
        )

    async def initialize(self) -> None:
        """Open the tools; the first request shows whether the endpoint answers."""
        if self._toolbox is not None and self._toolbox.has_sources:
            self._use(await self._toolbox.open())
        if self._filter is not None:
            await self._filter.prepare()

    async def create_session(self, context: Sequence[Message] | None = None) -> "ChatSession":
        return ChatSession(self, self._opening(context))

    async def teardown(self) -> None:
        """Close the tools, and the connections of the running event loop."""
        if self._toolbox is not None:
            await self._toolbox.close()
        await self._client.close()

    async def answer(
        self, message: str, history: Sequence[Message]
    ) -> tuple[ExecutionResult, list[Message]]:
        """Return the result of a turn, and the history with all its messages.

        Raises BackendError.
        """
        turn = ChatTurn(messages=[*history, _user_message(message)])
        try:
            run = partial(self._run_turn, message, turn)
            result = await call_with_limit(run, self._timeout, turn.attempts)
        except BackendError as error:
            timed_out = isinstance(error, BackendTimeoutError)
            kind = BackendTimeoutError if timed_out else BackendSessionError
            shown = with_attempts(str(error), len(turn.attempts))
            raise kind(shown, turn.attempts, turn.result(), refusal=error.refusal) from error
        if self._has_schema:
            result.structured_output = json_or_none(result.response)
        return result, turn.messages

    def _opening(self, context: Sequence[Message] | None) -> list[Message]:
        """Return the first messages of a conversation: the instructions and the context."""
        earlier = list(context or ())
        if not self._instructions:
            return earlier
        return [Message(role="system", content=self._instructions), *earlier]

    async def _run_turn(self, message: str, turn: ChatTurn) -> ExecutionResult:
        """Request completions and run their tool calls, until one has none. Raises RequestError."""
        await self._offer_tools(message, turn)
        text = ""
        for _ in range(MAX_TOOL_ROUNDS):
            completion = await self._complete(turn)
            text = completion.text or ""
            if not completion.calls:
                return turn.result(text)
            await self._run_tools(completion.calls, turn)
        return turn.result(text, f"stopped after {MAX_TOOL_ROUNDS} rounds of tool calls")

    async def _complete(self, turn: ChatTurn) -> Completion:
        body = f"{turn.body_start}{json.dumps(turn.messages)}}}"
        completion = await self._client.complete(body, turn)
        message = Message(role="assistant", content=completion.text)
        if completion.calls:
            calls = []
            for call in completion.calls:
                # Some providers send no ids, faulty ones the same id twice.
                call_id = unique_call_id(call.id, turn.call_ids)
                turn.call_ids.add(call_id)
                calls.append(replace(call, id=call_id))
            completion = replace(completion, calls=calls)
            message["tool_calls"] = [
                tool_call(call.id, call.name, call.arguments) for call in calls
            ]
        turn.messages.append(message)
        return completion

    async def _run_tools(self, calls: Sequence[RawToolCall], turn: ChatTurn) -> None:
        """Run the calls of a round concurrently; results keep the order of the calls."""
        slots = asyncio.Semaphore(MAX_CONCURRENT_TOOLS)
        images: list[Image] = []

        async def run(call: RequestedCall) -> tuple[ToolResult, str]:
            async with slots:
                return await self._run_tool(call, turn, images)

        parsed = [requested_call(call.name, call.arguments, call.id) for call in calls]
        turn.tool_calls += parsed
        for result, content in await asyncio.gather(*map(run, parsed)):
            turn.tool_results.append(result)
            turn.messages.append(
                {"role": "tool", "tool_call_id": result["call_id"], "content": content}
            )
        if images:  # messages of tools hold text only
            parts: list[dict[str, Any]] = [{"type": "text", "text": IMAGES_OF_TOOLS}]
            parts += [image.part for image in images]
            turn.messages.append({"role": "user", "content": parts})

    async def _run_tool(
        self, call: RequestedCall, turn: ChatTurn, images: list[Image]
    ) -> tuple[ToolResult, str]:
        """Return the result for the report, and the text for the model; add the images to those."""
        name, call_id = call["name"], call["call_id"]
        tool, error = turn.tools.get(name), call.get("error")
        if tool is None:
            known = ", ".join(turn.tools) or "none"
            error = f"{name!r} is not part of the provided tools; there are: {known}"
        if tool is None or error is not None:
            content = f"Error: {error}"
            refusal = ToolResult(
                name=name, call_id=call_id, result=content, is_error=True, refused=True
            )
            return refusal, content
        run = await turn.tool_work.run(tool, call["arguments"], call_id, turn.meter)
        images += run.images
        return result_of(name, call_id, run), run.result_text


class ChatSession(AgentSession):
    """One conversation; each request sends the whole history."""

    def __init__(self, backend: ChatBackend, history: list[Message]) -> None:
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
        self._history = [*self._history, *messages]

    async def close(self) -> None:
        self._is_closed = True


def _user_message(message: str) -> Message:
    """Return a message of the user as it is sent, with its images if it has some."""
    if not isinstance(message, MessageWithImages):
        return {"role": "user", "content": message}
    images = [image.part for image in message.images]
    return {"role": "user", "content": [{"type": "text", "text": str(message)}, *images]}


def _calls_in(messages: Sequence[Message]) -> Counter[str]:
    """Return how often each tool was called in a conversation."""
    return Counter(tool_name(call) for message in messages for call in tool_calls_in(message))


def _tool_definition(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
