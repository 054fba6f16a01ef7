"""What happens in scenarios, for those who listen: functions of an event, and files.

Who listens is given as `events=` to a run or to `configure`: a function, the path of a file, or a
list of both. Every run is also written to the file that HOLODECK_EVENTS names.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holodeck.config.environment import events_file
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    EventFile,
    Listener,
    MessageAdded,
    RunFinished,
    RunStarted,
)
from holodeck.lib.redact import Redactor

__all__ = [
    "CriterionJudged",
    "Event",
    "EventFile",
    "Listener",
    "MessageAdded",
    "RunFinished",
    "RunStarted",
    "listeners_of",
]


def listeners_of(events: Any) -> list[Listener]:
    """Those who listen to a run. Raises ConfigError for anything that cannot."""
    given = events if isinstance(events, Sequence) and not isinstance(events, str) else [events]
    file = events_file()
    return [_listener(one) for one in [*given, file] if one is not None]


def _listener(one: Any) -> Listener:
    if isinstance(one, str | Path):
        return EventFile(Path(one).expanduser().absolute(), Redactor(collect()).redact_report)
    if not callable(one):
        raise ConfigError(
            "events", f"{one!r} cannot listen; write a function or the path of a file"
        )
    listener: Listener = one
    return listener
