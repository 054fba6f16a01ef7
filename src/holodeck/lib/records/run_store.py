"""The runs recorded beside an agent.yaml: listed, found, removed."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ConfigError, ReportError
from holodeck.lib.file_lock import try_lock
from holodeck.lib.records.fingerprint import Fingerprint
from holodeck.lib.records.recorder import RECORD_FILE, RUNS_FOLDER
from holodeck.lib.suggestions import did_you_mean
from holodeck.models.record import (
    EVENTS,
    SCHEMA_VERSION,
    CaseFinished,
    CaseSkipped,
    Event,
    PlannedCase,
    RunFinished,
    RunStarted,
)
from holodeck.models.test_result import Outcome, TestResult

RunOutcome = Literal["running", "finished", "stopped", "interrupted", "killed"]
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
    def state(self) -> RunOutcome:
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
        found = parse_event(line)
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


def parse_event(line: bytes) -> Event | str | int:
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


LAST = "last"
_CASE_LINE = b'{"event":"case_finished",'


@dataclass(frozen=True)
class RunOverview:
    """A run in a line; read without its results."""

    id: str
    started: str
    agent_name: str
    state: str
    finished: int
    planned: int | None
    passed: int | None
    """None as long as the run has not ended."""
    size_bytes: int


class RunStore:
    """The runs of the agents in a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the agent.yaml."""
        self.folder = folder / RUNS_FOLDER

    def ids(self) -> list[str]:
        """The runs, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [one.parent.name for one in self.folder.glob(f"*/{RECORD_FILE}")]
        return sorted(found, reverse=True)

    def path(self, run: str | None) -> Path:
        """The record that `run` means: an id, the beginning of one, `last`, or a path.

        Raises FileNotFoundError if there is none, ConfigError if several begin like that.
        """
        ids = self.ids()
        if run in {None, LAST}:
            if not ids:
                raise errors.FileNotFoundError(
                    str(self.folder), "no run is recorded there; `holodeck test` records one"
                )
            return self.folder / ids[0] / RECORD_FILE
        wanted = str(run)
        fitting = [wanted] if wanted in ids else [one for one in ids if one.startswith(wanted)]
        if len(fitting) == 1:
            return self.folder / fitting[0] / RECORD_FILE
        if fitting:
            shown = ", ".join(fitting[:5])
            raise ConfigError("RUN", f"{wanted!r} may mean {shown}; write more of it")
        return self._by_path(wanted, ids)

    def read(self, run: str | None) -> Run:
        """The run that `run` means; see `path`."""
        return read_run(self.path(run))

    def overviews(self) -> list[RunOverview]:
        """Every run in short, the newest first."""
        return [_overview(self.folder / one / RECORD_FILE) for one in self.ids()]

    def remove(self, ids: Sequence[str]) -> None:
        """Delete these runs for good. Raises ReportError if one cannot be deleted."""
        for one in ids:
            try:
                shutil.rmtree(self.folder / one)
            except OSError as error:
                raise ReportError(f"run {one} cannot be removed: {error.strerror}") from error

    def _by_path(self, wanted: str, ids: Sequence[str]) -> Path:
        path = Path(wanted)
        with suppress(OSError):  # so long a name is none of a file, or its folder is locked
            path = path / RECORD_FILE if path.is_dir() else path
            if path.is_file() and path.suffix not in {".yaml", ".yml"}:
                return path
        hint = did_you_mean(wanted, ids, "; see `holodeck runs list`")
        if wanted.endswith((".yaml", ".yml")):
            hint = f"; write 'last {wanted}' to mean the last run of that file"
        raise errors.FileNotFoundError(wanted, f"is no run recorded in {self.folder}{hint}")


def _overview(path: Path) -> RunOverview:
    first = last = b""
    finished = 0
    with path.open("rb") as file:
        is_running = not try_lock(file.fileno())
        for line in file:
            first = first or line
            last = line
            finished += line.startswith(_CASE_LINE) and line.endswith(b"\n")
    head, end = parse_event(first), parse_event(last)
    started = head if isinstance(head, RunStarted) else None
    ended = end if isinstance(end, RunFinished) else None
    state = Run(path, started, {}, ended, is_running).state
    return RunOverview(
        id=path.parent.name,
        started=started.started if started else "",
        agent_name=started.agent_name if started else "",
        state=state,
        finished=finished,
        planned=len(started.cases) if started else None,
        passed=ended.summary.passed if ended else None,
        size_bytes=path.stat().st_size,
    )


_UNDECIDED = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}
_MOST_NAMES = 10


def reusable_results(
    run: Run, present: Fingerprint, *, retry_errors: bool = False
) -> dict[int, TestResult]:
    """The recorded results that hold for the present cases, by place in the present file.

    A result holds for a case if everything it depends on is the same, wherever the case stands now.
    With `retry_errors` those do not that decided nothing.
    """
    left: dict[str, list[CaseFinished]] = {}
    for one in run.finished.values():
        if not (retry_errors and one.result.outcome in _UNDECIDED):
            left.setdefault(one.hash, []).append(one)
    kept: dict[int, TestResult] = {}
    for index, wanted in enumerate(present.hashes):
        if left.get(wanted):
            kept[index] = left[wanted].pop(0).result
    return kept


def find_cases(planned: Sequence[PlannedCase], present: Sequence[PlannedCase]) -> list[int]:
    """Where the planned cases stand now, in the order of the plan; without those that are gone."""
    exact: dict[str, list[int]] = {}
    by_key: dict[tuple[str, ...], int] = {}
    for place, one in enumerate(present):
        exact.setdefault(one.hash, []).append(place)
        by_key.setdefault(one.key, place)
    places = [
        exact[one.hash].pop(0) if exact.get(one.hash) else by_key.get(one.key) for one in planned
    ]
    return list(dict.fromkeys(place for place in places if place is not None))


def describe_changes(run: Run, present: Fingerprint) -> list[str]:
    """What is not as it was in the run, a line each; empty if all is."""
    if run.started is None:
        return ["what was run cannot be read: the record's first line is damaged"]
    before = run.started.hashes
    parts = [name for name in {**before, **present.parts} if _differs(name, before, present.parts)]
    lines = [f"{name}: changed" for name in parts]
    return lines + _case_changes(run.started.cases, present.cases)


def _differs(name: str, before: dict[str, str], now: dict[str, str]) -> bool:
    return before.get(name) != now.get(name)


def _case_changes(before: Sequence[PlannedCase], now: Sequence[PlannedCase]) -> list[str]:
    old, new = Counter(map(_name_and_hash, before)), Counter(map(_name_and_hash, now))
    gone = [
        _named(one, index) for index, one in enumerate(before) if _name_and_hash(one) in old - new
    ]
    come = [_named(one, index) for index, one in enumerate(now) if _name_and_hash(one) in new - old]
    changed = [name for name in come if name in gone]
    groups = (
        ("changed", changed),
        ("added", [name for name in come if name not in changed]),
        ("removed", [name for name in gone if name not in changed]),
    )
    return [f"test cases {what}: {_listed(names)}" for what, names in groups if names]


def _name_and_hash(case: PlannedCase) -> tuple[str | None, str]:
    return case.name, case.hash


def _named(case: PlannedCase, index: int) -> str:
    return f"#{index + 1}" if case.name is None else case.name


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
