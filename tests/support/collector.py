"""OpenTelemetry collectors on loopback, over HTTP and gRPC."""

import gzip
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@dataclass
class Collector:
    """Where it listens, and what it got."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """The last state of each metric, by name."""
    logs: list[Any] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The path, or the method of gRPC, and the headers of each request."""

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def span(self, name: str) -> Any:
        """The only span of that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        return plain(self.span(name).attributes)

    def events(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """The events of the only span of that name."""
        return [(event.name, plain(event.attributes)) for event in self.span(name).events]

    def parent(self, name: str) -> str:
        """The name of the span that the span lies in; "" for one that lies in none."""
        outer = self.span(name).parent_span_id
        return next((span.name for span in self.spans if span.span_id == outer), "")

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The labels and the data points of a metric; [] if there is none of that name."""
        if name not in self.metrics:
            return []
        metric = self.metrics[name]
        points = getattr(metric, metric.WhichOneof("data")).data_points
        return [(plain(point.attributes), point) for point in points]

    def log_lines(self) -> list[str]:
        return [record.body.string_value for record in self.logs if not record.event_name]

    def take(self, request: Any) -> Any:
        """Keep what a request holds; the response to it."""
        if isinstance(request, ExportTraceServiceRequest):
            for part in request.resource_spans:
                self._take_resource(part)
                self.spans += [span for scope in part.scope_spans for span in scope.spans]
            return ExportTraceServiceResponse()
        if isinstance(request, ExportMetricsServiceRequest):
            for part in request.resource_metrics:
                self._take_resource(part)
                for scope in part.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
            return ExportMetricsServiceResponse()
        for part in request.resource_logs:
            self._take_resource(part)
            self.logs += [record for scope in part.scope_logs for record in scope.log_records]
        return ExportLogsServiceResponse()

    def _take_resource(self, part: Any) -> None:
        self.resource |= plain(part.resource.attributes)


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@contextmanager
def collector(refused: tuple[str, ...] = ()) -> Iterator[Collector]:
    """A collector that takes everything over HTTP, except what is sent to the refused paths."""
    got = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            unpack = UNPACK.get(self.headers.get("content-encoding", ""), bytes)
            headers = {name.lower(): value for name, value in self.headers.items()}
            got.requests.append((self.path, headers))
            is_taken = self.path in REQUESTS and self.path not in refused
            if is_taken:
                got.take(REQUESTS[self.path].FromString(unpack(body)))
            self.send_response(200 if is_taken else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    got.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """A collector that takes everything over gRPC; its URL has no scheme."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces

    got = Collector()

    class Service:
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
            got.requests.append((type(request).__name__, dict(context.invocation_metadata())))
            return got.take(request)

    server = grpc.server(ThreadPoolExecutor(4))
    traces.add_TraceServiceServicer_to_server(Service(), server)
    metrics.add_MetricsServiceServicer_to_server(Service(), server)
    logs.add_LogsServiceServicer_to_server(Service(), server)
    got.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield got
    finally:
        server.stop(0).wait()
