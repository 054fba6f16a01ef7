"""An OpenTelemetry collector on loopback."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """Where it listens, and the spans it got."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def span(self, name: str) -> Any:
        """The only span of that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        return {
            one.key: getattr(one.value, one.value.WhichOneof("value"))
            for one in self.span(name).attributes
        }

    def parent(self, name: str) -> str:
        """The name of the span that the span lies in; "" for one that lies in none."""
        outer = self.span(name).parent_span_id
        return next((span.name for span in self.spans if span.span_id == outer), "")

    def take(self, body: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource |= {a.key: a.value.string_value for a in part.resource.attributes}
            self.spans += [span for scope in part.scope_spans for span in scope.spans]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that takes every span."""
    got = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            got.take(gzip.decompress(body) if packed else body)
            self.send_response(200)
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
