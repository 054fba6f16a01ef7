"""Events as lines of JSON, and the file that they are appended to."""

import errno
import json
import logging
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holodeck.errors import ConfigError
from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)

logger = logging.getLogger(__name__)

Clean = Callable[[dict[str, Any]], dict[str, Any]]
_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody reads from is refused and not waited for."""

TYPES: dict[type[Event], str] = {
    RunStarted: "run_started",
    MessageAdded: "message",
    CriterionJudged: "criterion",
    RunFinished: "run_finished",
}
"""What each event is called in a line."""


class EventFile:
    """A listener that appends each event to a file, as one line that is written at once.

    Args:
        path: The file; it may be shared by runs and by processes.
        clean: What hides secrets in the values of an event; None hides none.
        where: What names the file, for the error.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path, clean: Clean | None = None, where: str = "events") -> None:
        self._path = path
        self._clean = clean
        self._is_broken = False
        try:
            os.close(self._opened(_AT_ONCE))
        except OSError as error:
            raise ConfigError(where, f"cannot be written to {path}: {error.strerror}") from error

    def __call__(self, event: Event) -> None:
        line = line_of(event, self._clean).encode(errors="backslashreplace")
        try:
            self._append(line)
        except OSError as error:
            if not self._is_broken:
                logger.error("events are missing from %s: %s", self._path, error)  # noqa: TRY400
            self._is_broken = True

    def _append(self, line: bytes) -> None:
        # One write of a file opened for appending, so that lines of several writers stay whole.
        file = self._opened()
        try:
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _opened(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags, 0o666)


def line_of(event: Event, clean: Clean | None = None) -> str:
    """An event as a line of JSON; a result stands in it without the messages, told before."""
    given = {one.name: getattr(event, one.name) for one in fields(event)}
    values = {name: _json(value) for name, value in given.items() if value is not None}
    if clean is not None:
        values = clean(values)
    return json.dumps({"type": TYPES[type(event)], **values}, ensure_ascii=False) + "\n"


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude={"messages"})
    return value
