"""What one agent call does while it runs: its tries, its tokens, its tools.

The call travels in a context variable, so that the service and the tools that Semantic Kernel
invokes deep inside know on whose behalf they work, however many calls run at once.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holodeck.lib.retry import RetryConfig
from holodeck.lib.tools.base import MOST_AT_ONCE
from holodeck.models.outcome import Attempt
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.tools.base import ToolRun

MOST_TOOL_ROUNDS = 20


@dataclass
class AgentCall:
    """One agent call and what was seen of it so far; stays readable after a failure."""

    retry: RetryConfig
    attempt_timeout: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    unmetered: int = 0
    """Responses that came without their token usage."""
    tool_runs: dict[str, "ToolRun"] = field(default_factory=dict)
    """By the id of the tool call."""
    tool_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    """Semantic Kernel runs all tools of a round at once, be they a thousand."""
    runs_are_kept: bool = False
    """Whether every tool is ours, so that a result without a run is a refused call."""
    history: "ChatHistory | None" = None
    """Every message of the call; Semantic Kernel appends to it as it goes."""
    first_new: int = 0
    """Where in the history this call's own messages begin."""
    ids: set[str] = field(default_factory=set)
    """Ids of the tool calls seen so far."""
    arguments: dict[str, "tuple[dict[str, Any], str | None]"] = field(default_factory=dict)
    """By the id of the tool call: as a mapping, and why they could not be read."""
    waited_s: float = 0.0
    """Seconds that requests waited for a slot."""
    found_no_server: bool = False
    """Whether no connection could be made to a server that never answered in the run."""
    requests: int = 0
    tool_rounds: int = 0

    @property
    def known_usage(self) -> TokenUsage | None:
        """The token usage of every request; None if a response came without."""
        return None if self.unmetered or not self.usage.total_tokens else self.usage

    def meter(self, usage: TokenUsage) -> None:
        """Add the token usage of one response."""
        self.usage += usage
        self.unmetered += not usage.total_tokens


current_call: ContextVar[AgentCall | None] = ContextVar("holodeck_agent_call", default=None)
