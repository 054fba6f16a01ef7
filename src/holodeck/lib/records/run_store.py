"""Recorded runs: finds, reads and removes them."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ConfigError, ReportError
from holodeck.lib.records.recorder import RECORD_FILE, RUNS_FOLDER
from holodeck.lib.support.files import replace_file, try_lock
from holodeck.lib.support.safe_paths import note_input
from holodeck.lib.support.text import did_you_mean
from holodeck.models.records.record import (
    EVENTS,
    SCHEMA_VERSION,
    CaseFinished,
    CaseSkipped,
    Event,
    RunEnd,
    RunHead,
)
from holodeck.models.test_result import TestResult

RunOutcome = Literal["running", "finished", "stopped", "interrupted", "killed"]

LAST = "last"
PREVIOUS = "previous"
"""The run before the last."""
TAGS_FILE = "tags"
"""The names that a run was given, one a line, beside its record."""
_TAG = re.compile(r"[A-Za-z][\w.-]{0,79}")
_FILES = {".json", ".jsonl", ".yaml", ".yml"}
_RESERVED = {LAST, PREVIOUS, "baseline", "main"}
_CASE_FINISHED = b'{"event":"case_finished",'


@dataclass(frozen=True)
class Run:
    """A recorded run."""

    path: Path
    started: RunHead | None
    """None if the first line cannot be read."""
    finished: Mapping[int, CaseFinished]
    """The finished cases by their index in the file, in that order."""
    ended: RunEnd | None
    """None if the run was killed or is still running."""
    is_running: bool = False
    warnings: tuple[str, ...] = ()
    """A message for each line that was ignored."""
    skipped: Mapping[int, CaseSkipped] = field(default_factory=dict)
    """The cases that did not run by their index in the file."""

    @property
    def id(self) -> str:
        return self.path.parent.name

    @property
    def lines(self) -> dict[int, CaseFinished | CaseSkipped]:
        """The lines of all cases by their index in the file, in that order."""
        lines: dict[int, CaseFinished | CaseSkipped] = {**self.skipped, **self.finished}
        return {index: lines[index] for index in sorted(lines)}

    @property
    def results(self) -> list[TestResult]:
        """The results of all cases, in the order of the file."""
        return [line.result for line in self.lines.values()]

    @property
    def planned(self) -> int | None:
        """How many cases were to run; None if the record no longer says it."""
        if self.started is not None:
            return len(self.started.cases)
        return None if self.ended is None else self.ended.planned_tests

    @property
    def state(self) -> RunOutcome:
        if self.ended is None:
            return "running" if self.is_running else "killed"
        if self.ended.interrupted:
            return "interrupted"
        return "stopped" if self.ended.stopped is not None else "finished"


@dataclass(frozen=True)
class RunOverview:
    """A run in a line; reading it does not parse the results."""

    id: str
    started: str
    agent_name: str
    state: str
    finished: int
    planned: int | None
    passed: int | None
    """None until the run has ended."""
    size_bytes: int
    tags: list[str]


class RunStore:
    """The recorded runs of the agents in a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the agent.yaml."""
        self.folder = folder / RUNS_FOLDER

    def ids(self) -> list[str]:
        """Return the ids of the runs, newest first."""
        names = (path.parent.name for path in self.folder.glob(f"*/{RECORD_FILE}"))
        return sorted(names, reverse=True)

    def path(self, run: str | None) -> Path:
        """Return the record of a run: an id or its beginning, a tag, `last`, `previous` or a path.

        Raises FileNotFoundError if there is none, ConfigError if several match.
        """
        ids = self.ids()
        if run in {None, LAST, PREVIOUS}:
            at = 1 if run == PREVIOUS else 0
            if ids[at:]:
                return self.folder / ids[at] / RECORD_FILE
            none = "no run is recorded there; `holodeck test` records one"
            missing = "no run before the last one is recorded there" if at else none
            raise errors.FileNotFoundError(str(self.folder), missing)
        wanted = str(run)
        named = {wanted, self._tagged(wanted)}
        matches = [run_id for run_id in ids if run_id in named]
        matches = matches or [run_id for run_id in ids if run_id.startswith(wanted)]
        if len(matches) == 1:
            return self.folder / matches[0] / RECORD_FILE
        if matches:
            raise ConfigError(
                "RUN", f"{wanted!r} is ambiguous: {', '.join(matches[:5])}; write more of the id"
            )
        path = Path(wanted)
        with suppress(OSError):  # the name is too long for a path, or its folder is locked
            path = path / RECORD_FILE if path.is_dir() else path
            if path.is_file() and path.suffix not in {".yaml", ".yml"}:
                return path
        hint = did_you_mean(wanted, ids, "; see `holodeck runs list`")
        if wanted.endswith((".yaml", ".yml")):
            hint = f"; write 'last {wanted}' to mean the last run of that file"
        reason = f"is neither a file nor a run recorded in {self.folder}{hint}"
        raise errors.FileNotFoundError(wanted, reason)

    def read(self, run: str | None) -> Run:
        """Read a run; see `path` for what `run` means, and `read_run` for the rest."""
        path = self.path(run)
        note_input(path)
        return read_run(path)

    def tags(self, run_id: str) -> list[str]:
        """Return the tags of a run, in alphabetical order."""
        try:
            text = (self.folder / run_id / TAGS_FILE).read_text("utf-8", "replace")
        except OSError:
            return []
        return sorted({line for line in text.splitlines() if _TAG.fullmatch(line)})

    def tag(self, run_id: str, tag: str) -> str | None:
        """Give a run a tag, which no other run has any more; return the run that had it.

        Raises ConfigError for what cannot be a tag, ReportError if it cannot be written.
        """
        if not _TAG.fullmatch(tag) or tag in _RESERVED or Path(tag).suffix in _FILES:
            reserved = ", ".join(sorted(_RESERVED))
            raise ConfigError(
                "TAG",
                f"found {tag!r}; expected a letter, then letters, digits, '.', '_' or '-', and"
                f" neither the name of a file nor {reserved}",
            )
        earlier = self._tagged(tag)
        try:
            if earlier is not None:
                self._write_tags(earlier, {*self.tags(earlier)} - {tag})
            self._write_tags(run_id, {*self.tags(run_id), tag})
        except OSError as error:
            raise ReportError(f"the tag cannot be written: {error.strerror}") from error
        return earlier

    def _tagged(self, tag: str) -> str | None:
        """Return the run with a tag."""
        files = self.folder.glob(f"*/{TAGS_FILE}") if _TAG.fullmatch(tag) else ()
        return next(
            (file.parent.name for file in files if tag in self.tags(file.parent.name)), None
        )

    def _write_tags(self, run_id: str, tags: Iterable[str]) -> None:
        text = "".join(f"{tag}\n" for tag in sorted(tags))
        replace_file(self.folder / run_id / TAGS_FILE, [text.encode()])

    def overviews(self) -> list[RunOverview]:
        """Return a line about each run, newest first."""
        return [
            _read_overview(self.folder / run_id / RECORD_FILE, self.tags(run_id))
            for run_id in self.ids()
        ]

    def remove(self, ids: Sequence[str]) -> None:
        """Delete these runs. Raises ReportError if any of them cannot be deleted."""
        for run_id in ids:
            try:
                shutil.rmtree(self.folder / run_id)
            except OSError as error:
                raise ReportError(f"run {run_id} cannot be removed: {error.strerror}") from error


def _read_overview(path: Path, tags: list[str]) -> RunOverview:
    first = last = b""
    finished = 0
    with path.open("rb") as file:
        is_running = not try_lock(file.fileno())
        for line in file:
            first = first or line
            last = line
            finished += line.startswith(_CASE_FINISHED) and line.endswith(b"\n")
    head, end = parse_event(first), parse_event(last)
    started = head if isinstance(head, RunHead) else None
    ended = end if isinstance(end, RunEnd) else None
    return RunOverview(
        id=path.parent.name,
        started=started.started if started else "",
        agent_name=started.agent_name if started else "",
        state=Run(path, started, {}, ended, is_running).state,
        finished=finished,
        planned=len(started.cases) if started else None,
        passed=ended.summary.passed if ended else None,
        size_bytes=path.stat().st_size,
        tags=tags,
    )


def read_run(path: Path) -> Run:
    """Read a record; lines that cannot be read are ignored and named in `warnings`.

    Raises FileNotFoundError, and ConfigError if the file cannot be opened, is not a record, or was
    written by a later version.
    """
    try:
        with path.open("rb") as file:
            is_running = not try_lock(file.fileno())
            warnings: list[str] = []
            run = _read_lines(file, path, warnings)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        if path.exists():
            raise ConfigError(str(path), f"cannot be read: {reason}") from error
        raise errors.FileNotFoundError(str(path), "this record does not exist") from error
    return replace(run, is_running=is_running, warnings=tuple(warnings))


def _read_lines(lines: Iterable[bytes], path: Path, warnings: list[str]) -> Run:
    """Return the run that the lines of its record describe; `warnings` takes a message for each
    line that is ignored."""
    events = list(_read_events(lines, path, warnings))
    if warnings and not events:
        raise ConfigError(str(path), f"is not the record of a run: {warnings[0]}")
    finished = {event.index: event for event in events if isinstance(event, CaseFinished)}
    skipped = {event.index: event for event in events if isinstance(event, CaseSkipped)}
    heads = [event for event in events if isinstance(event, RunHead)]
    ends = [event for event in events if isinstance(event, RunEnd)]
    return Run(
        path,
        heads[-1] if heads else None,
        dict(sorted(finished.items())),
        ends[-1] if ends else None,
        skipped=dict(sorted(skipped.items())),
    )


def _read_events(lines: Iterable[bytes], path: Path, warnings: list[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        event = parse_event(line)
        if isinstance(event, str):
            truncated = "" if line.endswith(b"\n") else "is truncated: "
            warnings.append(f"{path}:{number}: {truncated}{event}; the line is ignored")
        elif isinstance(event, int):
            raise ConfigError(
                f"{path}:{number}",
                f"unknown schema version {event}; this holodeck reads up to {SCHEMA_VERSION}, "
                "use the version that wrote the record, or a later one",
            )
        else:
            yield event


def parse_event(line: bytes) -> Event | str | int:
    """Parse a line; return an error message if it is invalid, its schema version if that is later.

    Lines that holodeck wrote are parsed without the detour through `json`. That detour also reads
    deeply nested values and lone surrogates.
    """
    for kind in EVENTS.values():
        name = kind.model_fields["event"].default.encode()
        if line.startswith(b'{"event":"%s","schema_version":%d,' % (name, SCHEMA_VERSION)):
            try:
                return kind.model_validate_json(line)
            except ValidationError:
                break
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    return _validate_event(data)


def _validate_event(data: Any) -> Event | str | int:
    if not isinstance(data, dict):
        return "not an event"
    version = data.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        return version
    name = data.get("event")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        return "unknown event"
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        return f"not a {name} event: {location}: {first['msg']}"


def is_of_second_agent(run: Run) -> bool:
    """Whether the run is that of the second of two compared agents."""
    compared_with = run.started.compared_with if run.started else None
    return compared_with is not None and compared_with.is_second
