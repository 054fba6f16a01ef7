"""The adapter for Azure Monitor's exporters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holodeck.config.environment import set_variables
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.safe_paths import written_path
from holodeck.models.observability import AzureMonitorExporterConfig

FIELD = "observability.exporters.azure_monitor"
ONLY_TELEMETRY = {
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
    "APPLICATIONINSIGHTS_SDKSTATS_DISABLED": "true",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
}
"""Without these, the library reports on itself, also after the run, and fetches settings."""


def azure_exporter(config: AzureMonitorExporterConfig, base_dir: Path, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs`. Raises ConfigError."""
    assert config.connection_string is not None  # noqa: S101 - the model requires it
    set_variables(ONLY_TELEMETRY)
    try:
        import azure.monitor.opentelemetry.exporter as library
    except ImportError as error:
        raise MissingExtra("azure-monitor", FIELD) from error
    kinds = {
        "traces": library.AzureMonitorTraceExporter,
        "metrics": library.AzureMonitorMetricExporter,
        "logs": library.AzureMonitorLogExporter,
    }
    options: dict[str, Any] = {"disable_offline_storage": config.disable_offline_storage}
    if config.storage_directory is not None:
        folder = written_path(config.storage_directory, base_dir, f"{FIELD}.storage_directory")
        options["storage_directory"] = str(folder)
    try:
        return kinds[signal](
            connection_string=config.connection_string.get_secret_value(), **options
        )
    except ValueError as error:
        raise ConfigError(f"{FIELD}.connection_string", f"{error}") from error
