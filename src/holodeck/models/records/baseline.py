"""The baseline: what a run is compared with, in a small file without answers."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import model_validator

from holodeck.models.base import Count, Model
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import MetricResult, TestResult
from holodeck.models.token_usage import TokenUsage

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
    return *agent, *_key_of_agent(result)


def _key_of_agent(result: TestResult) -> CaseKey:
    if result.test_id is not None:
        return "id", result.test_id
    if result.test_name is not None:
        return "name", result.suite or "", result.test_name
    digest = hashlib.sha256(result.test_input.encode(errors="replace")).hexdigest()
    return "input", result.suite or "", digest[:16]


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
