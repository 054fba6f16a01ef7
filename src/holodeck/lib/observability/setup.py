"""The telemetry of one run: begin it, and send the rest at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import Content, Tracing, activate, deactivate
from holodeck.lib.support.text import describe

if TYPE_CHECKING:
    from holodeck.lib.observability.log_bridge import LogBridge
    from holodeck.lib.observability.sdk import Pipelines
    from holodeck.models.observability import ObservabilityConfig

logger = logging.getLogger(__name__)

FLUSH_S = 5.0
"""How long the end of a run waits for exporters."""
INTERRUPTED_S = 0.5
"""How long a run that was interrupted waits for them."""
FAILING_S = 1.0
"""How long it waits for exporters that fail; they would try again for a minute."""
_POLL_S = 0.05


@dataclass(frozen=True)
class ObservabilityContext:
    """The telemetry of one run."""

    tracing: Tracing | None = None
    """None: the run has none."""
    pipelines: Pipelines | None = None
    log_bridge: LogBridge | None = None
    """None: log records are not sent."""
    clean: Callable[[str], str] = str


def initialize_observability(
    config: ObservabilityConfig | None,
    agent_name: str,
    clean: Callable[[str], str] = str,
    base_dir: Path | None = None,
    instance: str | None = None,
) -> ObservabilityContext:
    """Send spans, metrics and log records to the exporters of `config`.

    Does nothing unless it is enabled.

    Args:
        config: What is sent, and where; None for nothing.
        agent_name: The agent under test.
        clean: Removes secrets from text.
        base_dir: Where relative paths start; None for the working folder.
        instance: The name of this process, where several send for one run.

    Raises:
        ConfigError: An exporter cannot be used.
    """
    if config is None or not config.enabled:
        return ObservabilityContext()
    if not (config.traces.enabled or config.metrics.enabled or config.logs.enabled):
        return ObservabilityContext()
    # Imported here because few runs have telemetry.
    from holodeck.lib.observability.sdk import start_pipelines  # noqa: PLC0415

    content = Content(config.traces.redaction_patterns, clean)
    pipelines = start_pipelines(
        config, _resource(config, agent_name, instance), base_dir or Path.cwd()
    )
    meters, bridge = None, None
    if pipelines.meter_provider is not None:
        from holodeck.lib.observability.meters import Meters  # noqa: PLC0415 - see above

        includes_kernel = config.metrics.include_semantic_kernel_metrics
        meters = Meters(pipelines.meter_provider, clean, includes_kernel=includes_kernel)
    if pipelines.logger_provider is not None:
        from holodeck.lib.observability.log_bridge import LogBridge  # noqa: PLC0415 - see above

        bridge = LogBridge(
            pipelines.logger_provider,
            config.logs,
            content.mask,
            has_content=config.traces.capture_content,
        )
        bridge.attach()
    tracing = Tracing(
        pipelines.tracer,
        content if config.traces.capture_content else None,
        clean,
        content if config.traces.capture_evaluation_content else None,
        meters,
        None if bridge is None else bridge.emit_event,
    )
    activate(tracing)
    return ObservabilityContext(tracing, pipelines, bridge, clean)


def shutdown_observability(
    context: ObservabilityContext, timeout: float = FLUSH_S, *, interrupted: bool = False
) -> None:
    """Send the rest within `timeout` seconds; what did not arrive is logged once.

    A run that was `interrupted` waits for INTERRUPTED_S at most. May be called twice.
    """
    tracing, pipelines = context.tracing, context.pipelines
    if tracing is None or pipelines is None:
        return
    deactivate(tracing)
    if context.log_bridge is not None:
        context.log_bridge.detach()
    limit = min(timeout, INTERRUPTED_S) if interrupted else timeout
    late, waited = _flush(pipelines, limit)
    # Imported already, by the pipelines.
    from holodeck.lib.observability.delivery import describe_failures, describe_late  # noqa: PLC0415

    exporters, clean = pipelines.exporters, context.clean
    if late:
        logger.warning("%s", describe_late(exporters, late, waited, clean))
        pipelines.give_up()
    for line in describe_failures(
        [exporter for exporter in exporters if exporter.signal not in late], clean
    ):
        logger.warning("%s", line)


def _flush(pipelines: Pipelines, timeout: float) -> tuple[list[str], float]:
    """Send the rest of all signals at the same time.

    Return those that take too long, and which time that is in seconds.
    """

    def flush(signal: str, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - telemetry must not change what is measured
            logger.warning("%s could not be delivered: %s", signal, describe(error))

    threads = {
        signal: threading.Thread(
            target=flush, args=(signal, send), name=f"holodeck-{signal}", daemon=True
        )
        for signal, send in pipelines.flushes.items()
    }
    pipelines.flushes.clear()
    for thread in threads.values():
        thread.start()
    started, limit = time.monotonic(), timeout
    while late := [signal for signal, thread in threads.items() if thread.is_alive()]:
        if all(exporter.is_failing for exporter in pipelines.exporters if exporter.signal in late):
            limit = min(timeout, FAILING_S)
        left = started + limit - time.monotonic()
        if left <= 0:
            break
        threads[late[0]].join(min(left, _POLL_S))
    return late, limit


def _resource(config: ObservabilityConfig, agent_name: str, instance: str | None) -> dict[str, str]:
    """Return the resource attributes of everything that is sent."""
    described = {names.SERVICE_NAME: f"holodeck-{agent_name}"} | config.resource_attributes
    if config.service_name:
        described[names.SERVICE_NAME] = config.service_name
    # Otherwise the sums of several processes would be taken for one that goes up and down.
    return described | ({names.SERVICE_INSTANCE: instance} if instance else {})
