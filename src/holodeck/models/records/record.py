"""The lines of a run record: the head, a line per case, the end."""

from typing import Literal

from holodeck.models.base import Count, Json, Model
from holodeck.models.results.origin import PromptVersion, Selection
from holodeck.models.results.outcome import Outcome, StopKind
from holodeck.models.test_result import ReportSummary, TestResult

SCHEMA_VERSION = 1


class PlannedCase(Model):
    """A case that was to run."""

    name: str | None = None
    id: str | None = None
    suite: str | None = None
    hash: str
    """Of the case alone, whatever the agent."""

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies the case in several runs: its id, else its name, else its content."""
        if self.id is not None:
            return "id", self.id
        return ("hash", self.hash) if self.name is None else ("name", self.suite or "", self.name)


class PastOutcome(Model):
    """How a case ended in a recorded run."""

    run: str
    timestamp: str
    outcome: Outcome
    elapsed_ms: Count
    score: float | None
    """Mean of its scores; None without any."""


class ComparedWith(Model):
    """The run of the other agent, where two agents were compared."""

    run: str
    is_second: bool
    """Whether this run, not the other one, is that of the second agent. Its cases, evaluations and
    settings are those of the first agent's file."""


class RunHead(Model):
    """The first line: the configuration of the run."""

    event: Literal["run_started"] = "run_started"
    schema_version: Literal[1] = 1
    id: str
    started: str
    agent_name: str
    agent_config_path: str
    """As the user wrote it."""
    resumes: str | None = None
    """The run that this one resumes."""
    compared_with: ComparedWith | None = None
    """None if only one agent was run."""
    versions: dict[str, str] = {}
    """Of holodeck and Python."""
    commit: str | None = None
    """The commit checked out in the agent's folder; None outside of git."""
    folder: str | None = None
    """The working folder; None if unknown."""
    checkout: str | None = None
    """The folder of the checkout around the agent; None outside of git."""
    hashes: dict[str, str] = {}
    """Part of the configuration → hash of it and of the files it names."""
    cases: list[PlannedCase] = []
    selection: Selection | None = None
    """The selected cases; None if all were to run."""
    prompts: list[PromptVersion] = []
    """The versions of the instructions and of the prompt tools."""
    settings: dict[str, Json] = {}
    config: dict[str, Json] = {}
    """The agent's configuration without secrets."""


class CaseFinished(Model):
    """The line of a finished case."""

    event: Literal["case_finished"] = "case_finished"
    schema_version: Literal[1] = 1
    index: Count
    """The case's index in the file."""
    hash: str
    """Of everything that the result depends on: agent, case and metrics."""
    result: TestResult


class CaseSkipped(Model):
    """The line of a case that did not run to its end; it runs when the run is resumed."""

    event: Literal["case_skipped"] = "case_skipped"
    schema_version: Literal[1] = 1
    index: Count
    """The case's index in the file."""
    result: TestResult


class RunEnd(Model):
    """The last line of a run that was not killed."""

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
    """Versions of the libraries that the run used to call the agent."""
    notes: list[str] = []
    """What readers must know to judge the results."""
    summary: ReportSummary


Event = RunHead | CaseFinished | CaseSkipped | RunEnd
EVENTS: dict[str, type[Event]] = {
    "run_started": RunHead,
    "case_finished": CaseFinished,
    "case_skipped": CaseSkipped,
    "run_finished": RunEnd,
}
"""Name of an event → its model."""
