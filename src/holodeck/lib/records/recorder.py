"""Writes the record of a run: a file of JSON lines that a kill or a full disk cannot break."""

import errno
import logging
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.config.agent_files import prompt_versions
from holodeck.errors import ReportError
from holodeck.lib.records.fingerprint import Fingerprint, dump_cases, hash_parts
from holodeck.lib.support.files import (
    FOLDER_MODE,
    make_folder,
    open_file,
    replace_file,
    try_lock,
)
from holodeck.lib.support.safe_paths import written_path
from holodeck.models.base import Model, model_json
from holodeck.models.records.record import (
    CaseFinished,
    CaseSkipped,
    ComparedWith,
    RunEnd,
    RunHead,
)
from holodeck.models.results.origin import RunOrigin

if TYPE_CHECKING:
    from holodeck.lib.secrets.redact import Redactor
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.results.origin import Selection
    from holodeck.models.test_result import TestReport, TestResult

logger = logging.getLogger(__name__)

RUNS_FOLDER = Path(".holodeck") / "runs"
"""Relative to the folder of the agent.yaml."""
RECORD_FILE = "run.jsonl"
SYNC_SECONDS = 0.05
"""Lines written within this time are synced together; only a power cut could lose them."""
_MAX_ATTEMPTS = 100
_LIBRARIES = ("semantic_kernel", "openai", "anthropic", "ollama", "xllamacpp")
_TIME = "%Y%m%d-%H%M%S-%f"
_MOMENT = timedelta(microseconds=1)


class Recorder:
    """The record of a run in progress. The results passed to it contain no secrets any more.

    Raises ReportError if the record cannot be created, and ConfigError if its folder is a link out
    of the agent's; `failure` names later problems.
    """

    def __init__(self, agent: "Agent", fingerprint: Fingerprint) -> None:
        folder = agent.base_dir / RUNS_FOLDER
        written_path(RUNS_FOLDER, agent.base_dir, "the run record")
        try:
            make_folder(folder)
            if not (folder / ".gitignore").exists():
                replace_file(folder / ".gitignore", [b"*\n"])
            self.id = _create_folder(folder)
            self._file = AppendOnlyFile(folder / self.id / RECORD_FILE)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ReportError(
                f"the run cannot be recorded in {folder}: {reason}; make the folder writable, or "
                "run without a record: --no-record"
            ) from error
        self.compared_with: ComparedWith | None = None
        """The run of the other agent; set it before `begin`."""
        self.origin = RunOrigin(run=self.id)
        """What identifies the run and its configuration; complete after `begin`."""
        self._agent = agent
        self._fingerprint: Fingerprint | None = fingerprint
        self._hashes = fingerprint.hashes

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def failure(self) -> str | None:
        """Why the record is incomplete; None if it is complete."""
        return self._file.failure

    def begin(
        self,
        agent_config_path: str,
        settings: "ExecutionConfig",
        redactor: "Redactor",
        *,
        version: str,
        selection: "Selection | None" = None,
        resumes: str | None = None,
        carried_over: Mapping[int, "TestResult"] | None = None,
    ) -> None:
        """Write the configuration of the run, and the results of the run that it resumes."""
        fingerprint, self._fingerprint = self._fingerprint, None  # large, and not needed again
        assert fingerprint is not None  # noqa: S101 - a run begins once
        origin = origin_of(self._agent, fingerprint.parts)
        head = redactor.redact_report(
            RunHead(
                id=self.id,
                started=datetime.now(UTC).isoformat(timespec="milliseconds"),
                agent_name=self._agent.name,
                agent_config_path=agent_config_path,
                resumes=resumes,
                compared_with=self.compared_with,
                versions={"holodeck": version, "python": platform.python_version()},
                commit=origin.commit,
                folder=origin.folder,
                checkout=origin.checkout,
                hashes=fingerprint.parts,
                prompts=prompt_versions(self._agent),
                settings=settings.model_dump(mode="json"),
                config=fingerprint.config | {"test_cases": [*dump_cases(self._agent)]},
                selection=selection,
                cases=list(fingerprint.cases),
            )
        )
        self.origin = head.origin
        carried = (
            self._finished_event(index, result) for index, result in (carried_over or {}).items()
        )
        self._file.append(json_line(head), *map(json_line, carried))

    def add(self, index: int, result: "TestResult") -> None:
        """Write the result of the case with that index in the file."""
        is_interrupted = result.ending is not None and result.ending.is_interrupted
        if result.skip_reason is not None or is_interrupted:
            self._file.append(json_line(CaseSkipped(index=index, result=result)))
        else:
            self._file.append(json_line(self._finished_event(index, result)))

    def end(self, report: "TestReport", exit_code: int) -> None:
        """Write how the run ended, and close the file."""
        loaded = {
            name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES
        }  # reading the versions of installed libraries would take too long
        end = RunEnd(
            timestamp=report.timestamp,
            exit_code=exit_code,
            interrupted=report.interrupted,
            stopped=report.stopped,
            stopped_by=report.stopped_by,
            planned_tests=report.planned_tests,
            environment=report.environment,
            libraries={
                name: version for name, version in loaded.items() if isinstance(version, str)
            },
            notes=report.notes,
            summary=report.summary,
        )
        self._file.append(json_line(end))
        self._file.close()

    def _finished_event(self, index: int, result: "TestResult") -> CaseFinished:
        return CaseFinished(index=index, hash=self._hashes[index], result=result)


