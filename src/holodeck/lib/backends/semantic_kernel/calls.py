"""The agent turn that is running: its retries, tokens and tools.

The turn is in a context variable, so that the service and the tools that Semantic Kernel invokes
find it, however many turns run concurrently.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holodeck.lib.chat.client import RequestStats
from holodeck.lib.retry import RetryConfig
from holodeck.lib.tools.base import MOST_AT_ONCE
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.tools.base import ToolRun

MOST_TOOL_ROUNDS = 20
PLUGIN = "tools"
"""Semantic Kernel's name for the group of our tools."""


@dataclass
class AgentCall(RequestStats):
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


current_call: ContextVar[AgentCall | None] = ContextVar("holodeck_agent_call", default=None)
