"""Writes the record of one run."""

import errno
import json
import logging
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from holodeck.errors import ReportError
from holodeck.lib.file_lock import try_lock
from holodeck.lib.records.fingerprint import Fingerprint
from holodeck.models.base import Model
from holodeck.models.record import CaseFinished, CaseSkipped, Event, RunFinished, RunStarted

if TYPE_CHECKING:
    from holodeck.lib.redact import Redactor
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.selection import Selection
    from holodeck.models.test_result import TestReport, TestResult


logger = logging.getLogger(__name__)

SYNC_SECONDS = 0.05
"""Lines of so much time share one trip to the disk, which only a power cut makes matter."""


class AppendOnlyFile:
    """One new file. A line is with the system when `append` returns, so killing loses nothing.

    A line that cannot be written is kept in memory, like those after it, and tried again at the
    end; `trouble` says why.
    """

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        """`sync` takes a file to the disk. Raises OSError if the file exists or cannot be made."""
        self.path = path
        self.trouble: str | None = None
        self._sync = sync
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try_lock(self._handle)
        self._size = 0
        self._unwritten: list[bytes] = []
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._syncer = threading.Thread(target=self._keep_synced, name="record", daemon=True)
        self._syncer.start()

    def append(self, lines: bytes) -> None:
        """Write whole lines; a failure is told once and does not raise."""
        if not self._unwritten:
            try:
                self._write(lines)
            except OSError as error:
                self._note(error.strerror or type(error).__name__)
            else:
                return
        self._unwritten.append(lines)

    def close(self) -> None:
        """Write what is left and wait for the disk."""
        if self._unwritten:
            with suppress(OSError):
                self._write(b"".join(self._unwritten))
                self.trouble = None
                logger.warning("%s: could be written after all", self.path)
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        os.close(self._handle)

    def _write(self, data: bytes) -> None:
        """Write all of it, or leave the file as it was."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size += written
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
            gone = os.fstat(self._handle).st_nlink == 0
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # a pipe, or a simple file system
                self._note(error.strerror or type(error).__name__)
        else:
            if gone:
                self._note("it was removed while the run went on")

    def _note(self, reason: str) -> None:
        if self.trouble is None:
            self.trouble = reason
            logger.error("the record cannot be kept: %s: %s", self.path, reason)


def checked_out_commit(folder: Path) -> str | None:
    """The commit checked out around `folder`; None outside of git or where it cannot be told."""
    for parent in (folder, *folder.parents):
        marker = parent / ".git"
        if marker.exists():
            with suppress(OSError, ValueError):
                return _read_head(_git_folder(marker))
            return None
    return None


def _git_folder(marker: Path) -> Path:
    """The folder itself, or the one that the file of a linked working tree points to."""
    if marker.is_dir():
        return marker
    return marker.parent / marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip()


def _read_head(git: Path) -> str | None:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    common = git / shared.read_text(encoding="utf-8").strip() if shared.is_file() else git
    for folder in (git, common):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    return _packed(common / "packed-refs", name)


def _packed(file: Path, name: str) -> str | None:
    if not file.is_file():
        return None
    pairs = (line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return next((pair[0] for pair in pairs if len(pair) == 2 and pair[1] == name), None)


RUNS_FOLDER = Path(".holodeck") / "runs"
"""Where the records lie, seen from the folder of the agent.yaml."""
RECORD_FILE = "run.jsonl"
_MOST_TRIES = 100
_LIBRARIES = ("semantic_kernel", "openai", "anthropic", "ollama", "xllamacpp")
_MOST_DEPTH = 100
_REPLACED = "\ufffd".encode()


class Recorder:
    """The record of a run under way. Results given to it hold no secrets any more.

    Raises ReportError if the record cannot be begun; what goes wrong later is in `trouble`.
    """

    def __init__(self, agent: "Agent", fingerprint: Fingerprint) -> None:
        folder = agent.base_dir / RUNS_FOLDER
        try:
            _keep_out_of_git(folder)
            self.id = _new_folder(folder)
            self._journal = AppendOnlyFile(folder / self.id / RECORD_FILE)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ReportError(
                f"the run cannot be recorded in {folder}: {reason}; make the folder writable, or "
                "run without a record: --no-record"
            ) from error
        self._agent = agent
        self._fingerprint = fingerprint

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    @property
    def trouble(self) -> str | None:
        """Why the record is not whole; None if it is."""
        return self._journal.trouble

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
        """Write what is run, and the results that are there already."""
        agent = self._agent
        head = RunStarted(
            id=self.id,
            started=_timestamp(),
            agent_name=agent.name,
            agent_config_path=agent_config_path,
            resumes=resumes,
            versions={"holodeck": version, "python": platform.python_version()},
            commit=checked_out_commit(agent.base_dir),
            hashes=self._fingerprint.parts,
            settings=settings.model_dump(mode="json"),
            config=self._fingerprint.config,
            cases=list(self._fingerprint.cases),
            selection=selection,
        )
        head = _without_secrets(head, redactor)
        events: list[Event] = [
            self._finished(index, one) for index, one in (carried_over or {}).items()
        ]
        self._journal.append(b"".join(json_line(one) for one in [head, *events]))

    def add(self, index: int, result: "TestResult") -> None:
        """Write the result of the case at that place in the file."""
        is_cut_off = result.ending is not None and result.ending.is_interrupted
        if result.skip_reason is not None or is_cut_off:
            self._journal.append(json_line(CaseSkipped(index=index, result=result)))
        else:
            self._journal.append(json_line(self._finished(index, result)))

    def end(self, report: "TestReport", exit_code: int) -> None:
        """Write how the run ended, and close the file."""
        self._journal.append(
            json_line(
                RunFinished(
                    timestamp=report.timestamp,
                    exit_code=exit_code,
                    interrupted=report.interrupted,
                    stopped=report.stopped,
                    stopped_by=report.stopped_by,
                    planned_tests=report.planned_tests,
                    environment=report.environment,
                    libraries=_libraries(),
                    summary=report.summary,
                )
            )
        )
        self._journal.close()

    def _finished(self, index: int, result: "TestResult") -> CaseFinished:
        return CaseFinished(index=index, hash=self._fingerprint.hashes[index], result=result)


def _without_secrets(head: RunStarted, redactor: "Redactor") -> RunStarted:
    """Its thousands of cases apart from the rest, whose keys tell of secrets."""
    config = dict(head.config)
    cases = redactor.redact_report(config.pop("test_cases", []))
    planned = redactor.redact_report(head.cases)
    small = redactor.redact_report(head.model_copy(update={"config": config, "cases": []}))
    full = small.config | {"test_cases": cases}
    return small.model_copy(update={"config": full, "cases": planned})


def json_line(event: Model) -> bytes:
    """The event as one line of JSON."""
    try:
        line = event.model_dump_json().encode() + b"\n"
    except (ValueError, RecursionError):
        # Half a surrogate pair, which JSON can only write escaped, or arguments without a bottom.
        return json.dumps(_plain(event), default=str).encode() + b"\n"
    if _REPLACED not in line:
        return line
    # In a key, half a pair is no error to pydantic: it puts another character in its place.
    return json.dumps(_plain(event), default=str).encode() + b"\n"


def _plain(value: Any, depth: int = _MOST_DEPTH) -> Any:
    """`value` as JSON has it, cut off where it is nested deeper than can be read back."""
    if depth == 0 and isinstance(value, BaseModel | dict | list | tuple):
        return "(nested too deep to be recorded)"
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {name: _plain(getattr(value, name), depth - 1) for name in fields}
    if isinstance(value, dict):
        return {str(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _keep_out_of_git(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as file:
        file.write("*\n")


def _new_folder(folder: Path) -> str:
    """A folder that no other run has; its name tells when, and sorts by it."""
    for _ in range(_MOST_TRIES):
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{os.urandom(3).hex()}"
        with suppress(FileExistsError):
            (folder / name).mkdir()
            return name
    raise FileExistsError(f"no free name in {folder}")


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _libraries() -> dict[str, str]:
    """Versions of what the run has loaded; reading those of what is installed takes too long."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {name: version for name, version in found.items() if isinstance(version, str)}
