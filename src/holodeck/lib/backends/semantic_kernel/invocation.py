"""Invokes the Semantic Kernel agent that holodeck builds, with the adapter of users' agents.

The running turn is in a context variable, so that the service and the tools that Semantic Kernel
invokes find it, however many turns run concurrently.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.base import ExecutionResult, RequestedCall, ToolResult
from holodeck.lib.backends.frameworks.base import TurnRecord
from holodeck.lib.backends.frameworks.semantic_kernel.agents import ChatAgentSession
from holodeck.lib.backends.frameworks.semantic_kernel.messages import SemanticKernelTurnReader
from holodeck.lib.backends.frameworks.turn_trace import outside_of_turns
from holodeck.lib.backends.parsing import requested_call
from holodeck.lib.backends.tool_work import ToolWork
from holodeck.lib.backends.tool_work import result_of as result_of_tool
from holodeck.lib.llm.client import RequestStats
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.tools.base import MAX_CONCURRENT_TOOLS, ToolOutcome
from holodeck.models.cases.messages import Image, MessageWithImages
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.contents import ChatHistory

PLUGIN = "tools"
"""Semantic Kernel's name for the group of our tools."""


@dataclass
class KernelTurn(RequestStats):
    """One turn of an agent: its requests and tool calls; readable after a failure."""

    retry: RetryConfig = field(default_factory=RetryConfig)
    attempt_timeout: float | None = None
    tool_runs: dict[str, ToolOutcome] = field(default_factory=dict)
    """By the id of the tool call."""
    images: list[Image] = field(default_factory=list)
    """Of tools, for the next request."""
    tool_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_TOOLS)
    )
    """Semantic Kernel itself runs all tools of a round at once."""
    runs_every_tool: bool = False
    """Whether every tool is ours, so that a result without a run is a refused call."""
    history: "ChatHistory | None" = None
    """Every message of the conversation; Semantic Kernel appends to it."""
    first_new: int = 0
    """Index of the turn's first own message in the history."""
    tool_work: ToolWork = field(default_factory=ToolWork)
    calls: dict[str, RequestedCall] = field(default_factory=dict)
    """By the id of the tool call: the call as the model wrote it."""
    results_of_provider: dict[str, ToolResult] = field(default_factory=dict)
    """By the id of a call in `calls`: the results of tools that the provider ran."""
    tool_rounds: int = 0

    @property
    def known_usage(self) -> TokenUsage | None:
        """Token usage of every request; None if a response came without, or if none came."""
        usage = self.meter.known_usage
        return usage if usage is not None and usage.total_tokens else None


current_turn: ContextVar[KernelTurn | None] = ContextVar("holodeck_kernel_turn", default=None)


class KernelSession(ChatAgentSession):
    """A conversation with the agent that holodeck builds; its messages may have images."""

    def add_user_message(self, history: "ChatHistory", message: str) -> None:
        if not isinstance(message, MessageWithImages):
            super().add_user_message(history, message)
            return
        from semantic_kernel.contents import ImageContent, TextContent

        images = [
            ImageContent(data=image.data, data_format="base64", mime_type=image.media_type)
            for image in message.images
        ]
        history.add_user_message([TextContent(text=str(message)), *images])


@contextmanager
def _running(turn: KernelTurn) -> Iterator[None]:
    token = current_turn.set(turn)
    try:
        with outside_of_turns():  # Semantic Kernel's spans are of the agent, not of a tool
            yield
    finally:
        current_turn.reset(token)


async def invoke(
    session: ChatAgentSession, kernel: "Kernel", message: str, turn: KernelTurn
) -> str:
    """Return the agent's response to a message."""
    turn.runs_every_tool = set(kernel.plugins) <= {PLUGIN}
    with _running(turn):
        return str((await session.send(message)).response)


async def invoke_streaming(
    session: ChatAgentSession, message: str, turn: KernelTurn
) -> AsyncIterator[str]:
    """Yield the agent's response in pieces."""
    with _running(turn):
        async for piece in session.send_streaming(message):
            yield piece


def result_of(turn: KernelTurn, response: str = "") -> ExecutionResult:
    """Return what is known of the turn, also of one that failed; calls in the model's order."""
    record = _record(turn)
    results = {result["call_id"]: _tool_result(turn, result) for result in record.tool_results}
    results |= turn.results_of_provider
    read = {call["call_id"]: call for call in record.tool_calls or ()}
    known = read.keys() | turn.results_of_provider.keys()
    calls = [call for call_id, call in turn.calls.items() if call_id in known]
    calls += [
        requested_call(call["name"], call["arguments"], call_id)
        for call_id, call in read.items()
        if call_id not in turn.calls
    ]
    result = ExecutionResult(
        response=response,
        tool_calls=calls,
        tool_results=[results[call["call_id"]] for call in calls if call["call_id"] in results],
        token_usage=turn.known_usage,
        waited_ms=round(turn.waited_s * 1000),
    )
    return turn.tool_work.added_to(result)


def _record(turn: KernelTurn) -> TurnRecord:
    """Return what the turn's own messages say; they are known even if it failed."""
    reader = SemanticKernelTurnReader(names_agents=False)
    if turn.history is not None:
        for message in turn.history.messages[turn.first_new :]:
            reader.read(message)
    return reader.record


def _tool_result(turn: KernelTurn, noted: Mapping[str, Any]) -> ToolResult:
    """Return the result; without a run of the tool, the call never reached it."""
    name, call_id = noted["name"], noted["call_id"]
    run = turn.tool_runs.get(call_id)
    if run is not None:
        return result_of_tool(name, call_id, run)
    is_refused = turn.runs_every_tool
    result = noted["result"]
    return ToolResult(
        name=name, call_id=call_id, result=result, is_error=is_refused, refused=is_refused
    )
