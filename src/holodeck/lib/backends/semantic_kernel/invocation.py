"""Invokes a Semantic Kernel agent, and reads its tool calls and results from the history."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semantic_kernel.agents import ChatHistoryAgentThread
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)

from holodeck.lib.backends.base import Message, ToolCall, ToolResult
from holodeck.lib.backends.parsing import parse_arguments
from holodeck.lib.llm.client import RequestStats
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.tools.base import MOST_AT_ONCE
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.contents import ChatHistory, ChatMessageContent
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.tools.base import ToolRun


MAX_TOOL_ROUNDS = 20
PLUGIN = "tools"
"""Semantic Kernel's name for the group of our tools."""


@dataclass
class KernelTurn(RequestStats):
    """One turn of an agent: its requests and tool calls; readable after a failure."""

    retry: RetryConfig = field(default_factory=RetryConfig)
    attempt_timeout: float | None = None
    tool_runs: dict[str, "ToolRun"] = field(default_factory=dict)
    """By the id of the tool call."""
    tool_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    """Semantic Kernel itself runs all tools of a round at once."""
    runs_every_tool: bool = False
    """Whether every tool is ours, so that a result without a run is a refused call."""
    history: "ChatHistory | None" = None
    """Every message of the turn; Semantic Kernel appends to it."""
    first_new: int = 0
    """Index of the turn's first own message in the history."""
    call_ids: set[str] = field(default_factory=set)
    arguments: dict[str, "tuple[dict[str, Any], str | None]"] = field(default_factory=dict)
    """By the id of the tool call: the parsed arguments, and why they could not be parsed."""
    tool_rounds: int = 0

    @property
    def known_usage(self) -> TokenUsage | None:
        """Token usage of every request; None if a response came without, or if none came."""
        usage = self.meter.known_usage
        return usage if usage is not None and usage.total_tokens else None


current_turn: ContextVar[KernelTurn | None] = ContextVar("holodeck_agent_call", default=None)


def new_history(context: "Sequence[Message]" = ()) -> ChatHistory:
    """A history that starts with the earlier messages given."""
    history = ChatHistory()
    called: dict[str, str] = {}
    for message in context:
        calls = [_call(one) for one in message.get("tool_calls", [])]
        called |= {str(one.id): str(one.name) for one in calls}
        role = AuthorRole(message["role"])
        said = [_result(message, called)] if role is AuthorRole.TOOL else _texts(message)
        items: list[Any] = [*said, *calls]
        history.add_message(ChatMessageContent(role=role, items=items, name=message.get("name")))
    return history


def _texts(message: Message) -> list[TextContent]:
    return [TextContent(text=message["content"])] if message["content"] else []


def _call(call: dict[str, Any]) -> FunctionCallContent:
    function = call["function"]
    return FunctionCallContent(
        id=call["id"], name=function["name"], arguments=function["arguments"]
    )


def _result(message: Message, called: dict[str, str]) -> FunctionResultContent:
    """The result of a tool, by the name under which it was called."""
    call_id = message.get("tool_call_id", "")
    return FunctionResultContent(
        id=call_id, name=called.get(call_id, call_id), result=message["content"]
    )


async def invoke(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    call: KernelTurn,
) -> str:
    """The agent's answer to the history; the history gets every message that is new."""
    call.runs_every_tool = set(kernel.plugins) <= {PLUGIN}
    thread = ChatHistoryAgentThread(chat_history=history)
    token = current_turn.set(call)
    try:
        answers = [
            answer
            async for answer in agent.invoke(thread=thread, kernel=kernel, arguments=arguments)
        ]
    finally:
        current_turn.reset(token)
    return "".join(str(answer.message.content or "") for answer in answers)


async def invoke_streaming(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    call: KernelTurn,
) -> AsyncIterator[str]:
    """The agent's answer in pieces."""
    thread = ChatHistoryAgentThread(chat_history=history)
    token = current_turn.set(call)
    try:
        stream = agent.invoke_stream(thread=thread, kernel=kernel, arguments=arguments)
        async for piece in stream:
            if piece.message.content:
                yield str(piece.message.content)
    finally:
        current_turn.reset(token)


def tool_calls(call: KernelTurn) -> list[ToolCall]:
    """The calls that the model asked for, in its order."""
    return [
        _tool_call(call, item)
        for message in _new_messages(call)
        for item in message.items
        if isinstance(item, FunctionCallContent)
    ]


def tool_results(call: KernelTurn) -> list[ToolResult]:
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


def _new_messages(call: KernelTurn) -> "Iterable[ChatMessageContent]":
    return [] if call.history is None else call.history.messages[call.first_new :]


def _tool_call(call: KernelTurn, item: FunctionCallContent) -> ToolCall:
    read = call.arguments.get(item.id or "")
    arguments, error = parse_arguments(item.arguments) if read is None else read
    told = ToolCall(name=item.name or "", arguments=arguments, call_id=item.id or "")
    if error is not None:
        told["error"] = error
    return told


def _tool_result(call: KernelTurn, name: str, item: FunctionResultContent) -> ToolResult:
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


_READ = ("prompt_tokens", "input_tokens")
_WRITTEN = ("completion_tokens", "output_tokens")


def usage_of(metadata: Mapping[str, Any]) -> TokenUsage:
    """The tokens that a message's metadata tells of; zero where it tells nothing."""
    usage = metadata.get("usage")
    if usage is None:
        return TokenUsage.zero()
    return TokenUsage.of(_first(usage, _READ), _first(usage, _WRITTEN))


def _first(usage: Any, names: tuple[str, ...]) -> int:
    for name in names:
        value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0
