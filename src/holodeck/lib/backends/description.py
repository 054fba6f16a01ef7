"""What is known of a loaded agent before it is called."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentDescription:
    """What an agent is."""

    kind: str
    """Such as `function answer` or `ChatCompletionAgent of Semantic Kernel`."""
    tools: list[str] | None
    """The names of the tools that it can call; None if unknown."""
    history_problem: str | None
    """Why a conversation with it cannot begin with earlier messages; None if it can."""

    def __str__(self) -> str:
        """`ChatCompletionAgent of Semantic Kernel; tools: lookup_order; keeps context`."""
        tools = "unknown"
        if self.tools is not None:
            tools = ", ".join(self.tools) or "none"
        keeps = "keeps" if self.history_problem is None else "does not see"
        return f"{self.kind}; tools: {tools}; {keeps} the earlier messages of a conversation"
