"""Find exporters of telemetry that cannot work, before the run starts them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from holodeck.config.checks.findings import CheckContext
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.observability.exporters import otlp_target
from holodeck.models.observability import ExportersConfig


def check_exporters(context: CheckContext, exporters: ExportersConfig) -> None:
    """Find wrong endpoints, which are errors, and libraries that are not installed.

    Without a library, the run takes place all the same, as its results do not need it.
    """
    for key, error in _problems(exporters):
        path = ("observability", "exporters", *key)
        if isinstance(error, MissingExtra):
            context.warning(path, f"nothing is sent: {error.field} {error.message}")
        else:
            context.config_error(path, error)


def _problems(exporters: ExportersConfig) -> Iterator[tuple[tuple[str, ...], ConfigError]]:
    otlp, prometheus, azure = exporters.otlp, exporters.prometheus, exporters.azure_monitor
    if otlp is not None and otlp.enabled:
        try:
            is_grpc = otlp_target(otlp).protocol == "grpc"
        except ConfigError as error:
            yield ("otlp", error.field.rpartition(".")[2]), error
        else:
            if is_grpc and not _is_installed("opentelemetry.exporter.otlp.proto.grpc"):
                yield ("otlp",), MissingExtra("otlp-grpc", "gRPC")
    if prometheus is not None and prometheus.enabled:
        for module in ("opentelemetry.exporter.prometheus", "prometheus_client"):
            if not _is_installed(module):
                yield ("prometheus",), MissingExtra("prometheus", "Prometheus")
                break
    if (
        azure is not None
        and azure.enabled
        and not _is_installed("azure.monitor.opentelemetry.exporter")
    ):
        yield ("azure_monitor",), MissingExtra("azure-monitor", "Azure Monitor")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it is missing, too
        return False
