"""Where telemetry goes: a collector, the console, or Azure Monitor.

Exporters have the names under which OpenTelemetry's packages register them.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.support.environment import set_variables
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.support.text import describe, inert_json
from holodeck.models.observability import (
    AzureMonitorExporterConfig,
    ConsoleExporterConfig,
    OTLPExporterConfig,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

logger = logging.getLogger(__name__)

OTLP_FIELD = "observability.exporters.otlp"
GRPC_PORT = 4317
PATHS = {"traces": "/v1/traces", "metrics": "/v1/metrics", "logs": "/v1/logs"}
AZURE_FIELD = "observability.exporters.azure_monitor"
ONLY_TELEMETRY = {
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
    "APPLICATIONINSIGHTS_SDKSTATS_DISABLED": "true",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
}
"""Without these, the library of Azure reports on itself, and fetches settings."""
TIMES = ("start_time", "end_time", "start_time_unix_nano", "time_unix_nano", "timestamp")
_current = threading.local()


class Target(NamedTuple):
    """Where an exporter sends, and how."""

    protocol: Literal["grpc", "http"]
    endpoint: str
    """With HTTP, the base URL."""
    insecure: bool
    """Whether the connection is not encrypted."""


def otlp_target(config: OTLPExporterConfig) -> Target:
    """Return where telemetry goes. Raises ConfigError."""
    endpoint = config.endpoint
    protocol = config.protocol or ("grpc" if _port(endpoint) == GRPC_PORT else "http")
    if endpoint is None:
        endpoint = "http://localhost:4317" if protocol == "grpc" else "http://localhost:4318"
    if protocol == "http":
        return Target("http", _base_url(endpoint), endpoint.startswith("http://"))
    scheme, separator, rest = endpoint.partition("://")
    if separator and scheme not in {"http", "https"}:
        raise _no_url(endpoint, "http://localhost:4317")
    if not separator and not rest:
        insecure = config.insecure is not False
        endpoint = f"{'http' if insecure else 'https'}://{endpoint}"
    if _port(endpoint) is None:
        raise _no_url(config.endpoint or endpoint, "http://localhost:4317")
    insecure = endpoint.startswith("http://")
    if config.insecure is False and insecure:
        raise ConfigError(
            f"{OTLP_FIELD}.insecure",
            f"false contradicts the endpoint {config.endpoint!r}; write 'https://' in it",
        )
    return Target("grpc", endpoint, insecure)


def _base_url(endpoint: str) -> str:
    """Return the URL without the path of a signal. Raises ConfigError."""
    if not endpoint.startswith(("http://", "https://")) or _port(endpoint) is None:
        raise _no_url(endpoint, "http://localhost:4318")
    base = endpoint.rstrip("/")
    for path in PATHS.values():
        base = base.removesuffix(path)
    return base


def _port(endpoint: str | None) -> int | None:
    """Return the port of a URL or of `host:port`; None without a host or with a wrong port."""
    if endpoint is None:
        return None
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"grpc://{endpoint}")
        default = {"http": 80, "https": 443}.get(parts.scheme, GRPC_PORT)
        return None if not parts.hostname else parts.port or default
    except ValueError:
        return None


def _no_url(endpoint: str, example: str) -> ConfigError:
    return ConfigError(
        f"{OTLP_FIELD}.endpoint", f"{endpoint!r} is not a URL; write one such as {example!r}"
    )


class Exporter:
    """Passes everything on to an exporter, and notes whether it arrived.

    Args:
        exporter: An exporter of the SDK, for spans, metrics or log records.
        signal: What it exports.
        destination: Where it sends it, for messages.
    """

    def __init__(self, exporter: Any, signal: str, destination: str) -> None:
        self._exporter = exporter
        self.signal = signal
        self.destination = destination
        self.failed = False
        self.reason = ""
        """What the exporter last logged; it returns no reason."""
        self.is_failing = False
        """Whether the last attempt to export failed; another may be under way."""
        self._is_closed = False
        for kind in type(exporter).__mro__:
            filters = logging.getLogger(kind.__module__).filters
            if _keep_reason not in filters:
                filters.insert(0, _keep_reason)  # the library's own filter drops repeated lines

    def export(self, *batch: Any, **options: Any) -> Any:
        """Export, and return the result; None after an exception."""
        _current.exporter, self.is_failing = self, False
        try:
            result = self._exporter.export(*batch, **options)
        except Exception as error:  # noqa: BLE001 - telemetry must not change what is measured
            self.failed, self.reason = True, describe(error)
            return None
        finally:
            _current.exporter = None
        if result.name != "SUCCESS" and not self._is_closed:
            self.failed = True
        return result

    def shutdown(self, *args: Any, **options: Any) -> None:
        """Shut down once; later calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)


