"""Starting and ending the traces of a run."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holodeck.lib.observability import names
from holodeck.lib.observability.content import Content
from holodeck.lib.observability.spans import Tracing, activate, deactivate

if TYPE_CHECKING:
    from holodeck.models.observability import ObservabilityConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObservabilityContext:
    """The traces of one run."""

    tracing: Tracing | None = None
    """None: the run is not traced."""
    flush: Callable[[], None] = lambda: None
    """Sends what was not sent yet, and ends; blocks."""
    give_up: Callable[[], None] = lambda: None
    """Makes a `flush` that is under way end soon."""


def initialize_observability(
    config: "ObservabilityConfig", agent_name: str, clean: Callable[[str], str] = str
) -> ObservabilityContext:
    """Send the spans from now on to the exporters of `config`, all their text through `clean`.

    Without `enabled` nothing happens. Raises ConfigError.
    """
    if not (config.enabled and config.traces.enabled):
        return ObservabilityContext()
    from holodeck.lib.observability.sdk import start_pipeline  # noqa: PLC0415 - few runs are traced

    content = Content(config.traces.redaction_patterns, clean)
    pipeline = start_pipeline(config, _resource(config, agent_name))
    tracing = Tracing(pipeline.tracer, content if config.traces.capture_content else None, clean)
    activate(tracing)
    return ObservabilityContext(tracing, pipeline.shut_down, pipeline.give_up)


def shutdown_observability(context: ObservabilityContext, timeout: float = 5.0) -> None:
    """Send what was not sent yet, within `timeout` seconds; may be called twice."""
    if context.tracing is None:
        return
    deactivate(context.tracing)
    flushing = threading.Thread(target=context.flush, name="holodeck-traces", daemon=True)
    flushing.start()
    flushing.join(timeout)
    if flushing.is_alive():
        logger.warning("traces could not be delivered within %g s; the rest is dropped", timeout)
        context.give_up()


def _resource(config: "ObservabilityConfig", agent_name: str) -> dict[str, str]:
    """What every span says about where it comes from."""
    described = {names.SERVICE_NAME: f"holodeck-{agent_name}"} | config.resource_attributes
    return described | ({names.SERVICE_NAME: config.service_name} if config.service_name else {})
