"""Reads export requests of OTLP, in protobuf and in JSON."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from holodeck.lib.traces.span_builder import Mask, build_span
from holodeck.models.spans import RecordedSpan

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MAX_DEPTH = 8
"""Of values inside of values."""
_STATUSES = ("unset", "ok", "error")
_WRONG_SHAPE = (AttributeError, TypeError, ValueError)
"""What a JSON document of another shape raises."""
_IDS = ("traceId", "spanId", "parentSpanId")


class UnreadableRequest(Exception):
    """The body is no export request of OTLP; the message says why."""


def read_request(body: bytes, content_type: str) -> Any:
    """Return the ExportTraceServiceRequest in a body. Raises UnreadableRequest."""
    from google.protobuf.json_format import ParseDict, ParseError  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415
        ExportTraceServiceRequest,
    )

    try:
        if content_type == PROTOBUF:
            return ExportTraceServiceRequest.FromString(body)
        document = json.loads(body)
        _encode_ids(document)
        return ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (
        DecodeError,
        ParseError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UnreadableRequest(f"it is no export request of OTLP: {error}") from error


def trace_ids(request: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each span of a request, with the id of its trace and its resource."""
    for part in request.resource_spans:
        for scope in part.scope_spans:
            for span in scope.spans:
                yield span.trace_id.hex(), span, part.resource


def span_of_message(span: Any, resource: Any, mask: Mask) -> RecordedSpan:
    """Return a span of a request."""
    services = (_value(one.value) for one in resource.attributes if one.key == "service.name")
    found = {
        "name": span.name,
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_span_id.hex(),
        "service": str(next(services, "")),
        "started_ns": span.start_time_unix_nano,
        "ended_ns": span.end_time_unix_nano,
        "status": _STATUSES[span.status.code] if span.status.code < len(_STATUSES) else "unset",
        "status_message": span.status.message,
    }
    return build_span(found, ((one.key, _value(one.value)) for one in span.attributes), mask)


def _value(value: Any, depth: int = 0) -> Any:
    """Return an AnyValue as JSON has it."""
    kind = value.WhichOneof("value")
    if kind is None or depth > MAX_DEPTH:
        return None
    if kind == "array_value":
        return [_value(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return json.dumps(
            {one.key: _value(one.value, depth + 1) for one in value.kvlist_value.values},
            default=repr,
        )
    return getattr(value, kind)


def _encode_ids(document: Any) -> None:
    """Turn ids, which OTLP writes in hexadecimal digits, into the base64 of protobuf's JSON."""
    for part in document.get("resourceSpans", ()):
        for scope in part.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in _IDS:
                    if name in span:
                        span[name] = b64encode(bytes.fromhex(span[name])).decode()
                span.pop("links", None)  # their ids, too, and nothing reads them
