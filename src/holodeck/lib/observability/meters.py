"""The metrics of a run, measured where spans begin and end, whether these are sampled or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from holodeck.lib.observability import names

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter, MeterProvider

KERNEL = "semantic_kernel.functions.kernel_function"
KERNEL_DURATION = "semantic_kernel.function.invocation.duration"
KERNEL_FUNCTION = "semantic_kernel.function.name"
"""Semantic Kernel's names; holodeck calls tools itself, so that the kernel measures none."""
LABELS = (
    names.OPERATION,
    names.PROVIDER,
    names.REQUEST_MODEL,
    names.AGENT_NAME,
    names.TOOL_NAME,
    names.TOOL_TYPE,
    names.CASE_OUTCOME,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
    names.ERROR_TYPE,
)
"""Attributes of spans that have few values, so that metrics may have them."""
# the boundaries that the conventions recommend; those of cases are those of agents
_SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
_AGENT_SECONDS = tuple(round(0.1 * 2**power, 1) for power in range(13))
_TOKENS = tuple(4**power for power in range(14))

_agent_call: ContextVar[_AgentCall | None] = ContextVar("holodeck_agent_call", default=None)


class _AgentCall:
    """A call of an agent; whether it made requests to models that are measured themselves."""

    has_requests = False


class Meters:
    """The instruments of a run.

    Args:
        provider: Where they come from.
        clean: Removes secrets from the text of attributes.
        includes_kernel: Whether durations of tools are recorded under Semantic Kernel's name, too.
    """

    def __init__(
        self, provider: MeterProvider, clean: Callable[[str], str], *, includes_kernel: bool
    ) -> None:
        meter = provider.get_meter(names.TRACER, schema_url=names.SCHEMA_URL)
        self._clean = clean
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._requests = _seconds(
            meter, names.OPERATION_DURATION, "GenAI operation duration.", _SECONDS
        )
        self._agents = _seconds(
            meter, names.AGENT_DURATION, "Duration of an agent call.", _AGENT_SECONDS
        )
        self._tools = _seconds(meter, names.TOOL_DURATION, "Duration of one tool call.", _SECONDS)
        self._cases = _seconds(
            meter, names.CASE_DURATION, "Duration of one test case.", _AGENT_SECONDS
        )
        self._outcomes = meter.create_counter(
            names.CASE_OUTCOMES, "{case}", "Number of test cases by outcome."
        )
        self._kernel: Histogram | None = None
        if includes_kernel:
            self._kernel = _seconds(
                provider.get_meter(KERNEL), KERNEL_DURATION, "Duration of a function.", _SECONDS
            )

    def begin(self, attributes: Mapping[str, Any]) -> SpanMeasurement:
        """Begin to measure an operation, which has the attributes of its span."""
        return SpanMeasurement(self, attributes)

    def record(self, attributes: Mapping[str, Any], seconds: float, *, with_tokens: bool) -> None:
        """Record an operation that has ended."""
        labels = {key: attributes[key] for key in LABELS if attributes.get(key) is not None}
        labels = {k: self._clean(v) if isinstance(v, str) else v for k, v in labels.items()}
        if names.CASE_OUTCOME in labels:
            self._cases.record(seconds, labels)
            self._outcomes.add(1, labels)
        operation = labels.get(names.OPERATION)
        if operation == names.EXECUTE_TOOL:
            self._tools.record(seconds, labels)
            if self._kernel is not None:
                self._kernel.record(seconds, {KERNEL_FUNCTION: labels[names.TOOL_NAME]})
        if operation in {names.CHAT, names.INVOKE_AGENT}:
            self._requests.record(seconds, labels)
            if with_tokens:
                self._record_tokens(attributes, labels)
        if operation == names.INVOKE_AGENT:
            self._agents.record(seconds, labels)

    def _record_tokens(self, attributes: Mapping[str, Any], labels: dict[str, Any]) -> None:
        labels.pop(names.ERROR_TYPE, None)
        for kind, key in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            if attributes.get(key) is not None:
                self._tokens.record(attributes[key], {**labels, names.TOKEN_TYPE: kind})


class SpanMeasurement:
    """An operation that is being measured."""

    def __init__(self, meters: Meters, attributes: Mapping[str, Any]) -> None:
        self.attributes = dict(attributes)
        self._meters = meters
        self._started = time.perf_counter()
        self._call: _AgentCall | None = None
        self._token: Token[_AgentCall | None] | None = None
        operation = attributes.get(names.OPERATION)
        if operation == names.INVOKE_AGENT:
            self._call = _AgentCall()
            self._token = _agent_call.set(self._call)
        elif operation == names.CHAT and (around := _agent_call.get()) is not None:
            around.has_requests = True

    def end(self) -> None:
        """Record it. The tokens of an agent are those of its requests, if these are known."""
        if self._token is not None:
            _agent_call.reset(self._token)
        counted = self._call is not None and self._call.has_requests
        seconds = time.perf_counter() - self._started
        self._meters.record(self.attributes, seconds, with_tokens=not counted)


def _seconds(meter: Meter, name: str, description: str, boundaries: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=boundaries
    )
