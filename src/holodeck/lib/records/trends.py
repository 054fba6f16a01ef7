"""What all recorded runs of a folder say together: the runs, and how each case went over time."""

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, takewhile
from math import fsum

from holodeck.errors import ConfigError
from holodeck.lib.records.change_point import ChangePoint, find_change_point, significant
from holodeck.lib.records.history import agent_file_name
from holodeck.lib.records.recorder import RECORD_FILE
from holodeck.lib.records.run_store import Run, RunStore, read_run
from holodeck.lib.support.text import one_line, plural
from holodeck.models.records.record import (
    CaseFinished,
    CaseSkipped,
    CaseTrend,
    PastOutcome,
    RateChange,
    RunHead,
    RunLine,
    RunTrends,
)
from holodeck.models.results.outcome import DECIDED, Outcome
from holodeck.models.test_result import TestResult

MOST_RUNS = 200
MOST_BYTES = 200_000_000
"""Records are read until then, the newest first."""
MOST_PAST_RUNS = 50
MOST_PAST_BYTES = 50_000_000
"""Likewise, for the past of a single run."""
_RECENT = 20
"""The results of a case that say whether it is flaky."""
_SWITCHES = 2
"""A single switch between passing and failing may be a change that lasts."""
_MAX_REASON = 300
_MAX_INPUT = 200
Key = tuple[str, ...]
_Agent = tuple[str, str]
"""Its name and its file."""


