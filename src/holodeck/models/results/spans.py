"""The OpenTelemetry spans of an agent, as results keep them."""

from holodeck.models.base import Json, Model
from holodeck.models.cases.trace_checks import SpanStatus

OPERATION = "gen_ai.operation.name"
_KINDS = ("openinference.span.kind", "traceloop.span.kind", "langwatch.span.type")
"""Attributes in which other conventions say what a span is."""
_OPERATIONS = {
    "agent": "invoke_agent",
    "embedding": "embeddings",
    "llm": "chat",
    "tool": "execute_tool",
}


class RecordedSpan(Model):
    """One span that has ended."""

    name: str
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str = ""
    """Of the span around it; empty if there is none."""
    service: str = ""
    """The attribute `service.name` of its resource."""
    started_ns: int
    """Nanoseconds since 1970, by the clock of the agent."""
    ended_ns: int
    status: SpanStatus = "unset"
    status_message: str = ""
    attributes: dict[str, Json] = {}
    """Up to limits; what is longer is cut."""
    cut: list[str] = []
    """Names of the attributes whose values are cut."""

    @property
    def operation(self) -> str | None:
        """What it is, in the words of the conventions for generative AI; None if unknown."""
        named = self.attributes.get(OPERATION)
        if isinstance(named, str):
            return named
        kinds = (str(self.attributes.get(key)).lower() for key in _KINDS)
        return next((_OPERATIONS[kind] for kind in kinds if kind in _OPERATIONS), None)

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        return (self.ended_ns - self.started_ns) / 1_000_000


class Trace(Model):
    """The spans of one or several calls of the agent."""

    spans: list[RecordedSpan] = []
    """In the order of their beginnings."""
    problem: str = ""
    """Why there may be further spans; empty if these are all."""