def is_exporting() -> bool:
    """Whether this thread exports telemetry."""
    return getattr(_current, "exporter", None) is not None


def _keep_reason(record: logging.LogRecord) -> bool:
    """Keep what an exporter of ours logs as the reason, instead of a line for each attempt."""
    exporter = getattr(_current, "exporter", None)
    if exporter is None:
        return True
    exporter.reason, exporter.is_failing = record.getMessage(), True
    logger.debug("%s", exporter.reason)
    return False


def _load(name: str, signal: str, extra: str, field: str) -> Any:
    """Return the class that a package registers for a signal. Raises MissingExtra."""
    for point in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            return point.load()
        except ImportError as error:
            raise MissingExtra(extra, field) from error
    raise MissingExtra(extra, field)


def otlp_exporter(config: OTLPExporterConfig, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs` to a collector. Raises ConfigError."""
    target = otlp_target(config)
    headers = {name: value.get_secret_value() for name, value in config.headers.items()}
    timeout = config.timeout_ms / 1000
    if target.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http import Compression

        return _load("otlp_proto_http", signal, "otlp", OTLP_FIELD)(
            endpoint=target.endpoint + PATHS[signal],
            headers=headers,
            timeout=timeout,
            compression=Compression(config.compression or "none"),
        )
    kind = _load("otlp_proto_grpc", signal, "otlp-grpc", f"{OTLP_FIELD} (gRPC)")
    from grpc import Compression as GrpcCompression

    compressions = {"gzip": GrpcCompression.Gzip, "deflate": GrpcCompression.Deflate}
    return kind(
        endpoint=target.endpoint,
        insecure=target.insecure,
        headers={name.lower(): value for name, value in headers.items()},  # as gRPC wants them
        timeout=timeout,
        compression=compressions.get(config.compression or "", GrpcCompression.NoCompression),
    )


def azure_exporter(config: AzureMonitorExporterConfig, base_dir: Path, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs` to Azure. Raises ConfigError."""
    assert config.connection_string is not None  # noqa: S101 - the model requires it
    set_variables(ONLY_TELEMETRY)
    options: dict[str, Any] = {"disable_offline_storage": config.disable_offline_storage}
    if config.storage_directory is not None:
        field = f"{AZURE_FIELD}.storage_directory"
        options["storage_directory"] = str(written_path(config.storage_directory, base_dir, field))
    kind = _load("azure_monitor_opentelemetry_exporter", signal, "azure-monitor", AZURE_FIELD)
    try:
        return kind(connection_string=config.connection_string.get_secret_value(), **options)
    except ValueError as error:
        raise ConfigError(f"{AZURE_FIELD}.connection_string", f"{error}") from error


def console_exporter(config: ConsoleExporterConfig, signal: str) -> Any:
    """Return the exporter of `traces` or `metrics` to stderr; None for logs, which are there."""

    hidden = () if config.include_timestamps else TIMES

    def read(text: str) -> Any:
        return json.loads(
            text,
            object_hook=lambda entry: {key: entry[key] for key in entry if key not in hidden},
        )

    def shown(document: Any) -> str:
        indent = 2 if config.pretty_print else None
        return inert_json(json.dumps(document, indent=indent, ensure_ascii=False)) + "\n"

    def write_span(span: ReadableSpan) -> str:
        return shown(read(span.to_json()))

    def write_metrics(data: MetricsData) -> str:
        resources = read(data.to_json())["resource_metrics"]
        scopes = [scope for resource in resources for scope in resource["scope_metrics"]]
        return "".join(shown(metric) for scope in scopes for metric in scope["metrics"])

    write = {"traces": write_span, "metrics": write_metrics}.get(signal)
    if write is None:
        return None
    return _load("console", signal, "otlp", OTLP_FIELD)(out=sys.stderr, formatter=write)
