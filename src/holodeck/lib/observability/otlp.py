"""Where telemetry goes over OTLP, by HTTP or gRPC."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from holodeck.errors import ConfigError
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
            f"{FIELD}.insecure",
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
        f"{FIELD}.endpoint", f"{endpoint!r} is not a URL; write one such as {example!r}"
    )
