"""The judge of a scenario, and which spans it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.errors import ConfigError
from holodeck.lib.conversation.criteria_judge import (
    PROMPTS,
    CriteriaJudge,
    require_same_criteria,
)
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.participants import is_list_of_criteria
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes, ScenarioResult
from holodeck.lib.spans.evidence import (
    MAX_LOOKUPS,
    TOKEN_THRESHOLD,
    SpanEvidence,
    evidence_of,
    mentions_spans,
)
from holodeck.models.cases.messages import Message
from holodeck.scenario.agent_adapter import ModelAgent
from holodeck.scenario.cache import scenario_cache

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class SpanSource(Protocol):
    """What a user passes as `span_collector`."""

    def get_spans_for_thread(self, thread_id: str) -> Sequence[ReadableSpan]: ...


class JudgeAgent(ModelAgent):
    """Decides by criteria whether the agent passes.

    Args:
        criteria: What must hold; none if the script gives them: `judge([…])`.
        model: Provider and name, such as `openai/gpt-4.1`; the configured default if not given.
        api_base: The URL of the model's endpoint.
        api_key: Its key; the default is the provider's own variable.
        temperature: The default is 0.
        max_tokens: Most tokens of an answer.
        system_prompt: Replaces our instructions.
        token_threshold: Tokens up to which all that spans hold is shown; beyond, the judge looks
            up what it needs.
        max_discovery_steps: How often it may look something up in the spans.
        include_traces: False hides the spans from it.
        span_collector: An object whose `get_spans_for_thread(thread_id)` returns spans in place of
            those that the scenario collects.
        model_arguments: Further arguments of the model, by the names of OpenAI and LiteLLM:
            `timeout`, `num_retries`, `headers`, `client`, `top_p`, `seed`, `extra_body`, …

    Raises:
        ConfigError: There is no model, or a criterion is empty.
    """

    role = AgentRole.JUDGE
    token_threshold: int = TOKEN_THRESHOLD
    max_discovery_steps: int = MAX_LOOKUPS
    include_traces: bool | None = None
    span_collector: SpanSource | None = None
    criteria: Sequence[str] | None = None
    _kind = "judge"

    def __init__(
        self,
        *,
        criteria: Sequence[str] | None = None,
        token_threshold: int = TOKEN_THRESHOLD,
        max_discovery_steps: int = MAX_LOOKUPS,
        include_traces: bool | None = None,
        span_collector: SpanSource | None = None,
        **model_arguments: Any,
    ) -> None:
        if isinstance(criteria, str):
            raise ConfigError("JudgeAgent.criteria", "is one text; write a list: criteria=['…']")
        if criteria and not is_list_of_criteria(criteria):
            raise ConfigError(
                "JudgeAgent.criteria",
                f"{list(criteria)!r} contains an empty criterion; write a text for each, or leave"
                " them out and write judge([…]) in the script",
            )
        for name, value, least in (
            ("token_threshold", token_threshold, 1),
            ("max_discovery_steps", max_discovery_steps, 0),
        ):
            if not isinstance(value, int) or value < least:
                problem = f"{value!r} is not a number from {least} on"
                raise ConfigError(f"JudgeAgent.{name}", problem)
        super().__init__(**model_arguments)
        self.criteria = criteria
        self.token_threshold = token_threshold
        self.max_discovery_steps = max_discovery_steps
        self.include_traces = include_traces
        self.span_collector = span_collector

    def _evidence(self, call: AgentInput, criteria: Sequence[str]) -> SpanEvidence | None:
        """Return what the judge has to know of spans; None if it is nothing."""
        limits = (self.token_threshold, self.max_discovery_steps)
        is_needed = any(map(mentions_spans, criteria))
        if self.include_traces is False:
            hidden = ["the judge has include_traces=False"]
            return SpanEvidence([], hidden, *limits) if is_needed else None
        if self.span_collector is None:
            return evidence_of(call.scenario_state.span_store, criteria, *limits)
        spans = self.span_collector.get_spans_for_thread(call.thread_id)
        return SpanEvidence(spans, (), *limits) if spans or is_needed else None

    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """Return the verdict; an empty list while the conversation has to go on."""
        has_nothing_to_judge = not (self.criteria or input.judgment_request)
        if has_nothing_to_judge and input.scenario_state.has_checkpoints:
            return []
        criteria = input.judgment_criteria or self.criteria or []
        spans = self._evidence(input, criteria)
        if spans is None:
            decided = await self._decided(input)
        else:
            decided = await self._decided_with_spans(input, spans)
        if isinstance(decided, ScenarioResult):
            require_same_criteria(decided.criteria, criteria)
            # A cached verdict has the messages of its own run.
            return decided.model_copy(update={"messages": input.messages})
        return decided

    @scenario_cache()
    async def _decided(self, input: AgentInput) -> list[Message] | ScenarioResult:  # noqa: A002
        # The name of this method is part of the key of existing recordings.
        return await self._judge().call(input)

    @scenario_cache()
    async def _decided_with_spans(
        self,
        input: AgentInput,  # noqa: A002
        spans: SpanEvidence,
    ) -> list[Message] | ScenarioResult:
        return await self._judge(spans).call(input)

    def _judge(self, spans: SpanEvidence | None = None) -> CriteriaJudge:
        return CriteriaJudge(
            self._client.judge(), self.criteria, instructions=self.system_prompt, spans=spans
        )

    def cache_facts(self) -> dict[str, object]:
        """Return what the verdicts depend on."""
        return self._facts(PROMPTS, criteria=self.criteria)
