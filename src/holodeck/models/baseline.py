"""The baseline: what a run is compared with, in a small file without answers."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import model_validator

from holodeck.models.base import Count, Model
from holodeck.models.outcome import Outcome
from holodeck.models.test_result import TestResult

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
        keys = [tuple(one.key) for one in self.cases]
        if len(set(keys)) < len(keys):
            raise ValueError(
                "two cases have the same key; make the file anew with `holodeck bless`"
            )
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        yield from (("run", self.run), ("agent_name", self.agent_name), ("cases", len(self.cases)))
