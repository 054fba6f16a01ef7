"""Logs on stderr: without secrets, a record a line, never into the middle of the live line."""

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy

from holodeck.cli.cli_context import MAX_MESSAGE
from holodeck.errors import ConfigError
from holodeck.lib.text import abridged
from holodeck.lib.ui.live import showing

VARIABLE = "HOLODECK_LOG_LEVEL"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def start_logging(verbosity: int, env: Mapping[str, str], clean: Callable[[str], str]) -> None:
    """Log what matters: warnings; with -v decisions too, with -vv everything of holodeck's own.

    HOLODECK_LOG_LEVEL says it instead. Libraries are held to warnings, with -vv to information and
    with the tracebacks of what they log. Raises ConfigError for a level that does not exist.
    """
    level = _level(env.get(VARIABLE, "")) or _LEVELS[min(verbosity, 2)]
    handler = _Handler(sys.stderr)
    handler.setFormatter(_Formatter(clean, with_source=level <= logging.DEBUG))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO if level <= logging.DEBUG else logging.WARNING)
    logging.getLogger("holodeck").setLevel(level)
    # What a tool call came to stands in its test's result.
    logging.getLogger("semantic_kernel").setLevel(
        logging.CRITICAL if level > logging.INFO else logging.NOTSET
    )
    # Warnings of libraries are for their developers.
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").setLevel(
        logging.WARNING if level <= logging.DEBUG else logging.ERROR
    )


def _level(name: str) -> int | None:
    """The level of that name; None where none is given."""
    if not name.strip():
        return None
    known = logging.getLevelNamesMapping()
    if name.strip().upper() not in known:
        names = ", ".join(level for level in known if level != "NOTSET")
        raise ConfigError(VARIABLE, f"{name!r} is not a level; write one of {names}")
    return known[name.strip().upper()]


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Takes the live line away while it writes."""

    def emit(self, record: logging.LogRecord) -> None:
        line = showing()
        with nullcontext() if line is None else line.paused():
            super().emit(record)


class _Formatter(logging.Formatter):
    """Cleans the whole record, traceback included, and indents its further lines."""

    def __init__(self, clean: Callable[[str], str], *, with_source: bool) -> None:
        source = "%(asctime)s %(name)s: " if with_source else ""
        super().__init__(f"%(levelname)s: {source}%(message)s")
        self._clean = clean
        self._shows_tracebacks = with_source

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record) if self._shows_tracebacks else self._without_traceback(record)
        text = self._clean(text)
        if not self._shows_tracebacks:
            text = abridged(text, MAX_MESSAGE)
        return text.replace("\n", "\n    ")

    def _without_traceback(self, record: logging.LogRecord) -> str:
        # On a copy, because other handlers get the record, too.
        plain = copy(record)
        plain.exc_info = plain.exc_text = plain.stack_info = None
        return super().format(plain)
