"""Compare a run with an earlier one: reads both, pairs their cases, and says what else changed."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ConfigError
from holodeck.lib.records.run_store import Run, RunStore, is_of_second_agent
from holodeck.lib.reports.summary import summarize
from holodeck.lib.test_runner.pairs import (
    build_comparison,
    build_pair,
    mean_latency_ms,
    mean_scores,
    mean_tokens,
)
from holodeck.lib.test_runner.recorded import report_of
from holodeck.lib.text import one_line
from holodeck.models.baseline import Baseline, BaselineCase, CaseKey, case_keys
from holodeck.models.comparison import ComparedAgent, ComparisonReport
from holodeck.models.outcome import DECIDED, Outcome
from holodeck.models.test_result import MetricResult, TestReport, TestResult
from holodeck.models.token_usage import TokenUsage

BASELINE = "baseline"
MAIN = "main"
BASELINE_FILE = "baseline.json"
MOST_HISTORY = 10
"""Recorded runs whose verdicts a baseline counts."""
_MAX_NAME = 80
_GIT_SECONDS = 30


@dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison."""

    report: TestReport
    source: str
    """What the user wrote, or the id of the run."""
    run: str | None = None
    commit: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Part of the configuration → its hash; empty if unknown."""
    versions: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[CaseKey, tuple[int, int]] | None = None
    """Of a baseline: case, in the order of the results → how often it passed, and in how many
    recorded runs."""

    @property
    def keys(self) -> list[CaseKey]:
        """What identifies each result in other runs."""
        return case_keys(self.report.results) if self.history is None else [*self.history]


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
        return read_baseline(agent_folder / BASELINE_FILE)
    if name == MAIN:
        return _side_of_baseline(_committed_baseline(agent_folder), f"{BASELINE_FILE} on main")
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        return _side_of_file(path)
    return side_of_run(store.read(name))


def side_of_run(run: Run) -> ComparedRun:
    """Return a recorded run as one side of a comparison."""
    started = run.started
    return ComparedRun(
        report=report_of(run),
        source=f"run {run.id}",
        run=run.id,
        commit=None if started is None else started.commit,
        hashes={} if started is None else started.hashes,
        versions={} if started is None else started.versions,
    )


def read_baseline(path: Path) -> ComparedRun:
    """Return the baseline in a file. Raises FileNotFoundError or ConfigError."""
    if not path.is_file():
        raise errors.FileNotFoundError(
            str(path), "there is no baseline; `holodeck bless` makes the last run the baseline"
        )
    return _side_of_file(path)


def _side_of_file(path: Path) -> ComparedRun:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error
    return _side_of_text(text, str(path))


def _side_of_text(text: str, name: str) -> ComparedRun:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, "is not JSON") from error
    try:
        if isinstance(data, dict) and data.get("kind") == "holodeck-baseline":
            return _side_of_baseline(Baseline.model_validate(data), name)
        report = TestReport.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise ConfigError(
            name, f"is neither a baseline nor a JSON report of holodeck: {location}: {first['msg']}"
        ) from error
    versions = {"holodeck": report.holodeck_version}
    return ComparedRun(report, name, versions=versions)


def _committed_baseline(agent_folder: Path) -> Baseline:
    """Return the baseline that is committed on the branch main. Raises ConfigError."""
    try:
        shown = subprocess.run(
            ["git", "show", f"{MAIN}:./{BASELINE_FILE}"],
            cwd=agent_folder,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
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
    results = [_result_of(one, baseline.timestamp) for one in baseline.cases]
    return ComparedRun(
        report=TestReport(
            agent_name=baseline.agent_name,
            agent_config_path=name,
            results=results,
            summary=summarize(results, 0),
            timestamp=baseline.timestamp,
            holodeck_version=baseline.versions.get("holodeck", ""),
        ),
        source=name,
        run=baseline.run,
        commit=baseline.commit,
        hashes=baseline.hashes,
        versions=baseline.versions,
        history={tuple(one.key): (one.passed, one.ran) for one in baseline.cases},
    )


def _result_of(case: BaselineCase, timestamp: str) -> TestResult:
    """Return what a baseline knows of a case, as a result; nothing is known of its calls."""
    is_skipped = case.outcome is Outcome.SKIPPED
    return TestResult(
        test_name=case.name,
        test_id=case.id,
        suite=case.suite,
        test_input="",
        passed=case.outcome.is_pass,
        outcome=case.outcome,
        skip_reason="skipped" if is_skipped else None,
        skipped_by="skip" if is_skipped else None,
        execution_time_ms=case.latency_ms or 0,
        agent_time_ms=case.latency_ms,
        timestamp=timestamp,
        token_usage=None if case.tokens is None else TokenUsage(total_tokens=case.tokens),
        metric_results=[
            MetricResult(metric_name=name, score=score) for name, score in case.scores.items()
        ],
    )


def baseline_of(run: Run, store: RunStore) -> Baseline:
    """Return the baseline that a recorded run makes.

    Raises ConfigError for a run that is not whole: cases without a verdict would never be compared.
    """
    side, started = side_of_run(run), run.started
    if started is None:
        raise ConfigError(run.id, "the first line of its record is damaged")
    if is_of_second_agent(run):
        raise ConfigError(run.id, "is that of a second agent; bless a run of the first one")
    report = side.report
    if report.interrupted or report.stopped is not None or not report.ran:
        why = report.stopped or ("it was interrupted" if report.interrupted else "no test ran")
        raise ConfigError(run.id, f"cannot be the baseline: {why}; finish it with --resume")
    keys = case_keys(report.results)
    history = _verdicts_before(run, store, keys)
    return Baseline(
        run=run.id,
        agent_name=report.agent_name,
        timestamp=report.timestamp,
        commit=side.commit,
        versions=dict(side.versions),
        hashes=dict(side.hashes),
        cases=[
            _baseline_case(result, key, history[key])
            for result, key in zip(report.results, keys, strict=True)
        ],
    )


def _baseline_case(result: TestResult, key: CaseKey, history: tuple[int, int]) -> BaselineCase:
    tokens, latency = mean_tokens(result), mean_latency_ms(result)
    return BaselineCase(
        name=result.test_name,
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
    )


def _verdicts_before(
    run: Run, store: RunStore, keys: Sequence[CaseKey]
) -> dict[CaseKey, tuple[int, int]]:
    """Return how often each case passed in this run and the runs before it that ran the same."""
    # By the time of the result: the record of a resumed run has those of the earlier one, too.
    verdicts: dict[CaseKey, dict[str, bool]] = {key: {} for key in keys}
    hashes = None if run.started is None else run.started.hashes
    before = [one for one in store.ids() if one < run.id][: MOST_HISTORY - 1]
    for earlier in [run, *_readable(before, store)]:
        if earlier.started is None or earlier.started.hashes != hashes:
            continue
        results = report_of(earlier).results
        for key, result in zip(case_keys(results), results, strict=True):
            if key in verdicts and result.outcome in DECIDED:
                verdicts[key][result.timestamp] = result.outcome is Outcome.PASSED
    return {key: (sum(passed.values()), len(passed)) for key, passed in verdicts.items()}


def _readable(ids: Sequence[str], store: RunStore) -> Iterator[Run]:
    """Yield the recorded runs; one that cannot be read is not part of a history."""
    for one in ids:
        with suppress(ConfigError):
            yield store.read(one)


def compare_runs(base: ComparedRun, head: ComparedRun) -> ComparisonReport:
    """Return the comparison of two runs of an agent, case by case.

    Cases that only one of them has are listed, and belong to no pair.
    """
    before, after = (
        dict(zip(side.keys, side.report.results, strict=True)) for side in (base, head)
    )
    common = [key for key in after if key in before]
    pairs = [build_pair(at, after[key], before[key], after[key]) for at, key in enumerate(common)]
    sides = [
        ComparedAgent(
            name=side.report.agent_name, source=_source(side), run=side.run, report=side.report
        )
        for side in (base, head)
    ]
    report = build_comparison(sides[0], sides[1], pairs, _currency(base, head))
    return report.model_copy(
        update={
            "is_of_runs": True,
            "changes": list(_changes(base, head)),
            "only_in_first": [case_name(one) for key, one in before.items() if key not in after],
            "only_in_second": [case_name(one) for key, one in after.items() if key not in before],
            "new_failures": [
                case_name(one)
                for key, one in after.items()
                if key not in before and one.outcome is Outcome.FAILED
            ],
        }
    )


def _source(side: ComparedRun) -> str:
    run = "" if side.run is None or side.run in side.source else f", run {side.run}"
    return side.source + run + (f", commit {side.commit[:12]}" if side.commit else "")


def case_name(result: TestResult) -> str:
    """Return what the case is called in comparisons."""
    name = result.test_name or result.test_id or result.test_input
    return one_line(name, _MAX_NAME) or "a case without a name"


def _currency(base: ComparedRun, head: ComparedRun) -> str | None:
    found = {
        one.cost.currency
        for side in (base, head)
        for one in side.report.results
        if one.cost is not None
    }
    return found.pop() if len(found) == 1 else None


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
