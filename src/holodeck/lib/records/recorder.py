"""Writes the record of one run."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from holodeck.errors import ReportError
from holodeck.lib.records.append_only_file import AppendOnlyFile
from holodeck.lib.records.fingerprint import Fingerprint
from holodeck.lib.records.git import commit_of
from holodeck.models.base import Model
from holodeck.models.record import CaseFinished, CaseSkipped, Event, RunFinished, RunStarted

if TYPE_CHECKING:
    from holodeck.lib.redact import Redactor
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.selection import Selection
    from holodeck.models.test_result import TestReport, TestResult

RUNS = Path(".holodeck") / "runs"
"""Where the records lie, seen from the folder of the agent.yaml."""
FILE_NAME = "run.jsonl"
_MOST_TRIES = 100
_LIBRARIES = ("semantic_kernel", "openai", "anthropic", "ollama", "xllamacpp")
_MOST_DEPTH = 100
_REPLACED = "\ufffd".encode()


class Recorder:
    """The record of a run under way. Results given to it hold no secrets any more.

    Raises ReportError if the record cannot be begun; what goes wrong later is in `trouble`.
    """

    def __init__(self, agent: "Agent", fingerprint: Fingerprint) -> None:
        folder = agent.base_dir / RUNS
        try:
            _keep_out_of_git(folder)
            self.id = _new_folder(folder)
            self._journal = AppendOnlyFile(folder / self.id / FILE_NAME)
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
            started=_now(),
            agent_name=agent.name,
            agent_config_path=agent_config_path,
            resumes=resumes,
            versions={"holodeck": version, "python": platform.python_version()},
            commit=commit_of(agent.base_dir),
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
        self._journal.append(b"".join(line_of(one) for one in [head, *events]))

    def add(self, index: int, result: "TestResult") -> None:
        """Write the result of the case at that place in the file."""
        is_cut_off = result.ending is not None and result.ending.is_interrupted
        if result.skip_reason is not None or is_cut_off:
            self._journal.append(line_of(CaseSkipped(index=index, result=result)))
        else:
            self._journal.append(line_of(self._finished(index, result)))

    def end(self, report: "TestReport", exit_code: int) -> None:
        """Write how the run ended, and close the file."""
        self._journal.append(
            line_of(
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


def line_of(event: Model) -> bytes:
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _libraries() -> dict[str, str]:
    """Versions of what the run has loaded; reading those of what is installed takes too long."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {name: version for name, version in found.items() if isinstance(version, str)}
