"""Errors and logs on stderr: secrets masked, a record per line, never inside the live line."""

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial

from holodeck.cli.context import MAX_MESSAGE, CliContext
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.support.text import describe, shorten_middle
from holodeck.lib.ui.live import echo, live_line_hidden

VARIABLE = "HOLODECK_LOG_LEVEL"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def print_error(error: Exception, context: CliContext) -> None:
    """Print a line about the error; with -vv, print its traceback first."""
    line = describe(error)
    if isinstance(error, HoloDeckError):
        line = f"{error.label}: {error}"
    elif context.verbosity < 2:
        line = f"Internal Error: {line} (run again with -vv for the traceback)"
    if context.verbosity >= 2:
        import traceback

        echo(context.clean("".join(traceback.format_exception(error)).rstrip()), err=True)
    echo(context.brief(line), err=True)


def start_logging(verbosity: int, env: Mapping[str, str], clean: Callable[[str], str]) -> None:
    """Log warnings; with -v also information, with -vv everything of holodeck.

    HOLODECK_LOG_LEVEL overrides the flags. Libraries log warnings only; with -vv they also log
    information and tracebacks. Raises ConfigError for an unknown level.
    """
    level = _level(env.get(VARIABLE, "")) or _LEVELS[min(verbosity, 2)]
    is_debug = level <= logging.DEBUG
    handler = _Handler(sys.stderr)
    handler.setFormatter(_Formatter(clean, with_source=is_debug))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO if is_debug else logging.WARNING)
    logging.getLogger("holodeck").setLevel(level)
    # Semantic Kernel logs failed tool calls, which the test result already contains.
    logging.getLogger("semantic_kernel").setLevel(
        logging.CRITICAL if level > logging.INFO else logging.NOTSET
    )
    # Python warnings of libraries are meant for their developers.
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").setLevel(logging.WARNING if is_debug else logging.ERROR)
    threading.excepthook = partial(_print_thread_error, clean)


def _print_thread_error(clean: Callable[[str], str], error: threading.ExceptHookArgs) -> None:
    """Print what ended a thread of the code under test as Python does, without secrets."""
    if error.exc_type is SystemExit:
        return
    import traceback

    name = "of unknown name" if error.thread is None else error.thread.name
    trace = traceback.format_exception(error.exc_type, error.exc_value, error.exc_traceback)
    with live_line_hidden():
        echo(clean(f"Exception in thread {name}:\n{''.join(trace)}".rstrip()), err=True)


def _level(name: str) -> int | None:
    if not name.strip():
        return None
    known = logging.getLevelNamesMapping()
    if name.strip().upper() not in known:
        names = ", ".join(level for level in known if level != "NOTSET")
        raise ConfigError(VARIABLE, f"unknown log level {name!r}; use one of {names}")
    return known[name.strip().upper()]


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Hides the live line while it writes."""

    def emit(self, record: logging.LogRecord) -> None:
        with live_line_hidden():
            super().emit(record)


class _Formatter(logging.Formatter):
    """Masks secrets in the whole record, traceback included, and indents its further lines."""

    def __init__(self, clean: Callable[[str], str], *, with_source: bool) -> None:
        source = "%(asctime)s %(name)s: " if with_source else ""
        super().__init__(f"%(levelname)s: {source}%(message)s")
        self._clean = clean
        self._shows_tracebacks = with_source

    def format(self, record: logging.LogRecord) -> str:
        if self._shows_tracebacks:
            text = self._clean(super().format(record))
        else:
            plain = copy(record)  # other handlers get the record, too
            plain.exc_info = plain.exc_text = plain.stack_info = None
            text = shorten_middle(self._clean(super().format(plain)), MAX_MESSAGE)
        return text.replace("\n", "\n    ")
