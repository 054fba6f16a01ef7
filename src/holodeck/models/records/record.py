"""The lines of a run record, and the baseline that later runs are compared with."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import model_validator

from holodeck.models.base import Count, Json, Model
from holodeck.models.results.origin import PromptVersion, RunOrigin, Selection
from holodeck.models.results.outcome import Outcome, StopKind
from holodeck.models.test_result import MetricResult, ReportSummary, TestResult
from holodeck.models.token_usage import TokenUsage

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
    reason: str = ""
    """Why it did not pass, on a line; empty if it passed."""


class RateChange(Model):
    """Since when a case passes more or less often than before."""

    run: str
    """The first run after the change."""
    before: str
    """The last one before it."""
    passed_before: Count
    ran_before: Count
    passed_since: Count
    ran_since: Count
    p_value: float
    """How often chance alone would show a change that is as clear."""


class CaseTrend(Model):
    """How a case ended in the recorded runs of an agent."""

    agent: str
    name: str | None
    id: str | None
    suite: str | None
    input: str
    tags: list[str]
    location: str | None
    outcomes: dict[str, Outcome]
    """Run → outcome; a run that resumed another one has its results, too."""
    past: list[PastOutcome]
    """Each result once, the oldest first."""
    change: RateChange | None = None
    failing_since: str | None = None
    """The run since which it has failed each time; None unless it failed last."""
    is_flaky: bool = False
    """Whether it passed and failed in turns although nothing changed, or among repetitions."""


class RunLine(Model):
    """A recorded run among others."""

    id: str
    tags: list[str]
    agent: str
    started: str
    state: str
    outcomes: dict[str, int]
    passed: Count
    ran: Count
    wall_time_ms: Count | None
    cost: float | None
    currency: str | None
    commit: str | None
    selected: str | None
    hashes: dict[str, str]
    """Part of the configuration → its hash."""


class RunTrends(Model):
    """The recorded runs beside an agent.yaml, the oldest first, and what became of each case."""

    runs: list[RunLine]
    cases: list[CaseTrend]
    notes: list[str] = []
    """What is missing."""


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

    @property
    def origin(self) -> RunOrigin:
        """What identifies the run and its configuration."""
        return RunOrigin(
            run=self.id,
            commit=self.commit,
            folder=self.folder,
            checkout=self.checkout,
            hashes=self.hashes,
        )


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


CaseKey = tuple[str, ...]


def case_keys(results: Sequence[TestResult]) -> list[CaseKey]:
    """Return what identifies each case in several runs: its id, else its name, else its input.

    In a report about several agents, the agent is part of it. Cases that nothing distinguishes are
    numbered.
    """
    seen: dict[CaseKey, int] = {}
    keys = []
    for result in results:
        key = _case_key(result)
        seen[key] = seen.get(key, 0) + 1
        keys.append(key if seen[key] == 1 else (*key, str(seen[key])))
    return keys


def _case_key(result: TestResult) -> CaseKey:
    agent = () if result.agent_name is None else ("agent", result.agent_name)
    if result.test_id is not None:
        return *agent, "id", result.test_id
    if result.written_name is not None:
        return *agent, "name", result.suite or "", result.written_name
    digest = hashlib.sha256(result.test_input.encode(errors="replace")).hexdigest()
    return *agent, "input", result.suite or "", digest[:16]


def checks_of(result: TestResult) -> dict[str, float | None]:
    """Return what decides about a case: each required check, and the score that it must reach.

    Checks of the same name are numbered. Nothing was checked in a case that could not be graded.
    """
    run = result.single_runs[-1]
    metrics = [row for row in run.rows if row.required]
    expectations = [check.expectation for turn in run.turns for check in turn.tool_checks]
    expectations += [check.expectation for check in run.tool_checks]
    expectations += [row.criterion for row in run.criteria if row.required]
    checks: dict[str, float | None] = {}
    numbers = Counter[str]()
    for name, threshold in (
        *((row.metric_name, row.threshold) for row in metrics),
        *((expectation, None) for expectation in expectations),
    ):
        numbers[name] += 1
        checks[name if numbers[name] == 1 else f"{name} ({numbers[name]})"] = threshold
    return checks


class BaselineCase(Model):
    """How a case ended, without what was said."""

    name: str | None = None
    id: str | None = None
    suite: str | None = None
    key: list[str]
    """What identifies the case in other runs."""
    outcome: Outcome
    scores: dict[str, float] = {}
    """Metric → its mean score."""
    tokens: Count | None = None
    """Of the agent, per run; None if unknown."""
    latency_ms: Count | None = None
    """Of the agent, per run; None if unknown."""
    passed: Count = 0
    """In how many of the recorded runs with the same configuration the case passed each time."""
    ran: Count = 0
    """How many of these runs decided about the case."""
    checks: dict[str, float | None] | None = None
    """Each required check → the score that it must reach, or null; None if unknown."""
    hash: str | None = None
    """Of what is written about the case; None if unknown."""

    def to_result(self, timestamp: str) -> TestResult:
        """Return what is known of the case as a result; nothing is known of its calls."""
        is_skipped = self.outcome is Outcome.SKIPPED
        return TestResult(
            test_name=self.name,
            test_id=self.id,
            suite=self.suite,
            test_input="",
            passed=self.outcome.is_pass,
            outcome=self.outcome,
            skip_reason="skipped" if is_skipped else None,
            skipped_by="skip" if is_skipped else None,
            execution_time_ms=self.latency_ms or 0,
            agent_time_ms=self.latency_ms,
            timestamp=timestamp,
            token_usage=None if self.tokens is None else TokenUsage(total_tokens=self.tokens),
            metric_results=[
                MetricResult(metric_name=name, score=score) for name, score in self.scores.items()
            ],
        )


class Baseline(Model):
    """A run that others are compared with; it can be committed."""

    kind: Literal["holodeck-baseline"] = "holodeck-baseline"
    schema_version: Literal[1] = 1
    run: str
    """The id of the run."""
    agent_name: str
    timestamp: str
    commit: str | None = None
    """The commit checked out when the run began; None outside of git."""
    versions: dict[str, str] = {}
    hashes: dict[str, str] = {}
    """Part of the configuration → its hash."""
    cases: list[BaselineCase]

    @model_validator(mode="after")
    def _keys_are_unique(self) -> "Baseline":
        keys = [tuple(case.key) for case in self.cases]
        if len(set(keys)) < len(keys):
            raise ValueError(
                "two cases have the same key; make the file anew with `holodeck bless`"
            )
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        yield from (("run", self.run), ("agent_name", self.agent_name), ("cases", len(self.cases)))
