"""Whether telemetry arrives; what does not is logged once, when the run ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from holodeck.lib.support.text import describe, one_line

logger = logging.getLogger(__name__)

MAX_REASON = 300
_current = threading.local()


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


def describe_failures(exporters: Sequence[Exporter], clean: Callable[[str], str]) -> list[str]:
    """Return a line for each destination at which something did not arrive."""
    lines = []
    for destination in dict.fromkeys(
        exporter.destination for exporter in exporters if exporter.failed
    ):
        failed = [
            exporter
            for exporter in exporters
            if exporter.failed and exporter.destination == destination
        ]
        signals = [exporter.signal for exporter in failed]
        reason = next(
            (exporter.reason for exporter in failed if exporter.reason), "no reason given"
        )
        lines.append(
            f"{listed(signals)} could not be delivered to {destination}:"
            f" {one_line(clean(reason), MAX_REASON)}{_hint(signals)}"
        )
    return lines


def describe_late(
    exporters: Sequence[Exporter], late: Sequence[str], limit_s: float, clean: Callable[[str], str]
) -> str:
    """Return a line about the signals whose exporters take too long, with what they logged."""
    known = {
        f"{exporter.destination}: {one_line(clean(exporter.reason), MAX_REASON)}"
        for exporter in exporters
        if exporter.signal in late and exporter.reason
    }
    reason = f" ({min(known)})" if known else ""
    return (
        f"{listed(late)} could not be delivered within {limit_s:g} s; the rest is dropped{reason}"
    )


def _hint(signals: Sequence[str]) -> str:
    """Return how to leave signals out that a collector does not take, other than traces."""
    if "traces" in signals:
        return ""
    keys = listed([f"'observability.{signal}.enabled: false'" for signal in signals])
    return f"; if it takes no {listed(signals)}, write {keys}"


def listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
