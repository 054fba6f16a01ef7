"""What spans, metrics and log records of a run go through: the adapter for OpenTelemetry's SDK.

The providers are not those of the process.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NoOpTracer, set_span_in_context

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.observability import names
from holodeck.lib.observability.exporters import (
    Exporter,
    azure_exporter,
    console_exporter,
    is_exporting,
    otlp_exporter,
    otlp_target,
)
from holodeck.lib.observability.meters import Meters
from holodeck.lib.support.text import describe, message_of, one_line
from holodeck.models.observability import (
    ConsoleExporterConfig,
    ExportersConfig,
    LogsConfig,
    ObservabilityConfig,
    TracingConfig,
)

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

FAILING_S = 1.0
"""How long the end of a run waits for exporters that fail; they would try again for a minute."""
_POLL_S = 0.05
_MAX_REASON = 300
_OWN = "holodeck"
QUOTES_BELOW = {
    _OWN: logging.INFO,
    "semantic_kernel": logging.WARNING,
    "openai": logging.INFO,
    "anthropic": logging.INFO,
    "ollama": logging.INFO,
    "httpcore": logging.INFO,
}
"""Loggers whose records below a level quote messages, arguments of tools, or errors about them."""


@dataclass
class Pipelines:
    """What spans, metrics and log records of a run go through.

    Args:
        config: What is sent, and where.
        attributes: Those of everything that is sent.
        base_dir: Where relative paths start.
        clean: Removes secrets from text.
        mask: Does so, and masks what redaction patterns match.
    """

    config: ObservabilityConfig
    attributes: dict[str, str]
    base_dir: Path
    clean: Callable[[str], str]
    mask: Callable[[str], str]
    tracer: Tracer = field(default_factory=NoOpTracer)
    meters: Meters | None = None
    """None: no metrics are recorded."""
    log_sender: LogSender | None = None
    """None: log records are not sent."""
    _exporters: list[Exporter] = field(default_factory=list)
    _flushes: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By signal: sends the rest and shuts down; blocks."""

    def start(self) -> None:
        """Begin to send. Raises ConfigError."""
        from opentelemetry.sdk.resources import Resource

        config, exporters = self.config, _with_default(self.config.exporters)
        resource = Resource.create(self.attributes)
        if config.traces.enabled:
            self._start_traces(config.traces, exporters, resource)
        if config.metrics.enabled:
            self._start_metrics(exporters, resource)
        if config.logs.enabled:
            self._start_logs(exporters, resource)

    def _open(self, config: ExportersConfig, signal: str) -> list[Any]:
        """Return the exporters of a signal that send it somewhere. Raises ConfigError."""
        sending = []
        for make, location in _makers(config, self.base_dir):
            try:
                exporter = make(signal)
            except MissingExtra as error:
                logger.info("%s", error)  # a finding of the checks before the run says so
                continue
            if exporter is not None:
                sending.append(Exporter(exporter, signal, location))
        self._exporters += sending
        return sending

    def _start_traces(
        self, config: TracingConfig, exporters: ExportersConfig, resource: Resource
    ) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        opened = self._open(exporters, "traces")
        if not opened:
            return
        sampled = TraceIdRatioBased(config.sample_rate)
        # A trace that comes from elsewhere was begun by a trace check.
        sampler = ParentBased(sampled, remote_parent_sampled=sampled)
        provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        for exporter in opened:
            provider.add_span_processor(
                BatchSpanProcessor(
                    exporter,
                    max_queue_size=config.max_queue_size,
                    max_export_batch_size=config.max_export_batch_size,
                    schedule_delay_millis=config.schedule_delay_millis,
                )
            )
        self.tracer = provider.get_tracer(names.TRACER, schema_url=names.SCHEMA_URL)
        self._flushes["traces"] = provider.shutdown

    def _start_metrics(self, exporters: ExportersConfig, resource: Resource) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        config = self.config.metrics
        readers = [
            PeriodicExportingMetricReader(
                exporter, export_interval_millis=config.export_interval_ms
            )
            for exporter in self._open(exporters, "metrics")
        ]
        if not readers:
            return
        provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        includes_kernel = config.include_semantic_kernel_metrics
        self.meters = Meters(provider, self.clean, includes_kernel=includes_kernel)
        self._flushes["metrics"] = provider.shutdown

    def _start_logs(self, exporters: ExportersConfig, resource: Resource) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        opened = self._open(exporters, "logs")
        if not opened:
            return
        provider = LoggerProvider(resource, shutdown_on_exit=False)
        for exporter in opened:
            provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._flushes["logs"] = provider.shutdown
        self.log_sender = LogSender(
            provider,
            self.config.logs,
            self.mask,
            has_content=self.config.traces.capture_content,
        )

    def close(self, timeout: float) -> Iterator[str]:
        """Send the rest within `timeout` seconds; yield a line about what did not arrive."""
        if self.log_sender is not None:
            self.log_sender.close()
        late, waited = self._flush(timeout)
        if late:
            known = {
                f" ({exporter.destination}: {self._shown(exporter.reason)})"
                for exporter in self._exporters
                if exporter.signal in late and exporter.reason
            }
            yield (
                f"{_listed(late)} could not be delivered within {waited:g} s; the rest is dropped"
                f"{min(known, default='')}"
            )
            for exporter in self._exporters:
                exporter.shutdown()
        failed: dict[str, list[Exporter]] = {}
        for exporter in self._exporters:
            if exporter.failed and exporter.signal not in late:
                failed.setdefault(exporter.destination, []).append(exporter)
        for destination, exporters in failed.items():
            signals = [exporter.signal for exporter in exporters]
            reasons = [exporter.reason for exporter in exporters if exporter.reason]
            reason = self._shown(reasons[0] if reasons else "no reason given")
            keys = _listed([f"'observability.{signal}.enabled: false'" for signal in signals])
            # A collector may take traces alone.
            hint = f"; if it takes no {_listed(signals)}, write {keys}"
            yield (
                f"{_listed(signals)} could not be delivered to {destination}: {reason}"
                f"{'' if 'traces' in signals else hint}"
            )

    def _flush(self, timeout: float) -> tuple[list[str], float]:
        """Send the rest of all signals at the same time.

        Return those that take too long, and which time that is in seconds.
        """
        threads = {
            signal: threading.Thread(
                target=_flush_signal, args=(signal, send), name=f"holodeck-{signal}", daemon=True
            )
            for signal, send in self._flushes.items()
        }
        self._flushes.clear()
        for thread in threads.values():
            thread.start()
        started, limit = time.monotonic(), timeout
        while late := [signal for signal, thread in threads.items() if thread.is_alive()]:
            if all(exporter.is_failing for exporter in self._exporters if exporter.signal in late):
                limit = min(timeout, FAILING_S)
            left = started + limit - time.monotonic()
            if left <= 0:
                break
            threads[late[0]].join(min(left, _POLL_S))
        return late, limit

    def _shown(self, reason: str) -> str:
        return one_line(self.clean(reason), _MAX_REASON)


