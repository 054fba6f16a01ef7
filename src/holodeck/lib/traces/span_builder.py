"""Spans as results keep them, made from what OpenTelemetry has; bounded, and without secrets."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holodeck.models.base import Json
from holodeck.models.cases.trace_checks import SpanStatus
from holodeck.models.results.spans import RecordedSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_VALUE = 4_000
"""Characters of one value, or of the items of one list."""
MAX_NAME = 500
MAX_ATTRIBUTES = 256
"""Of one span; OpenTelemetry keeps 128 by default."""

Mask = Callable[[str], str]
"""Removes from a text what results must not contain."""
_STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error", "UNSET": "unset"}


def build_span(
    found: Mapping[str, Any], attributes: Iterable[tuple[str, Any]], mask: Mask
) -> RecordedSpan:
    """Return a span; `found` has its other fields, whose texts may be of any length."""
    values: dict[str, Json] = {}
    cut = []
    for name, value in attributes:
        if len(values) >= MAX_ATTRIBUTES:
            break
        values[name[:MAX_NAME]], is_cut = _bounded(value, mask)
        if is_cut:
            cut.append(name[:MAX_NAME])
    texts = {key: mask(value[:MAX_NAME]) for key, value in found.items() if isinstance(value, str)}
    return RecordedSpan.model_validate({**found, **texts, "attributes": values, "cut": cut})


def span_of(span: "ReadableSpan", mask: Mask) -> RecordedSpan:
    """Return a span of this process that has ended."""
    context, resource = span.get_span_context(), span.resource.attributes
    found = {
        "name": span.name,
        "span_id": format(0 if context is None else context.span_id, "016x"),
        "parent_id": "" if span.parent is None else format(span.parent.span_id, "016x"),
        "service": str(resource.get("service.name", "")),
        "started_ns": span.start_time or 0,
        "ended_ns": span.end_time or span.start_time or 0,
        "status": _STATUSES[span.status.status_code.name],
        "status_message": span.status.description or "",
    }
    return build_span(found, (span.attributes or {}).items(), mask)


def _bounded(value: Any, mask: Mask) -> tuple[Json, bool]:
    """Return a value as JSON has it, and whether it is cut."""
    if isinstance(value, str):
        return mask(value[:MAX_VALUE]), len(value) > MAX_VALUE
    if isinstance(value, bytes):
        return _bounded(value.hex(), mask)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value), False
    if not isinstance(value, list | tuple):
        return value, False
    kept: list[Json] = []
    left = MAX_VALUE
    for one in value:
        bounded, is_cut = _bounded(one, mask)
        left -= len(bounded) + 1 if isinstance(bounded, str) else 8
        if is_cut or left < 0:
            return kept, True
        kept.append(bounded)
    return kept, False
