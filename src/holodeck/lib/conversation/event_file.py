"""Events as lines of JSON, and the file that they are appended to."""

import json
import logging
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holodeck.errors import ConfigError
from holodeck.lib.conversation.listening import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)

logger = logging.getLogger(__name__)

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

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_broken = False
        try:
            path.open("ab").close()
        except OSError as error:
            raise ConfigError("events", f"cannot be written to {path}: {error.strerror}") from error

    def __call__(self, event: Event) -> None:
        line = line_of(event).encode(errors="backslashreplace")
        try:
            self._append(line)
        except OSError as error:
            if not self._is_broken:
                logger.error("events are missing from %s: %s", self._path, error)  # noqa: TRY400
            self._is_broken = True

    def _append(self, line: bytes) -> None:
        # One write of a file opened for appending, so that lines of several writers stay whole.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def line_of(event: Event) -> str:
    """An event as a line of JSON; a result stands in it without the messages, told before."""
    values = {one.name: _json(getattr(event, one.name)) for one in fields(event)}
    return json.dumps({"type": TYPES[type(event)], **values}, ensure_ascii=False) + "\n"


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude={"messages"})
    return value