def _flush_signal(signal: str, send: Callable[[], None]) -> None:
    try:
        send()
    except Exception as error:  # noqa: BLE001 - telemetry must not change what is measured
        logger.warning("%s could not be delivered: %s", signal, describe(error))


def _listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _with_default(config: ExportersConfig) -> ExportersConfig:
    """Return the exporters, any of which is enabled. Raises ConfigError."""
    named = [config.console, config.otlp, config.azure_monitor]
    chosen = [exporter for exporter in named if exporter is not None]
    if not chosen:
        return ExportersConfig(console=ConsoleExporterConfig())
    if not any(exporter.enabled for exporter in chosen):
        raise ConfigError(
            "observability.exporters",
            "every exporter is disabled; enable one or write 'observability: {enabled: false}'",
        )
    return config


def _makers(config: ExportersConfig, base_dir: Path) -> Iterator[tuple[Callable[[str], Any], str]]:
    """Yield what makes the exporter of a signal, and where it sends. Raises ConfigError."""
    console, otlp, azure = config.console, config.otlp, config.azure_monitor
    if console is not None and console.enabled:
        yield partial(console_exporter, console), "the console"
    if otlp is not None and otlp.enabled:
        yield partial(otlp_exporter, otlp), f"the OTLP endpoint {otlp_target(otlp).endpoint}"
    if azure is not None and azure.enabled:
        yield partial(azure_exporter, azure, base_dir), "Azure Monitor"