@dataclass
class _Series:
    """The results of a case, as they are read, the oldest first."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    past: list[PastOutcome] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    """Of everything that each result depends on."""
    last: TestResult | None = None

    def add(self, run: Run, line: CaseFinished | CaseSkipped) -> None:
        """Add a result, unless an earlier run that this one resumed had it."""
        result = line.result
        self.outcomes[run.id] = result.outcome
        self.last = result
        is_resumed = run.started is not None and run.started.resumes is not None
        if is_resumed and any(past.timestamp == result.timestamp for past in self.past):
            return
        reason = one_line(next(iter(result.reasons()), ""), _MAX_REASON)
        scores = [row.score for row in result.rows if row.score is not None]
        self.past.append(
            PastOutcome(
                run=run.id,
                timestamp=result.timestamp,
                outcome=result.outcome,
                elapsed_ms=result.execution_time_ms,
                score=sum(scores) / len(scores) if scores else None,
                reason=reason,
            )
        )
        self.hashes.append(line.hash if isinstance(line, CaseFinished) else "")

    @property
    def decided(self) -> list[PastOutcome]:
        """The results that are a verdict about the agent."""
        return [past for past in self.past if past.outcome in DECIDED]

    @property
    def passes(self) -> list[bool]:
        """Whether the case passed, each time that this was decided."""
        return [past.outcome.is_pass for past in self.decided]

    def trend(self, agent: str, point: ChangePoint | None) -> CaseTrend:
        """Return how the case went; `point` is None where chance may explain its verdicts."""
        assert self.last is not None  # noqa: S101 - a result was added
        return CaseTrend(
            agent=agent,
            name=self.last.written_name,
            id=self.last.test_id,
            suite=self.last.suite,
            input=one_line(self.last.test_input, _MAX_INPUT),
            tags=self.last.tags,
            location=self.last.location,
            outcomes=self.outcomes,
            past=self.past,
            change=None if point is None else self._change(point),
            failing_since=self._failing_since(),
            is_flaky=self._is_flaky(),
        )

    def _change(self, point: ChangePoint) -> RateChange:
        before, since = self.passes[: point.at], self.passes[point.at :]
        return RateChange(
            run=self.decided[point.at].run,
            before=self.decided[point.at - 1].run,
            passed_before=sum(before),
            ran_before=len(before),
            passed_since=sum(since),
            ran_since=len(since),
            p_value=point.p_value,
        )

    def _failing_since(self) -> str | None:
        failed = list(takewhile(lambda past: not past.outcome.is_pass, reversed(self.decided)))
        return failed[-1].run if failed else None

    def _is_flaky(self) -> bool:
        """Whether the verdicts alternate, or repetitions differ, while nothing changes."""
        recent = list(zip(self.past, self.hashes, strict=True))[-_RECENT:]
        verdicts: dict[str, list[bool]] = {}
        for past, digest in recent:
            if past.outcome is Outcome.FLAKY:
                return True
            if past.outcome in DECIDED:
                verdicts.setdefault(digest, []).append(past.outcome.is_pass)
        return any(
            sum(map(operator.ne, passes, passes[1:])) >= _SWITCHES for passes in verdicts.values()
        )


def run_trends(store: RunStore) -> RunTrends:
    """Return what the recorded runs say together.

    Raises FileNotFoundError without any, and ConfigError if none can be read.
    """
    store.path(None)  # raises without any
    ids = store.ids()
    chosen = _newest(ids, store, MOST_RUNS, MOST_BYTES)
    left = len(ids) - len(chosen)
    notes = [f"{plural(left, 'older run')} left out, to keep the page small."] if left else []
    lines: list[tuple[_Agent, RunLine]] = []
    cases: dict[tuple[_Agent, Key], _Series] = {}
    for run in _read_each(chosen, store, notes):
        agent = _agent_of(run.started)
        lines.append((agent, _run_line(run, store.tags(run.id))))
        for key, line in _results_of(run):
            cases.setdefault((agent, key), _Series()).add(run, line)
    if not lines:
        raise ConfigError(str(store.folder), f"none of its runs can be read: {notes[-1]}")
    found = {key: find_change_point(series.passes) for key, series in cases.items()}
    changes = significant(found)
    names = Counter(name for name, _ in {agent for agent, _ in lines})
    labels = {agent: " ".join(agent) if names[agent[0]] > 1 else agent[0] for agent, _ in lines}
    return RunTrends(
        runs=[line.model_copy(update={"agent": labels[agent]}) for agent, line in lines],
        cases=[
            series.trend(labels[agent], changes.get((agent, key)))
            for (agent, key), series in cases.items()
        ],
        notes=notes,
    )


def past_outcomes(run: Run, store: RunStore) -> list[list[PastOutcome]]:
    """Return how each result of a run ended in earlier runs and in itself, the oldest first.

    The results are in the order of the report; none if the record no longer says their cases.
    """
    agent = _agent_of(run.started)
    ids = [run_id for run_id in store.ids() if run_id < run.id]
    runs = _read_each(_newest(ids, store, MOST_PAST_RUNS, MOST_PAST_BYTES), store, [])
    earlier = (past for past in runs if _agent_of(past.started) == agent)
    cases: dict[Key, _Series] = {}
    for past in chain(earlier, [run]):
        for key, line in _results_of(past):
            cases.setdefault(key, _Series()).add(past, line)
    found = [cases[key].past for key, _ in _results_of(run)]
    return found if len(found) == len(run.results) else []


def _newest(ids: Sequence[str], store: RunStore, most: int, most_bytes: int) -> list[str]:
    """Return the newest of the runs, as far as their records are not too many or too large."""
    sizes = accumulate((store.folder / run_id / RECORD_FILE).stat().st_size for run_id in ids)
    fitting = takewhile(lambda size: size <= most_bytes, islice(sizes, most))
    return list(ids[: max(1, len(list(fitting)))])


def _read_each(ids: Sequence[str], store: RunStore, notes: list[str]) -> Iterator[Run]:
    """Yield the runs, the oldest first; what cannot be read is added to the notes."""
    for run_id in reversed(ids):
        try:
            run = read_run(store.folder / run_id / RECORD_FILE)
        except ConfigError as error:
            notes.append(f"A run is left out: {error}")
            continue
        notes += run.warnings
        yield run


def _agent_of(head: RunHead | None) -> _Agent:
    if head is None:
        return "unknown", ""
    is_second = head.compared_with is not None and head.compared_with.is_second
    file = head.agent_config_path if is_second else agent_file_name(head.agent_config_path)
    return head.agent_name, f"({file})"


def _results_of(run: Run) -> Iterator[tuple[Key, CaseFinished | CaseSkipped]]:
    """Yield what identifies each case among the runs of its agent, and its line in the record."""
    planned = run.started.cases if run.started else []
    numbers = Counter[Key]()
    for index, line in run.lines.items():
        if index < len(planned):
            key = planned[index].key
            numbers[key] += 1
            yield (*key, str(numbers[key])), line


def _run_line(run: Run, tags: list[str]) -> RunLine:
    started, results = run.started, run.results
    outcomes = Counter(result.outcome for result in results)
    costs = [result.cost for result in results if result.cost is not None]
    currencies = {cost.currency for cost in costs}
    totals = [cost.total for cost in costs if cost.total is not None]
    is_known = len(totals) == len(costs) and len(currencies) == 1
    return RunLine(
        id=run.id,
        tags=tags,
        agent="",
        started=started.started if started else "",
        state=run.state,
        outcomes={outcome.value: count for outcome, count in outcomes.items()},
        passed=sum(result.passed for result in results),
        ran=len(results) - outcomes[Outcome.SKIPPED],
        wall_time_ms=run.ended.summary.wall_time_ms if run.ended else None,
        cost=fsum(totals) if is_known else None,
        currency=currencies.pop() if is_known else None,
        commit=started.commit if started else None,
        selected=str(started.selection) if started and started.selection else None,
        hashes={} if started is None else started.hashes,
    )
