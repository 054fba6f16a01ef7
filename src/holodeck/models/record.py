"""The lines of a run's record: how it began, what came of each case, how it ended."""

from typing import Literal

from holodeck.models.base import Count, Json, Model
from holodeck.models.selection import Selection
from holodeck.models.test_result import ReportSummary, StopKind, TestResult

SCHEMA_VERSION = 1


class PlannedCase(Model):
    """A case that a run set out to run."""

    name: str | None = None
    id: str | None = None
    suite: str | None = None
    hash: str
    """Of the case alone, whatever agent it is put to."""

    @property
    def key(self) -> tuple[str, ...]:
        """What the case is known by from run to run: its id, else its name, else what it says."""
        if self.id is not None:
            return "id", self.id
        return ("hash", self.hash) if self.name is None else ("name", self.suite or "", self.name)


class RunStarted(Model):
    """The first line: what is run, and with what."""

    event: Literal["run_started"] = "run_started"
    schema_version: Literal[1] = 1
    id: str
    started: str
    agent_name: str
    agent_config_path: str
    """As the user wrote it."""
    resumes: str | None = None
    """The run whose results this one carries over."""
    versions: dict[str, str] = {}
    """Of holodeck and Python."""
    commit: str | None = None
    """What git had checked out in the agent's folder; None outside of git."""
    hashes: dict[str, str] = {}
    """Part of the configuration → hash of it and of the files it names."""
    cases: list[PlannedCase] = []
    selection: Selection | None = None
    """What was chosen of the cases; None if the run set out to run them all."""
    settings: dict[str, Json] = {}
    config: dict[str, Json] = {}
    """The configuration without secrets."""


class CaseFinished(Model):
    """A line per finished case."""

    event: Literal["case_finished"] = "case_finished"
    schema_version: Literal[1] = 1
    index: Count
    """The case's place in the file."""
    hash: str
    """Of everything that the result depends on: agent, case, and metrics."""
    result: TestResult


class CaseSkipped(Model):
    """A line per case that was not run, or not to its end; whoever resumes the run runs it."""

    event: Literal["case_skipped"] = "case_skipped"
    schema_version: Literal[1] = 1
    index: Count
    """The case's place in the file."""
    result: TestResult


class RunFinished(Model):
    """The last line of a run that came to an end by itself or by Ctrl-C."""

    event: Literal["run_finished"] = "run_finished"
    schema_version: Literal[1] = 1
    timestamp: str
    exit_code: Count
    interrupted: bool = False
    stopped: str | None = None
    stopped_by: StopKind | None = None
    planned_tests: Count | None = None
    environment: dict[str, str] = {}
    libraries: dict[str, str] = {}
    """Versions of the libraries that the run has loaded to reach the agent."""
    summary: ReportSummary


Event = RunStarted | CaseFinished | CaseSkipped | RunFinished
EVENTS: dict[str, type[Event]] = {
    "run_started": RunStarted,
    "case_finished": CaseFinished,
    "case_skipped": CaseSkipped,
    "run_finished": RunFinished,
}
"""Name of an event → its shape."""
