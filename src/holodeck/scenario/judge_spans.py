"""Which spans a judge sees, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holodeck.errors import ConfigError
from holodeck.lib.conversation.span_evidence import (
    MAX_LOOKUPS,
    TOKEN_THRESHOLD,
    SpanEvidence,
    evidence_of,
    mentions_spans,
)
from holodeck.lib.conversation.types import AgentInput

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class SpanCollector(Protocol):
    """Something else that collects spans."""

    def get_spans_for_thread(self, thread_id: str) -> Sequence[ReadableSpan]: ...


@dataclass(frozen=True)
class SpanSettings:
    """The arguments of a judge that concern spans, under the names of JudgeAgent."""

    token_threshold: int = TOKEN_THRESHOLD
    max_discovery_steps: int = MAX_LOOKUPS
    include_traces: bool | None = None
    span_collector: SpanCollector | None = None

    def __post_init__(self) -> None:
        for name, least in (("token_threshold", 1), ("max_discovery_steps", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"JudgeAgent.{name}", f"{value!r} is not a number from {least} on"
                )

    def evidence(self, given: AgentInput, criteria: Sequence[str]) -> SpanEvidence | None:
        """Return what the judge has to know of spans; None if it is nothing."""
        limits = (self.token_threshold, self.max_discovery_steps)
        if self.include_traces is False:
            hidden = ["the judge has include_traces=False"]
            is_needed = any(map(mentions_spans, criteria))
            return SpanEvidence([], hidden, *limits) if is_needed else None
        if self.span_collector is None:
            return evidence_of(given.scenario_state.span_log, criteria, *limits)
        spans = self.span_collector.get_spans_for_thread(given.thread_id)
        is_needed = bool(spans) or any(map(mentions_spans, criteria))
        return SpanEvidence(spans, (), *limits) if is_needed else None