class LogSender(logging.Handler):
    """Sends log records to OpenTelemetry until it is closed, beside the lines on stderr.

    Loggers that are less talkative than `logs.level` get that level for the time. The handlers that
    there are already see no more than they would otherwise.

    Args:
        provider: Where records are sent.
        config: Which records are sent.
        mask: Masks secrets and what redaction patterns match.
        has_content: Whether records may quote messages and tool calls.
    """

    def __init__(
        self,
        provider: LoggerProvider,
        config: LogsConfig,
        mask: Callable[[str], str],
        *,
        has_content: bool,
    ) -> None:
        super().__init__(config.level)
        self._provider = provider
        self._mask = mask
        self._has_content = has_content
        # A context that is empty would stand for the current one.
        outside = set_span_in_context(INVALID_SPAN, Context())
        self._context = None if config.include_trace_context else outside
        self._undo = ExitStack()
        for name in _outermost(config.filter_namespaces):
            self._attach(logging.getLogger(name))

    def _attach(self, log: logging.Logger) -> None:
        usual = log.getEffectiveLevel()

        def is_shown(record: logging.LogRecord) -> bool:
            """Whether the other handlers would see it without this handler."""
            is_usual = record.levelno >= usual or not _is_in(record.name, log.name)
            return is_usual or _has_own_level(record.name, log)

        if usual > self.level:
            for handler in _handlers_of(log):
                handler.addFilter(is_shown)
                self._undo.callback(handler.removeFilter, is_shown)
            self._undo.callback(log.setLevel, log.level)
            log.setLevel(self.level)
        log.addHandler(self)
        self._undo.callback(log.removeHandler, self)

    def close(self) -> None:
        """Send no more records, and leave the loggers as they were; may be called twice."""
        self._undo.close()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_sent(record):
                self._send(record)
        except Exception:  # noqa: BLE001 - as handlers do: a log record must not break the program
            self.handleError(record)
        usual = logging.lastResort
        others = set(_handlers_of(logging.getLogger(record.name))) - {self}
        if usual is not None and record.levelno >= usual.level and not others:
            usual.handle(record)  # without this handler, Python would have written it to stderr

    def _is_sent(self, record: logging.LogRecord) -> bool:
        if getattr(record, names.ELSEWHERE, False):
            return False  # by the worker, with its trace
        if is_exporting() or record.name.startswith("opentelemetry"):
            return False  # it would be about its own export
        return self._has_content or not any(
            record.levelno < level and _is_in(record.name, name)
            for name, level in QUOTES_BELOW.items()
        )

    def _send(self, record: logging.LogRecord) -> None:
        attributes: dict[str, Any] = {
            "code.file.path": record.pathname,
            "code.function.name": record.funcName,
            "code.line.number": record.lineno,
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            attributes |= {
                "exception.type": type(error).__name__,
                "exception.message": self._mask(message_of(error)),
                "exception.stacktrace": self._mask("".join(traceback.format_exception(error))),
            }
        self._provider.get_logger(record.name).emit(
            timestamp=int(record.created * 1e9),
            context=self._context,
            # Both count in steps: 10 is DEBUG in logging, which is 5 in OpenTelemetry.
            severity_number=SeverityNumber(min(max(record.levelno // 10, 1), 5) * 4 + 1),
            severity_text=record.levelname,
            body=self._mask(record.getMessage()),
            attributes=attributes,
        )

    def emit_event(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Send an event, which is a record with a name."""
        self._provider.get_logger(names.TRACER).emit(
            context=self._context,
            severity_number=SeverityNumber.INFO,
            event_name=name,
            attributes=dict(attributes),
        )


def _is_in(name: str, namespace: str) -> bool:
    """Whether a logger is that of the namespace, or below it."""
    return namespace in {"", "root", name} or name.startswith(f"{namespace}.")


def _outermost(namespaces: list[str]) -> list[str]:
    """Return the loggers to attach to; none is below another, or records would be sent twice."""
    if not namespaces:
        return [""]
    wanted = dict.fromkeys([_OWN, *namespaces])
    return [
        name
        for name in wanted
        if not any(other != name and _is_in(name, other) for other in wanted)
    ]


def _handlers_of(log: logging.Logger | None) -> Iterator[logging.Handler]:
    """Yield the handlers that get the records of a logger."""
    while log is not None:
        yield from log.handlers
        log = log.parent if log.propagate else None


def _has_own_level(name: str, namespace: logging.Logger) -> bool:
    """Whether a level is set for a logger below the namespace."""
    log: logging.Logger | None = logging.getLogger(name)
    while log not in {None, namespace} and not log.level:
        log = log.parent
    return log not in {None, namespace}
