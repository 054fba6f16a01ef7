"""The adapter for OpenTelemetry's OTLP exporters, over HTTP and gRPC."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from holodeck.errors import ConfigError, MissingExtra
from holodeck.models.observability import OTLPExporterConfig

FIELD = "observability.exporters.otlp"
GRPC_PORT = 4317
PATHS = {"traces": "/v1/traces", "metrics": "/v1/metrics", "logs": "/v1/logs"}


class Target(NamedTuple):
    """Where an exporter sends, and how."""

    protocol: Literal["grpc", "http"]
    endpoint: str
    """With HTTP, the base URL."""
    insecure: bool
    """Whether the connection is not encrypted."""


def otlp_target(config: OTLPExporterConfig) -> Target:
    """Return where telemetry goes. Raises ConfigError."""
    given = config.endpoint
    protocol = config.protocol or ("grpc" if _port(given) == GRPC_PORT else "http")
    if given is None:
        given = "http://localhost:4317" if protocol == "grpc" else "http://localhost:4318"
    if protocol == "http":
        return Target("http", _base_url(given), given.startswith("http://"))
    scheme, separator, rest = given.partition("://")
    if separator and scheme not in {"http", "https"}:
        raise _no_url(given, "http://localhost:4317")
    if not separator and not rest:
        insecure = config.insecure is not False
        given = f"{'http' if insecure else 'https'}://{given}"
    if _port(given) is None:
        raise _no_url(config.endpoint or given, "http://localhost:4317")
    insecure = given.startswith("http://")
    if config.insecure is False and insecure:
        raise ConfigError(
            f"{FIELD}.insecure",
            f"false contradicts the endpoint {config.endpoint!r}; write 'https://' in it",
        )
    return Target("grpc", given, insecure)


def otlp_exporter(config: OTLPExporterConfig, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs`. Raises ConfigError."""
    target = otlp_target(config)
    headers = {name: value.get_secret_value() for name, value in config.headers.items()}
    timeout = config.timeout_ms / 1000
    if target.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http import Compression

        http = _http_exporter(signal)
        return http(
            endpoint=target.endpoint + PATHS[signal],
            headers=headers,
            timeout=timeout,
            compression=Compression(config.compression or "none"),
        )
    try:
        import grpc

        grpc_exporter = _grpc_exporter(signal)
    except ImportError as error:
        raise MissingExtra("otlp-grpc", f"{FIELD} (gRPC)") from error
    compressions = {
        None: grpc.Compression.NoCompression,
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
    }
    return grpc_exporter(
        endpoint=target.endpoint,
        insecure=target.insecure,
        headers={name.lower(): value for name, value in headers.items()},  # as gRPC wants them
        timeout=timeout,
        compression=compressions[config.compression],
    )


def _http_exporter(signal: str) -> Any:
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter
    if signal == "metrics":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    return OTLPLogExporter


def _grpc_exporter(signal: str) -> Any:
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter
    if signal == "metrics":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

    return OTLPLogExporter


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
        f"{FIELD}.endpoint", f"{endpoint!r} is not a URL; write one such as {example!r}"
    )
