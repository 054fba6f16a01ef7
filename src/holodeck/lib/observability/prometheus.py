"""The adapter for Prometheus: an endpoint that is scraped while the run lasts."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.exceptions import describe
from holodeck.lib.safe_paths import written_path
from holodeck.models.observability import PrometheusExporterConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

FIELD = "observability.exporters.prometheus"


class PrometheusEndpoint:
    """Serves the metrics of a run.

    Raises MissingExtra, and ConfigError if the address cannot be used.
    """

    def __init__(self, config: PrometheusExporterConfig, base_dir: Path) -> None:
        try:
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise MissingExtra("prometheus", FIELD) from error
        self._registry = CollectorRegistry()
        self.reader: MetricReader = PrometheusMetricReader(registry=self._registry)
        self._textfile: Path | None = None
        if config.textfile is not None:
            self._textfile = written_path(config.textfile, base_dir, f"{FIELD}.textfile")
        self._server = _serve(config, self._registry)

    def close(self) -> None:
        """Close the endpoint, and write the last values to the file, if one is configured."""
        from prometheus_client import write_to_textfile

        self._server.shutdown()
        self._server.server_close()
        if self._textfile is not None:
            self._textfile.parent.mkdir(parents=True, exist_ok=True)
            write_to_textfile(str(self._textfile), self._registry)


def _serve(config: PrometheusExporterConfig, registry: Any) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            from prometheus_client.exposition import choose_encoder

            is_known = self.path.partition("?")[0] == config.path
            encode, kind = choose_encoder(self.headers.get("accept", ""))
            body = encode(registry) if is_known else f"see {config.path}\n".encode()
            self.send_response(200 if is_known else 404)
            self.send_header("content-type", kind if is_known else "text/plain")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Keep quiet: scrapes are not what the run is about."""

    try:
        server = ThreadingHTTPServer((config.host, config.port), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"{FIELD}.port",
            f"metrics cannot be served at {config.host}:{config.port} ({describe(error)});"
            " write another 'port' or 'host'",
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="holodeck-metrics", daemon=True).start()
    return server
