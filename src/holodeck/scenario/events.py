"""Events of scenarios, and the listeners given as `events=`.

`events=`, of a run or of `configure`, is a function, the path of a file, or a list of both. Every
run also writes to the file named by HOLODECK_EVENTS.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import events_file

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
    """Return the listeners of a run. Raises ConfigError for anything else."""
    given = events if isinstance(events, Sequence) and not isinstance(events, str) else [events]
    return [_to_listener(one) for one in [*given, events_file()] if one is not None]


def _to_listener(one: Any) -> Listener:
    if isinstance(one, str | Path):
        return EventFile(Path(one).expanduser().absolute(), Redactor(collect()).redact_report)
    if not callable(one):
        raise ConfigError(
            "events", f"{one!r} is not a listener; write a function or the path of a file"
        )
    listener: Listener = one
    return listener
