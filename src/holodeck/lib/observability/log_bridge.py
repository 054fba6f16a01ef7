"""Log records of a run for OpenTelemetry, beside the lines on stderr."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, set_span_in_context

from holodeck.lib.observability import names
from holodeck.lib.observability.delivery import is_exporting
from holodeck.lib.support.text import message_of
from holodeck.models.observability import LogsConfig

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider

OWN = "holodeck"
QUOTES_BELOW = {
    OWN: logging.INFO,
    "semantic_kernel": logging.WARNING,
    "openai": logging.INFO,
    "anthropic": logging.INFO,
    "ollama": logging.INFO,
    "httpcore": logging.INFO,
}
"""Loggers whose records below a level quote messages, arguments of tools, or errors about them."""
_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.NOTSET, SeverityNumber.DEBUG),
)


class LogBridge(logging.Handler):
    """Sends log records to OpenTelemetry while it is attached.

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
        super().__init__(logging.getLevelNamesMapping()[config.level])
        self._provider = provider
        self._mask = mask
        self._has_content = has_content
        # A context that is empty would stand for the current one.
        outside = set_span_in_context(INVALID_SPAN, Context())
        self._context = None if config.include_trace_context else outside
        self._loggers = [logging.getLogger(name) for name in _outermost(config.filter_namespaces)]
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Begin to send records."""
        for log in self._loggers:
            usual = log.getEffectiveLevel()
            if usual > self.level:
                self._hide_below(log, usual)
                self._undo.append(_setter(log, log.level))
                log.setLevel(self.level)
            log.addHandler(self)

    def detach(self) -> None:
        """Send no more records, and leave the loggers as they were; may be called twice."""
        for log in self._loggers:
            log.removeHandler(self)
        while self._undo:
            self._undo.pop()()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_sent(record):
                self._send(record)
        except Exception:  # noqa: BLE001 - as handlers do: a log record must not break the program
            self.handleError(record)
        usual = logging.lastResort
        if usual is None or record.levelno < usual.level or any(_others(record.name, self)):
            return
        usual.handle(record)  # without this handler, Python would have written it to stderr

    def _is_sent(self, record: logging.LogRecord) -> bool:
        if getattr(record, names.ELSEWHERE, False):
            return False  # by the worker, with its trace
        if is_exporting() or record.name.startswith("opentelemetry"):
            return False  # it would be about its own export
        return self._has_content or not any(
            record.levelno < level and is_in(record.name, name)
            for name, level in QUOTES_BELOW.items()
        )

    def _send(self, record: logging.LogRecord) -> None:
        self._provider.get_logger(record.name).emit(
            timestamp=int(record.created * 1e9),
            context=self._context,
            severity_number=next(
                number for least, number in _SEVERITIES if record.levelno >= least
            ),
            severity_text=record.levelname,
            body=self._mask(record.getMessage()),
            attributes=self._attributes(record),
        )

    def emit_event(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Send an event, which is a record with a name."""
        self._provider.get_logger(names.TRACER).emit(
            context=self._context,
            severity_number=SeverityNumber.INFO,
            event_name=name,
            attributes=dict(attributes),
        )

    def _attributes(self, record: logging.LogRecord) -> dict[str, Any]:
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
        return attributes

    def _hide_below(self, log: logging.Logger, level: int) -> None:
        """Hide from the other handlers what the logger would not have passed on to them."""

        def is_shown(record: logging.LogRecord) -> bool:
            if record.levelno >= level or not is_in(record.name, log.name):
                return True
            return _own_level(record.name, log) is not None

        for handler in {*_others(log.name, self), *log.handlers} - {self}:
            handler.addFilter(is_shown)
            self._undo.append(_remover(handler, is_shown))


def is_in(name: str, namespace: str) -> bool:
    """Whether a logger is the one of the namespace, or below it."""
    return namespace in {"", "root", name} or name.startswith(f"{namespace}.")


def _outermost(namespaces: list[str]) -> list[str]:
    """Return the loggers to attach to; none is below another, or records would be sent twice."""
    if not namespaces:
        return [""]
    wanted = dict.fromkeys([OWN, *namespaces])
    return [
        name for name in wanted if not any(other != name and is_in(name, other) for other in wanted)
    ]


def _others(name: str, ours: logging.Handler) -> Iterator[logging.Handler]:
    """Yield the other handlers that get the records of a logger."""
    log: logging.Logger | None = logging.getLogger(name)
    while log is not None:
        yield from (handler for handler in log.handlers if handler is not ours)
        log = log.parent if log.propagate else None


def _own_level(name: str, namespace: logging.Logger) -> int | None:
    """Return the level of a logger that is set below the namespace; None without one."""
    log: logging.Logger | None = logging.getLogger(name)
    while log is not None and log is not namespace:
        if log.level:
            return log.level
        log = log.parent
    return None


def _setter(log: logging.Logger, level: int) -> Callable[[], None]:
    return lambda: log.setLevel(level)


def _remover(
    handler: logging.Handler, condition: Callable[[logging.LogRecord], bool]
) -> Callable[[], None]:
    return lambda: handler.removeFilter(condition)