def origin_of(agent: "Agent", hashes: dict[str, str] | None = None) -> RunOrigin:
    """Return what identifies a run; `hashes` are those of its parts, if they are known."""
    folder = None
    with suppress(OSError):  # the working folder was removed
        folder = str(Path.cwd())
    checkout = checkout_of(agent.base_dir)
    return RunOrigin(
        commit=checked_out_commit(agent.base_dir),
        folder=folder,
        checkout=None if checkout is None else str(checkout.resolve()),
        hashes=hash_parts(agent)[0] if hashes is None else hashes,
    )


def _create_folder(parent: Path) -> str:
    """Create a folder for the run; its name sorts after those of earlier runs."""
    for _ in range(_MAX_ATTEMPTS):
        name = f"{_time_after(path.name for path in parent.iterdir())}-{os.urandom(3).hex()}"
        with suppress(FileExistsError):
            (parent / name).mkdir(FOLDER_MODE)
            return name
    raise FileExistsError(f"no free name in {parent}")


def _time_after(names: Iterable[str]) -> str:
    """Return the time as a name begins with it; if the clock was put back, one after all names."""
    now = datetime.now(UTC).strftime(_TIME)
    latest = max((name.rpartition("-")[0] for name in names), default="")
    if latest >= now:
        with suppress(ValueError, OverflowError):
            return (datetime.strptime(latest, _TIME) + _MOMENT).strftime(_TIME)  # noqa: DTZ007
    return now


def json_line(event: Model) -> bytes:
    """Return the event as a line of JSON."""
    return model_json(event).encode() + b"\n"


class AppendOnlyFile:
    """A new file. The system has each line when `append` returns, so a kill loses none.

    A line that cannot be written is kept in memory, like all after it, and written at the end;
    `failure` names the reason.
    """

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        """`sync` writes a file to the disk. Raises OSError if the file exists already."""
        self.path = path
        self.failure: str | None = None
        self._sync = sync
        self._handle = open_file(path, os.O_WRONLY | os.O_EXCL | os.O_APPEND)
        try_lock(self._handle)
        self._size = 0
        self._unwritten: list[bytes] = []
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._syncer = threading.Thread(target=self._keep_synced, name="record", daemon=True)
        self._syncer.start()

    def append(self, *parts: bytes) -> None:
        """Write whole lines, given in parts; the first failure is logged, none is raised."""
        if not self._unwritten:
            try:
                self._write(parts)
            except OSError as error:
                self._note_failure(error.strerror or type(error).__name__)
            else:
                return
        self._unwritten += parts

    def close(self) -> None:
        """Write the lines kept in memory and sync the file."""
        if self._unwritten:
            with suppress(OSError):
                self._write(self._unwritten)
                self.failure = None
                logger.warning("%s: could be written after all", self.path)
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        os.close(self._handle)

    def _write(self, parts: Iterable[bytes]) -> None:
        """Write all of it, or leave the file as it was."""
        size = self._size
        try:
            for data in parts:
                written = 0
                while written < len(data):
                    written += os.write(self._handle, data[written:])
                size += written
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size = size
        self._dirty.set()

    def _keep_synced(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._dirty.clear()
            self._sync_once()
            self._closing.wait(SYNC_SECONDS)
        self._sync_once()

    def _sync_once(self) -> None:
        try:
            self._sync(self._handle)
            is_removed = os.fstat(self._handle).st_nlink == 0
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # not supported by every system
                self._note_failure(error.strerror or type(error).__name__)
        else:
            if is_removed:
                self._note_failure("it was removed during the run")

    def _note_failure(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            logger.error("the run record cannot be written: %s: %s", self.path, reason)


def checkout_of(folder: Path) -> Path | None:
    """Return the folder of the checkout around `folder`; None outside of git."""
    return next(
        (parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None
    )


def checked_out_commit(folder: Path) -> str | None:
    """Return the commit checked out around `folder`, read without git; None outside of git."""
    checkout = checkout_of(folder)
    if checkout is not None:
        with suppress(OSError, ValueError):
            return _read_head(checkout / ".git")
    return None


def _read_head(git: Path) -> str | None:
    if not git.is_dir():  # of a linked working tree, it is a file that names the folder
        git = git.parent / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    common = git / shared.read_text(encoding="utf-8").strip() if shared.is_file() else git
    for folder in (git, common):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    packed = common / "packed-refs"
    if not packed.is_file():
        return None
    pairs = (line.split(" ", 1) for line in packed.read_text(encoding="utf-8").splitlines())
    return next((pair[0] for pair in pairs if len(pair) == 2 and pair[1] == name), None)
