"""A recorded run, read from its file however that file ended."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ConfigError
from holodeck.lib.file_lock import try_lock
from holodeck.models.record import (
    EVENTS,
    SCHEMA_VERSION,
    CaseFinished,
    CaseSkipped,
    Event,
    RunFinished,
    RunStarted,
)

State = Literal["running", "finished", "stopped", "interrupted", "killed"]
_TOO_DEEP = (ValueError, RecursionError)
E = TypeVar("E", RunStarted, CaseFinished, RunFinished)


@dataclass(frozen=True)
class Run:
    """What a record says."""

    path: Path
    started: RunStarted | None
    """None if the first line cannot be read."""
    finished: Mapping[int, CaseFinished]
    """The finished cases by their place in the file, in that order."""
    ended: RunFinished | None
    """None if the run was killed or still goes on."""
    is_running: bool = False
    warnings: tuple[str, ...] = ()
    """Lines that were left out, and why."""
    skipped: Mapping[int, CaseSkipped] = field(default_factory=dict)
    """The cases that were not run by their place in the file."""

    @property
    def id(self) -> str:
        """The name of the run's folder."""
        return self.path.parent.name

    @property
    def planned(self) -> int | None:
        """How many cases the run set out to run; None if that cannot be read any more."""
        if self.started is not None:
            return len(self.started.cases)
        return None if self.ended is None else self.ended.planned_tests

    @property
    def state(self) -> State:
        """How the run ended, if it did."""
        if self.ended is None:
            return "running" if self.is_running else "killed"
        if self.ended.interrupted:
            return "interrupted"
        return "stopped" if self.ended.stopped is not None else "finished"


def read_run(path: Path) -> Run:
    """The run in a file; lines that cannot be read are left out and named in `warnings`.

    Raises FileNotFoundError, and ConfigError if the file cannot be opened, is none of ours, or was
    written by a later version.
    """
    try:
        with path.open("rb") as file:
            is_running = not try_lock(file.fileno())
            warnings: list[str] = []
            events = list(_events(file, path, warnings))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        if path.exists():
            raise ConfigError(str(path), f"cannot be read: {reason}") from error
        raise errors.FileNotFoundError(str(path), "there is no such record") from error
    if not events and warnings:
        raise ConfigError(str(path), f"is not the record of a run: {warnings[0]}")
    finished = {one.index: one for one in events if isinstance(one, CaseFinished)}
    return Run(
        path=path,
        started=_last(events, RunStarted),
        finished=dict(sorted(finished.items())),
        ended=_last(events, RunFinished),
        is_running=is_running,
        warnings=tuple(warnings),
        skipped={one.index: one for one in events if isinstance(one, CaseSkipped)},
    )


def _last(events: list[Event], kind: type[E]) -> E | None:
    return next((one for one in reversed(events) if isinstance(one, kind)), None)


def _events(lines: Iterator[bytes] | Any, path: Path, warnings: list[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        found = event_of(line)
        if isinstance(found, str):
            cut = "" if line.endswith(b"\n") else "is cut off: "
            warnings.append(f"{path}:{number}: {cut}{found}; the line is left out")
        elif isinstance(found, int):
            raise ConfigError(
                f"{path}:{number}",
                f"schema version {found} is unknown; this holodeck reads up to {SCHEMA_VERSION}, "
                "use the version that wrote the record, or a later one",
            )
        else:
            yield found


def event_of(line: bytes) -> Event | str | int:
    """The event of a line; else why it cannot be read, or the later schema version it needs."""
    for kind in EVENTS.values():
        if line.startswith(_beginning(kind)):
            try:
                return kind.model_validate_json(line)
            except ValidationError:
                break
    try:
        data = json.loads(line)
    except _TOO_DEEP:
        return "not JSON"
    return _event_in(data)


def _beginning(kind: type[Event]) -> bytes:
    """How every line of the kind that we wrote begins."""
    return b'{"event":"%s","schema_version":%d,' % (
        kind.model_fields["event"].default.encode(),
        SCHEMA_VERSION,
    )


def _event_in(data: Any) -> Event | str | int:
    """Also reads what the quick way does not: deep nesting, and halves of a surrogate pair."""
    if not isinstance(data, dict):
        return "not an event"
    version = data.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        return version
    name = data.get("event")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        return "not an event that is known"
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"not a {name} event: {where}: {first['msg']}"
