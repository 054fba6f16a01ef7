"""The telemetry of a run: begin it, and send the rest at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import Content, Tracing, activate, deactivate

if TYPE_CHECKING:
    from holodeck.lib.observability.pipelines import Pipelines
    from holodeck.models.observability import ObservabilityConfig

logger = logging.getLogger(__name__)

FLUSH_S = 5.0
"""How long the end of a run waits for exporters."""
INTERRUPTED_S = 0.5
"""How long a run that was interrupted waits for them."""


@dataclass(frozen=True)
class ObservabilityContext:
    """The telemetry of a run."""

    tracing: Tracing | None = None
    """None: the run has none."""
    pipelines: Pipelines | None = None


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
        instance: The name of this process, where several send for the same run.

    Raises:
        ConfigError: An exporter cannot be used.
    """
    if config is None or not config.enabled:
        return ObservabilityContext()
    if not (config.traces.enabled or config.metrics.enabled or config.logs.enabled):
        return ObservabilityContext()
    # Imported here because few runs have telemetry.
    from holodeck.lib.observability.pipelines import Pipelines  # noqa: PLC0415

    attributes = {names.SERVICE_NAME: f"holodeck-{agent_name}"} | config.resource_attributes
    if config.service_name:
        attributes[names.SERVICE_NAME] = config.service_name
    if instance:  # else the sums of several processes were taken for a sum that goes up and down
        attributes[names.SERVICE_INSTANCE] = instance
    content = Content(config.traces.redaction_patterns, clean)
    pipelines = Pipelines(config, attributes, base_dir or Path.cwd(), clean, content.mask)
    pipelines.start()
    sender = pipelines.log_sender
    tracing = Tracing(
        pipelines.tracer,
        content if config.traces.capture_content else None,
        clean,
        content if config.traces.capture_evaluation_content else None,
        pipelines.meters,
        None if sender is None else sender.emit_event,
    )
    activate(tracing)
    return ObservabilityContext(tracing, pipelines)


def shutdown_observability(
    context: ObservabilityContext, timeout: float = FLUSH_S, *, interrupted: bool = False
) -> None:
    """Send the rest within `timeout` seconds; what did not arrive is logged once.

    A run that was `interrupted` waits for INTERRUPTED_S at most. May be called twice.
    """
    if context.tracing is None or context.pipelines is None:
        return
    deactivate(context.tracing)
    for line in context.pipelines.close(min(timeout, INTERRUPTED_S) if interrupted else timeout):
        logger.warning("%s", line)
