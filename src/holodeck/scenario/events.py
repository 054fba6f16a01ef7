"""Events of scenarios, and the listeners given as `events=`.

`events=`, of a run or of `configure`, is a function, the path of a file, or a list of both. Every
run also writes to the file named by HOLODECK_EVENTS.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

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
    listeners = events if isinstance(events, Sequence) and not isinstance(events, str) else [events]
    return [
        _to_listener(listener) for listener in [*listeners, events_file()] if listener is not None
    ]


def _to_listener(listener: Any) -> Listener:
    if isinstance(listener, str | Path):
        return EventFile(Path(listener).expanduser().absolute(), Redactor(collect()).redact_report)
    if not callable(listener):
        raise ConfigError(
            "events", f"{listener!r} is not a listener; write a function or the path of a file"
        )
    return cast("Listener", listener)
