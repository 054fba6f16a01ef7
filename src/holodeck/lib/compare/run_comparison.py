"""Compare a run with an earlier run: reads both, pairs their cases, and says what else changed."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from holodeck import errors
from holodeck.config.yaml.source import display_path
from holodeck.errors import ConfigError
from holodeck.lib.compare.pairs import (
    build_comparison,
    build_pair,
    mean_latency_ms,
    mean_scores,
    mean_tokens,
)
from holodeck.lib.records.run_store import Run, RunStore, is_of_second_agent
from holodeck.lib.reports.summary import summarize
from holodeck.lib.support.text import one_line
from holodeck.lib.test_runner.grading.recorded import is_report, read_report, report_of
from holodeck.models.records.comparison import ComparedAgent, ComparisonReport, Pair
from holodeck.models.records.record import Baseline, BaselineCase, CaseKey, case_keys, checks_of
from holodeck.models.results.origin import RunOrigin
from holodeck.models.results.outcome import DECIDED, Outcome
from holodeck.models.test_result import TestReport, TestResult

BASELINE = "baseline"
MAIN = "main"
BASELINE_FILE = "baseline.json"
MOST_HISTORY = 10
"""Recorded runs whose verdicts a baseline counts."""
_MAX_NAME = 80
GIT_S = 30.0


@dataclass(frozen=True)
class ComparedRun:
    """A side of a comparison."""

    report: TestReport
    source: str
    """What the user wrote, or the id of the run."""
    versions: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[CaseKey, tuple[int, int]] | None = None
    """Of a baseline: case, in the order of the results → how often it passed, and in how many
    recorded runs."""
    checks: Mapping[CaseKey, Mapping[str, float | None]] = field(default_factory=dict)
    """Case → its required checks with their thresholds; a case is missing if they are unknown."""
    case_hashes: Mapping[CaseKey, str] = field(default_factory=dict)
    """Case → hash of what is written about it; a case is missing if it is unknown."""
    is_of_second_agent: bool = False
    """Whether it is the run of the agent of `--against`."""

    @property
    def keys(self) -> list[CaseKey]:
        """What identifies each result in other runs."""
        return case_keys(self.report.results) if self.history is None else [*self.history]

    @cached_property
    def results(self) -> dict[CaseKey, TestResult]:
        """What identifies a result in other runs → the result."""
        return dict(zip(self.keys, self.report.results, strict=True))

    @property
    def _origins(self) -> list[RunOrigin]:
        return [run.origin for run in self.report.merged] or [self.report.origin or RunOrigin()]

    @property
    def ids(self) -> list[str]:
        """The recorded runs that it consists of, as far as they have records."""
        return [run for origin in self._origins for run in (origin.run or "").split(", ") if run]

    @property
    def run(self) -> str | None:
        """The id of the run; None without a record, and for several."""
        origins = self._origins
        return origins[0].run if len(origins) == 1 else None

    @property
    def commit(self) -> str | None:
        """The commit that was checked out; None if it is unknown, or not the same for all runs."""
        commits = {origin.commit for origin in self._origins}
        return commits.pop() if len(commits) == 1 else None

    @property
    def hashes(self) -> dict[str, str]:
        """Part of the configuration → its hash; of several agents, each part with its name."""
        if not self.report.merged:
            return {} if self.report.origin is None else self.report.origin.hashes
        return {
            f"{run.label}: {part}" if self.is_of_several_agents else part: digest
            for run in self.report.merged
            for part, digest in run.origin.hashes.items()
        }

    @property
    def title(self) -> str:
        """What the user wrote, with the run, its time and its commit."""
        run = "" if self.run is None or self.run in self.source else f", run {self.run}"
        commit = f", commit {self.commit[:12]}" if self.commit else ""
        return f"{self.source}{run} of {one_line(self.report.timestamp, _MAX_NAME)}{commit}"

    @property
    def is_of_several_agents(self) -> bool:
        return len({run.label for run in self.report.merged}) > 1


def read_side(name: str, store: RunStore, agent_folder: Path) -> ComparedRun:
    """Return the run that a name means.

    Args:
        name: `baseline`, `main` (the baseline that is committed on that branch), `last`, the id of
            a run or its beginning, or the path of a record, a JSON report or a baseline.
        store: The recorded runs.
        agent_folder: The folder of the agent.yaml.

    Raises:
        ConfigError: There is no such run, or it cannot be read.
        FileNotFoundError: There is no such file.
    """
    if name == BASELINE:
        path = agent_folder / BASELINE_FILE
        if not path.is_file():
            raise errors.FileNotFoundError(
                str(path), "there is no baseline; `holodeck bless` makes the last run the baseline"
            )
        return _side_of_file(path)
    if name == MAIN:
        return _side_of_baseline(_committed_baseline(agent_folder), f"{BASELINE_FILE} on main")
    if is_report(name):
        return _side_of_file(Path(name))
    return side_of_run(store.read(name))


def of_one_agent(side: ComparedRun, agent_name: str) -> ComparedRun:
    """Return the side without the cases of other agents. Raises ConfigError."""
    report = side.report
    if not side.is_of_several_agents:
        return side
    labels = {run.label for run in report.merged if run.agent_name == agent_name}
    if len(labels) != 1:
        known = ", ".join(dict.fromkeys(run.label for run in report.merged))
        raise ConfigError(
            side.source, f"{agent_name!r} does not name one of its agents, which are {known}"
        )
    runs = [run for run in report.merged if run.label in labels]
    results = [
        result.model_copy(update={"agent_name": None})
        for result in report.results
        if result.agent_name in labels
    ]
    summary = summarize(results, report.summary.wall_time_ms)
    update = {"agent_name": agent_name, "results": results, "summary": summary, "merged": runs}
    return replace(side, report=report.model_copy(update=update))


def side_of_run(run: Run) -> ComparedRun:
    """Return a recorded run as a side of a comparison."""
    started, report = run.started, report_of(run)
    planned = {} if started is None else {at: case.hash for at, case in enumerate(started.cases)}
    keys = zip(run.lines, case_keys(report.results), strict=True)
    return ComparedRun(
        report=report,
        source=f"run {run.id}",
        versions={} if started is None else started.versions,
        case_hashes={key: planned[at] for at, key in keys if at in planned},
        is_of_second_agent=is_of_second_agent(run),
    )


def side_of_report(report: TestReport, name: str) -> ComparedRun:
    """Return a JSON report, perhaps of several runs, as a side of a comparison."""
    return ComparedRun(report, name, versions={"holodeck": report.holodeck_version})


def _side_of_file(path: Path) -> ComparedRun:
    report = read_report(path)
    if isinstance(report, Baseline):
        return _side_of_baseline(report, display_path(path))
    return side_of_report(report, display_path(path))


def _committed_baseline(agent_folder: Path) -> Baseline:
    """Return the baseline that is committed on the branch main. Raises ConfigError."""
    try:
        shown = subprocess.run(
            ["git", "show", f"{MAIN}:./{BASELINE_FILE}"],
            cwd=agent_folder,
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(MAIN, f"git cannot be run: {error}") from error
    if shown.returncode:
        reason = one_line(shown.stderr.removeprefix("fatal: "), 200)
        raise ConfigError(MAIN, f"git finds no {BASELINE_FILE} on the branch main: {reason}")
    try:
        return Baseline.model_validate_json(shown.stdout)
    except ValidationError as error:
        raise ConfigError(MAIN, f"{BASELINE_FILE} on main is not a baseline of holodeck") from error


def _side_of_baseline(baseline: Baseline, name: str) -> ComparedRun:
    results = [case.to_result(baseline.timestamp) for case in baseline.cases]
    return ComparedRun(
        report=TestReport(
            agent_name=baseline.agent_name,
            agent_config_path=name,
            results=results,
            summary=summarize(results, 0),
            timestamp=baseline.timestamp,
            holodeck_version=baseline.versions.get("holodeck", ""),
            origin=RunOrigin(run=baseline.run, commit=baseline.commit, hashes=baseline.hashes),
        ),
        source=name,
        versions=baseline.versions,
        history={tuple(case.key): (case.passed, case.ran) for case in baseline.cases},
        checks={tuple(case.key): case.checks for case in baseline.cases if case.checks is not None},
        case_hashes={
            tuple(case.key): case.hash for case in baseline.cases if case.hash is not None
        },
    )


def side_to_bless(name: str, store: RunStore) -> ComparedRun:
    """Return the run that is to become the baseline. Raises ConfigError if it cannot."""
    if is_report(name):
        return _side_of_file(Path(name))
    run = store.read(name)
    if run.started is None:
        raise ConfigError(run.id, "the first line of its record is damaged")
    if is_of_second_agent(run):
        raise ConfigError(run.id, "is that of a second agent; bless a run of the first one")
    return side_of_run(run)


def baseline_of(side: ComparedRun, store: RunStore) -> Baseline:
    """Return the baseline that a run makes.

    Raises ConfigError for a run that is not whole: cases without a verdict would never be compared.
    """
    report, name = side.report, side.run or side.source
    if side.history is not None:
        raise ConfigError(name, "is a baseline already; name a run")
    if side.is_of_several_agents:
        raise ConfigError(name, "is about several agents; bless the runs of each of them")
    if report.interrupted or report.stopped is not None or not report.ran:
        why = report.stopped or ("it was interrupted" if report.interrupted else "no test ran")
        raise ConfigError(name, f"cannot be the baseline: {why}; finish it with --resume")
    keys = case_keys(report.results)
    history = _verdicts_before(side, store, keys)
    return Baseline(
        run=", ".join(side.ids) or side.source,
        agent_name=report.agent_name,
        timestamp=report.timestamp,
        commit=side.commit,
        versions=dict(side.versions),
        hashes=side.hashes,
        cases=[
            _baseline_case(result, key, history[key], side.case_hashes.get(key))
            for result, key in zip(report.results, keys, strict=True)
        ],
    )


def _baseline_case(
    result: TestResult, key: CaseKey, history: tuple[int, int], digest: str | None
) -> BaselineCase:
    tokens, latency = mean_tokens(result), mean_latency_ms(result)
    return BaselineCase(
        name=result.written_name,
        id=result.test_id,
        suite=result.suite,
        key=list(key),
        outcome=result.outcome,
        scores={
            name: round(score, 4)
            for name, score in mean_scores(result).items()
            if score is not None
        },
        tokens=None if tokens is None else round(tokens),
        latency_ms=None if latency is None else round(latency),
        passed=history[0],
        ran=history[1],
        checks=checks_of(result),
        hash=digest,
    )


def _verdicts_before(
    side: ComparedRun, store: RunStore, keys: Sequence[CaseKey]
) -> dict[CaseKey, tuple[int, int]]:
    """Return how often each case passed in this run and the runs before it that ran the same."""
    # By the time of the result: the record of a resumed run has those of the earlier run, too.
    verdicts: dict[CaseKey, dict[str, bool]] = {key: {} for key in keys}
    first = min(side.ids, default="")
    before = [run_id for run_id in store.ids() if run_id < first][: MOST_HISTORY - 1]
    earlier = []
    for run_id in before:
        with suppress(ConfigError):  # a run that cannot be read is not part of the history
            run = store.read(run_id)
            if run.started is not None and run.started.hashes == side.hashes:
                earlier.append(report_of(run).results)
    for results in (side.report.results, *earlier):
        for key, result in zip(case_keys(results), results, strict=True):
            if key in verdicts and result.outcome in DECIDED:
                verdicts[key][result.timestamp] = result.outcome is Outcome.PASSED
    return {key: (sum(passed.values()), len(passed)) for key, passed in verdicts.items()}


def are_of_two_agents(base: ComparedRun, head: ComparedRun) -> bool:
    """Whether the runs are those of different agents, which may have other names for things."""
    kinds = {(side.report.agent_name, side.is_of_second_agent) for side in (base, head)}
    return len(kinds) == 2


def compare_runs(
    base: ComparedRun, head: ComparedRun, names: Mapping[str, str] | None = None
) -> ComparisonReport:
    """Return the comparison of two runs of an agent, case by case.

    Cases that only one of them has are listed, and belong to no pair. `names` are those of an
    `agent.yaml`: what another agent calls things.
    """
    if base.is_of_several_agents != head.is_of_several_agents:
        base = of_one_agent(base, head.report.agent_name)
        head = of_one_agent(head, base.report.agent_name)
    before, after = ({key: at for at, key in enumerate(side.keys)} for side in (base, head))
    old, new = base.results, head.results
    if base.is_of_second_agent and names:
        names = {other: name for name, other in names.items()}
    pairs: list[Pair] = []
    for key in (key for key in after if key in before):
        first, second = old[key], new[key]
        places = {"first_at": before[key], "second_at": after[key]}
        pair = build_pair(len(pairs), second, first, second, names)
        pairs.append(pair.model_copy(update=places))
    removed = [result for key, result in old.items() if key not in new]
    added = [result for key, result in new.items() if key not in old]
    costs = [result.cost for result in chain(old.values(), new.values())]
    currencies = {cost.currency for cost in costs if cost is not None}
    sides = [
        ComparedAgent(
            name=side.report.agent_name, source=side.title, run=side.run, report=side.report
        )
        for side in (base, head)
    ]
    currency = currencies.pop() if len(currencies) == 1 else None
    report = build_comparison(sides[0], sides[1], pairs, currency)
    return report.model_copy(
        update={
            "is_of_runs": True,
            "changes": list(_changes(base, head)),
            "only_in_first": list(map(case_name, removed)),
            "only_in_second": list(map(case_name, added)),
            "new_failures": [
                case_name(result) for result in added if result.outcome is Outcome.FAILED
            ],
        }
    )


def case_name(result: TestResult) -> str:
    """Return what the case is called in comparisons."""
    name = result.written_name or result.test_id or result.test_input
    shown = one_line(name, _MAX_NAME) or "a case without a name"
    return shown if result.agent_name is None else f"{result.agent_name} › {shown}"


def _changes(base: ComparedRun, head: ComparedRun) -> Iterator[str]:
    """Yield what else differs, as far as both sides say it."""
    if base.report.agent_name != head.report.agent_name:
        yield f"agent: {base.report.agent_name} → {head.report.agent_name}"
    if base.hashes and head.hashes:
        for part in {**base.hashes, **head.hashes}:
            if base.hashes.get(part) != head.hashes.get(part):
                yield f"{part.replace('_', ' ')}: changed"
    elif base.hashes or head.hashes:
        yield "the configuration of one side is unknown"
    for name in {**base.versions, **head.versions}:
        first, second = base.versions.get(name), head.versions.get(name)
        if first and second and first != second:
            yield f"{name}: {first} → {second}"
