"""Invokes a Semantic Kernel agent, and reads its tool calls and results from the history.

The running turn is in a context variable, so that the service and the tools that Semantic Kernel
invokes find it, however many turns run concurrently.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
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
from holodeck.lib.tools.base import MAX_CONCURRENT_TOOLS, ToolOutcome
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.functions import KernelArguments

MAX_TOOL_ROUNDS = 20
PLUGIN = "tools"
"""Semantic Kernel's name for the group of our tools."""


@dataclass
class KernelTurn(RequestStats):
    """One turn of an agent: its requests and tool calls; readable after a failure."""

    retry: RetryConfig = field(default_factory=RetryConfig)
    attempt_timeout: float | None = None
    tool_runs: dict[str, ToolOutcome] = field(default_factory=dict)
    """By the id of the tool call."""
    tool_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_TOOLS)
    )
    """Semantic Kernel itself runs all tools of a round at once."""
    runs_every_tool: bool = False
    """Whether every tool is ours, so that a result without a run is a refused call."""
    history: ChatHistory | None = None
    """Every message of the conversation; Semantic Kernel appends to it."""
    first_new: int = 0
    """Index of the turn's first own message in the history."""
    call_ids: set[str] = field(default_factory=set)
    arguments: dict[str, tuple[dict[str, Any], str | None]] = field(default_factory=dict)
    """By the id of the tool call: the parsed arguments, and why they could not be parsed."""
    tool_rounds: int = 0

    @property
    def known_usage(self) -> TokenUsage | None:
        """Token usage of every request; None if a response came without, or if none came."""
        usage = self.meter.known_usage
        return usage if usage is not None and usage.total_tokens else None


current_turn: ContextVar[KernelTurn | None] = ContextVar("holodeck_kernel_turn", default=None)


def new_history(context: Sequence[Message] = ()) -> ChatHistory:
    """Return a history of the given messages."""
    history = ChatHistory()
    tool_names: dict[str, str] = {}
    """By the id of the tool call."""
    for message in context:
        items: list[Any] = []
        role = AuthorRole(message["role"])
        if role is AuthorRole.TOOL:
            call_id = message.get("tool_call_id", "")
            name = tool_names.get(call_id, call_id)
            items.append(FunctionResultContent(id=call_id, name=name, result=message["content"]))
        elif message["content"]:
            items.append(TextContent(text=message["content"]))
        for call in message.get("tool_calls", []):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            items.append(FunctionCallContent(id=call["id"], name=name, arguments=arguments))
            tool_names[str(call["id"])] = str(name)
        history.add_message(ChatMessageContent(role=role, items=items, name=message.get("name")))
    return history


@contextmanager
def _running(turn: KernelTurn) -> Iterator[None]:
    token = current_turn.set(turn)
    try:
        yield
    finally:
        current_turn.reset(token)


async def invoke(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    turn: KernelTurn,
) -> str:
    """Return the agent's response, and append the turn's messages to the history."""
    turn.runs_every_tool = set(kernel.plugins) <= {PLUGIN}
    thread = ChatHistoryAgentThread(chat_history=history)
    with _running(turn):
        responses = agent.invoke(thread=thread, kernel=kernel, arguments=arguments)
        return "".join([str(one.message.content or "") async for one in responses])


async def invoke_streaming(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    turn: KernelTurn,
) -> AsyncIterator[str]:
    """Yield the agent's response in pieces."""
    thread = ChatHistoryAgentThread(chat_history=history)
    with _running(turn):
        stream = agent.invoke_stream(thread=thread, kernel=kernel, arguments=arguments)
        async for piece in stream:
            if piece.message.content:
                yield str(piece.message.content)


def tool_calls(turn: KernelTurn) -> list[ToolCall]:
    """Return the turn's tool calls, in the model's order."""
    calls = []
    for item in _items(turn):
        if isinstance(item, FunctionCallContent):
            call_id = item.id or ""
            parsed = turn.arguments.get(call_id)
            arguments, error = parse_arguments(item.arguments) if parsed is None else parsed
            call = ToolCall(name=item.name or "", arguments=arguments, call_id=call_id)
            if error is not None:
                call["error"] = error
            calls.append(call)
    return calls


def tool_results(turn: KernelTurn) -> list[ToolResult]:
    """Return the results of the turn's tool calls, in the order of the calls."""
    results = {item.id: item for item in _items(turn) if isinstance(item, FunctionResultContent)}
    return [
        _tool_result(turn, call["name"], results[call["call_id"]])
        for call in tool_calls(turn)
        if call["call_id"] in results
    ]


def _items(turn: KernelTurn) -> Iterator[Any]:
    """Yield the parts of the turn's own messages."""
    if turn.history is not None:
        for message in turn.history.messages[turn.first_new :]:
            yield from message.items


def _tool_result(turn: KernelTurn, name: str, item: FunctionResultContent) -> ToolResult:
    """Return the result; without a run of the tool, Semantic Kernel itself refused the call."""
    result = ToolResult(name=name, call_id=item.id or "", result=item.result)
    run = turn.tool_runs.get(item.id or "")
    if run is None:
        result["is_error"] = result["refused"] = turn.runs_every_tool
        return result
    result["is_error"] = run.error is not None
    result["duration_ms"] = run.duration_ms
    if run.error is None:
        result["result"] = run.result
    if run.raised is not None:
        result["raised"] = run.raised
    return result
