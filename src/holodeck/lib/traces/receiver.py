"""The OTLP receiver: takes what an agent exports to 127.0.0.1, over HTTP."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from holodeck.lib.llm.http_parser import MalformedHttp, TooLarge, decode_body
from holodeck.lib.support.text import one_line
from holodeck.lib.tap.exchange import Response, header
from holodeck.lib.tap.handlers import error_response
from holodeck.lib.tap.loopback import LoopbackServer
from holodeck.lib.tap.server import ReceivedRequest
from holodeck.lib.traces.span_builder import Mask, build_span
from holodeck.lib.traces.span_store import SpanStore
from holodeck.models.results.spans import RecordedSpan

PATH = "/v1/traces"
_IGNORED = ("/v1/metrics", "/v1/logs", "/v1development/profiles")
"""What agents export besides; it is accepted, so that they log no errors."""
MAX_BODY_BYTES = 64_000_000
"""Of one request once it is decompressed."""
_HTTP_2 = "PRI"
"""The method that a client of HTTP/2 seems to use."""
_GRPC = "an exporter speaks gRPC; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for the agent"


class OtlpReceiver:
    """Takes export requests and passes their spans on.

    Args:
        port: Where it listens; 0 for a free port.
    """

    def __init__(self, port: int = 0) -> None:
        self.store = SpanStore()
        """Knows which calls of an agent spans belong to."""
        self.users = 1
        """How many agents export to it."""
        self._server = LoopbackServer(self._respond, "holodeck-otlp", port)
        self.requests = 0
        """Export requests of traces until now."""
        self.problem: str | None = None
        """Why one of them could not be read; None if all could."""

    @property
    def url(self) -> str:
        """The base URL for exporters."""
        return f"http://127.0.0.1:{self._server.port}"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        await self._server.start()

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        await self._server.close()

    @asynccontextmanager
    async def _respond(self, request: ReceivedRequest) -> AsyncIterator[Response]:
        path = request.target.partition("?")[0].rstrip("/")
        kind = (header(request.headers, b"content-type") or "").partition(";")[0].strip().lower()
        if request.method == _HTTP_2:
            self.problem = _GRPC
        if request.method != "POST" or path not in {PATH, *_IGNORED}:
            yield error_response(404, "not_found", f"write to {PATH} with POST")
            return
        if path == PATH:
            self.requests += 1
            try:
                self._take(request, kind)
            except (UnreadableRequest, MalformedHttp, TooLarge) as error:
                self.problem = one_line(str(error), 200)
                yield error_response(400, "bad_request", self.problem)
                return
        yield _accepted(kind)

    def _take(self, request: ReceivedRequest, kind: str) -> None:
        if kind not in {PROTOBUF, JSON}:
            raise UnreadableRequest(f"its content type is {kind!r}, not {PROTOBUF} or {JSON}")
        coding = header(request.headers, b"content-encoding")
        body = decode_body(request.body, coding, MAX_BODY_BYTES)
        for trace_id, span, resource in trace_ids(read_request(body, kind)):
            call = self.store.find(trace_id)
            if call is not None:
                call.add(span_of_message(span, resource, call.mask))


_by_port: dict[int, OtlpReceiver] = {}
"""The open receivers of fixed ports, which agents that are compared share."""


async def open_receiver(port: int) -> OtlpReceiver:
    """Return a receiver that listens on a port, or on a free one if it is 0. Raises OSError."""
    if port in _by_port:
        _by_port[port].users += 1
        return _by_port[port]
    receiver = OtlpReceiver(port)
    await receiver.start()
    if port:
        _by_port[port] = receiver
    return receiver


async def close_receiver(receiver: OtlpReceiver) -> None:
    """Close a receiver once nobody else uses it."""
    receiver.users -= 1
    if receiver.users:
        return
    for port in [port for port, one in _by_port.items() if one is receiver]:
        del _by_port[port]
    await receiver.close()


def _accepted(kind: str) -> Response:
    """Return an empty response of the kind of the request."""
    content = b"{}" if kind == JSON else b""

    async def body() -> AsyncIterator[bytes]:
        yield content

    headers = [
        (b"content-type", (JSON if kind == JSON else PROTOBUF).encode()),
        (b"content-length", str(len(content)).encode()),
    ]
    return Response(200, headers, body())


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
