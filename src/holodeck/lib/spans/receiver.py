"""The OTLP receiver: takes what an agent exports to 127.0.0.1, over HTTP."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holodeck.lib.llm.http_body import MalformedHttp, TooLarge, decode_body
from holodeck.lib.llm.request_handler import StreamedResponse
from holodeck.lib.observability import names
from holodeck.lib.spans.store import SpanCollector
from holodeck.lib.support.text import one_line
from holodeck.lib.tap.exchange import error_response, header, whole_response
from holodeck.lib.tap.server import LoopbackServer, ReceivedRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
_IGNORED = ("/v1/metrics", "/v1/logs", "/v1development/profiles")
"""What agents export besides; it is accepted, so that they log no errors."""
MAX_BODY_BYTES = 64_000_000
"""Of a request once it is decompressed."""
_HTTP_2 = "PRI"
"""The method that a client of HTTP/2 seems to use."""
_GRPC = "an exporter speaks gRPC; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for the agent"


class OtlpReceiver:
    """Takes export requests and gives their spans to its collector.

    Args:
        port: Where it listens; 0 for a free port.
    """

    def __init__(self, port: int = 0) -> None:
        self.collector = SpanCollector()
        self.users = 1
        """How many agents export to it."""
        self.server = LoopbackServer(self._respond, "holodeck-otlp", port)
        self.requests = 0
        """Export requests of traces until now."""
        self.problem: str | None = None
        """Why any of them could not be read; None if all could."""

    @property
    def url(self) -> str:
        """The base URL for exporters."""
        return f"http://127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def _respond(self, request: ReceivedRequest) -> AsyncIterator[StreamedResponse]:
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
        is_json = kind == JSON
        yield whole_response(200, JSON if is_json else PROTOBUF, b"{}" if is_json else b"")

    def _take(self, request: ReceivedRequest, kind: str) -> None:
        if kind not in {PROTOBUF, JSON}:
            raise UnreadableRequest(f"its content type is {kind!r}, not {PROTOBUF} or {JSON}")
        coding = header(request.headers, b"content-encoding")
        body = decode_body(request.body, coding, MAX_BODY_BYTES)
        for span in spans_in(read_request(body, kind)):
            self.collector.receive(span)


_by_port: dict[int, OtlpReceiver] = {}
"""The open receivers of fixed ports, which agents that are compared share."""


async def open_receiver(port: int) -> OtlpReceiver:
    """Return a receiver that listens on a port, or on a free port if it is 0. Raises OSError."""
    if port in _by_port:
        _by_port[port].users += 1
        return _by_port[port]
    receiver = OtlpReceiver(port)
    await receiver.server.start()
    if port:
        _by_port[port] = receiver
    return receiver


async def close_receiver(receiver: OtlpReceiver) -> None:
    """Close a receiver once no other agent uses it."""
    receiver.users -= 1
    if receiver.users:
        return
    for port in [port for port, other in _by_port.items() if other is receiver]:
        del _by_port[port]
    await receiver.server.close()


PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MAX_VALUE = 4_000
"""Characters of a value, or of the items of a list, that are kept."""
MAX_DEPTH = 8
"""Of values inside of values."""
_IDS = ("traceId", "spanId", "parentSpanId")


class UnreadableRequest(Exception):
    """A body that is not an export request of OTLP; the message says why."""


def read_request(body: bytes, content_type: str) -> Any:
    """Return the ExportTraceServiceRequest in a body. Raises UnreadableRequest."""
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    try:
        if content_type == PROTOBUF:
            return trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        document = json.loads(body)
        _encode_ids(document)
        request = trace_service_pb2.ExportTraceServiceRequest()
        return ParseDict(document, request, ignore_unknown_fields=True)
    except (
        DecodeError,
        ParseError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UnreadableRequest(f"it is no export request of OTLP: {error}") from error


def spans_in(request: Any) -> Iterator["ReadableSpan"]:
    """Yield the spans of a request, as the SDK has those of this process."""
    from opentelemetry.sdk.resources import Resource

    for part in request.resource_spans:
        attributes = part.resource.attributes
        services = [_value(item.value) for item in attributes if item.key == names.SERVICE_NAME]
        resource = Resource({names.SERVICE_NAME: str(services[0])} if services else {})
        for scope in part.scope_spans:
            for message in scope.spans:
                yield _readable(message, scope.scope.name, resource)


def _readable(message: Any, scope: str, resource: "Resource") -> "ReadableSpan":
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode  # noqa: PLC0415

    def context(span_id: bytes) -> SpanContext:
        trace_id = int.from_bytes(message.trace_id)
        return SpanContext(trace_id, int.from_bytes(span_id), is_remote=True)

    number = message.status.code
    code = StatusCode(number) if number in range(len(StatusCode)) else StatusCode.UNSET
    # Only spans of this process are kept without a limit.
    scope = f"exported {scope}" if scope == names.SCENARIO_TRACER else scope
    return ReadableSpan(
        message.name,
        context(message.span_id),
        context(message.parent_span_id) if message.parent_span_id else None,
        resource,
        {item.key: _value(item.value) for item in message.attributes},
        status=Status(code, message.status.message if code is StatusCode.ERROR else None),
        start_time=message.start_time_unix_nano,
        end_time=message.end_time_unix_nano,
        instrumentation_scope=InstrumentationScope(scope),
    )


def _value(value: Any, depth: int = 0) -> Any:
    """Return an AnyValue as JSON has it; of a long text, only what shows that it is too long."""
    kind = value.WhichOneof("value")
    if kind is None or depth > MAX_DEPTH:
        return None
    if kind == "array_value":
        return [_value(item, depth + 1) for item in value.array_value.values]
    content = getattr(value, kind)
    if kind == "kvlist_value":
        pairs = {item.key: _value(item.value, depth + 1) for item in content.values}
        content = json.dumps(pairs, default=repr)
    return content[: MAX_VALUE + 1] if isinstance(content, str | bytes) else content


def _encode_ids(document: Any) -> None:
    """Turn ids, which OTLP writes in hexadecimal digits, into the base64 of protobuf's JSON."""
    for part in document.get("resourceSpans", ()):
        for scope in part.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in _IDS:
                    if name in span:
                        span[name] = b64encode(bytes.fromhex(span[name])).decode()
                span.pop("links", None)  # their ids, too, and nothing reads them
