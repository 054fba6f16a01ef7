"""Traces that go on in the agent under test: the W3C headers of outgoing requests."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import SystemRandom
from typing import Any

TRACEPARENT = "traceparent"


def propagation_headers() -> dict[str, str]:
    """Return the headers of a request that continues the current trace; {} without one."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        # Imported here because most runs have no trace.
        from opentelemetry import propagate  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        propagate.inject(headers)  # as the process is set up, which may be without W3C's headers
        if TRACEPARENT not in headers:
            TraceContextTextMapPropagator().inject(headers)
    return headers


async def continue_trace(request: Any) -> None:
    """Add the headers of the current trace to a request: an event hook for clients of httpx.

    Headers that the request has already are kept.
    """
    for name, value in propagation_headers().items():
        request.headers.setdefault(name, value)


async def continue_trace_of_message(request: Any) -> None:
    """Do the same for a client of MCP, whose calls pass the headers in the `_meta` of a message.

    The SDK sends requests in a task of its own, which does not know the caller's trace.
    """
    meta: Any = {}
    if request.method == "POST" and TRACEPARENT.encode() in request.content:
        params = json.loads(request.content).get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get(TRACEPARENT), str):
        request.headers.setdefault(TRACEPARENT, meta[TRACEPARENT])
    await continue_trace(request)


@contextmanager
def ensure_trace() -> Iterator[str]:
    """Yield the `traceparent` of the current trace; where none is recorded, begin one.

    The new trace has no span of holodeck's. Its ids tell which spans belong to the block.
    """
    # Imported here because most runs have no trace.
    from opentelemetry.trace import get_current_span  # noqa: PLC0415

    around = get_current_span().get_span_context()
    if around.is_valid and around.trace_flags.sampled:
        yield propagation_headers()[TRACEPARENT]
        return
    ids = SystemRandom()
    with begin_trace(ids.getrandbits(128), ids.getrandbits(64)):
        yield propagation_headers()[TRACEPARENT]


@contextmanager
def continue_run(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans in the block, and in what is started in it, parts of another process's trace.

    Args:
        headers: What `propagation_headers` returned there.
    """
    if not headers:
        yield
        return
    # Imported here because most runs have no trace.
    from opentelemetry import context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    token = context.attach(TraceContextTextMapPropagator().extract(headers))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def begin_trace(trace_id: int, span_id: int) -> Iterator[None]:
    """Begin a recorded trace that has no span of holodeck's; `span_id` is around its spans."""
    # Imported here because most runs have no trace.
    from opentelemetry.trace import (  # noqa: PLC0415
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        use_span,
    )

    flags = TraceFlags(TraceFlags.SAMPLED)
    begun = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
    with use_span(begun, record_exception=False, set_status_on_exception=False):
        yield
