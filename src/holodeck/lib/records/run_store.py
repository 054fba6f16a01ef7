"""The runs recorded beside an agent.yaml: listed, found, removed."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holodeck import errors
from holodeck.errors import ConfigError, ReportError
from holodeck.lib.file_lock import try_lock
from holodeck.lib.records.recorder import FILE_NAME, RUNS
from holodeck.lib.records.run import Run, event_of, read_run
from holodeck.lib.suggestions import did_you_mean
from holodeck.models.record import RunFinished, RunStarted

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
        self.folder = folder / RUNS

    def ids(self) -> list[str]:
        """The runs, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [one.parent.name for one in self.folder.glob(f"*/{FILE_NAME}")]
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
            return self.folder / ids[0] / FILE_NAME
        wanted = str(run)
        fitting = [wanted] if wanted in ids else [one for one in ids if one.startswith(wanted)]
        if len(fitting) == 1:
            return self.folder / fitting[0] / FILE_NAME
        if fitting:
            shown = ", ".join(fitting[:5])
            raise ConfigError("RUN", f"{wanted!r} may mean {shown}; write more of it")
        return self._by_path(wanted, ids)

    def read(self, run: str | None) -> Run:
        """The run that `run` means; see `path`."""
        return read_run(self.path(run))

    def overviews(self) -> list[RunOverview]:
        """Every run in short, the newest first."""
        return [_overview(self.folder / one / FILE_NAME) for one in self.ids()]

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
            path = path / FILE_NAME if path.is_dir() else path
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
    head, end = event_of(first), event_of(last)
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
