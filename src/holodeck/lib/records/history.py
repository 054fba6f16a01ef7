"""What the recorded runs tell of the present cases."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from holodeck.config.suite_files import DEFAULT_AGENT_FILE
from holodeck.errors import ConfigError
from holodeck.lib.records.recorder import RECORD_FILE
from holodeck.lib.records.run_store import Run, RunStore, parse_event, read_run
from holodeck.lib.selection.request import CaseHistory
from holodeck.models.record import Event, PlannedCase, RunStarted
from holodeck.models.test_result import TestResult

logger = logging.getLogger(__name__)

Key = tuple[str, ...]
Moment = tuple[str, int]
"""When a result came, and which of those at that time it is: twins have the same key."""


@dataclass(frozen=True)
class _Seen:
    result: TestResult
    in_shard: bool
    run: Path


@dataclass(frozen=True)
class HistoryQuery:
    """Whose past is asked for."""

    agent_name: str
    agent_config_path: str
    planned: Sequence[PlannedCase]
    currency: str | None = None
    """Costs in another one are unknown."""
    whole_runs: bool = False
    """Whether only results of runs that were no shard are counted: shards that ran since then must
    not push out the ones that shards are dealt out by."""


def case_history(run_store: RunStore, wanted: HistoryQuery, most: int) -> list[CaseHistory]:
    """What is known of each planned case from its latest results, `most` of them.

    Only runs of the same agent in the same file count. A case is the same one from run to run by
    its id, else by suite and name, else by everything that stands in it.
    """
    seen: dict[Key, dict[Moment, _Seen]] = {one.key: {} for one in wanted.planned}
    for run in run_store.ids():
        lacking = {key for key, found in seen.items() if _counted(found, wanted) < most}
        if not lacking:
            break
        path = run_store.folder / run / RECORD_FILE
        started = _read_start(path, wanted)
        if started is None:
            continue
        if wanted.whole_runs and _is_shard(started):  # all it could add is how a case ended last
            lacking = {key for key in lacking if not seen[key]}
        if any(one.key in lacking for one in started.cases):
            _learn(path, seen, lacking)
    return [_summarize(list(seen[one.key].values()), wanted.currency) for one in wanted.planned]


def _counted(found: dict[Moment, _Seen], wanted: HistoryQuery) -> int:
    return sum(not (wanted.whole_runs and one.in_shard) for one in found.values())


def _read_start(path: Path, wanted: HistoryQuery) -> RunStarted | None:
    """How a run of the wanted agent began; None for any other. Only its first line is read."""
    head = _head(path)
    if isinstance(head, int):
        logger.warning("%s was written by a later version; what it knows is left out", path)
    if not isinstance(head, RunStarted) or head.agent_name != wanted.agent_name:
        return None
    is_same = _file_name(head.agent_config_path) == _file_name(wanted.agent_config_path)
    return head if is_same else None


def _head(path: Path) -> Event | str | int:
    """The first line, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            return parse_event(file.readline())
    except OSError as error:  # removed meanwhile, say
        return str(error)


def _file_name(path: str) -> str:
    """The file that was meant, a folder meaning the agent.yaml in it."""
    written = Path(path)
    return written.name if written.suffix in {".yaml", ".yml"} else DEFAULT_AGENT_FILE


def _learn(path: Path, seen: dict[Key, dict[Moment, _Seen]], lacking: set[Key]) -> None:
    try:
        run = read_run(path)
    except ConfigError as error:
        logger.warning("a run is left out of what is known of the cases: %s", error)
        return
    in_shard = run.started is not None and _is_shard(run.started)
    twins = Counter[tuple[Key, str]]()
    for key, result in _case_results(run):
        moment = result.timestamp, twins[key, result.timestamp]
        twins[key, result.timestamp] += 1
        if key in lacking:  # a resumed run holds results of the run before it once more
            seen[key].setdefault(moment, _Seen(result, in_shard, path))


def _is_shard(started: RunStarted) -> bool:
    return started.selection is not None and started.selection.shard is not None


def _case_results(run: Run) -> Iterator[tuple[Key, TestResult]]:
    """Every result; cases that were skipped have none."""
    cases = run.started.cases if run.started else []
    for index, one in run.finished.items():
        if index < len(cases):
            yield cases[index].key, one.result


def _summarize(seen: Sequence[_Seen], currency: str | None) -> CaseHistory:
    if not seen:
        return CaseHistory()
    results = [one.result for one in seen]
    return CaseHistory(
        passed=all(one.result.passed for one in seen if one.run == seen[0].run),
        duration_ms=_median(one.execution_time_ms for one in results),
        whole_run_ms=_median(one.result.execution_time_ms for one in seen if not one.in_shard),
        agent_tokens=_median(map(_agent_tokens, results)),
        judge_calls=_median(map(_judge_calls, results)),
        judge_tokens=_median(map(_judge_tokens, results)),
        simulator_tokens=_median(map(_simulator_tokens, results)),
        cost=_median(_cost(one, currency) for one in results),
    )


def _median(values: Iterable[float | None]) -> float | None:
    """The median of what is known; None if nothing is."""
    known = [one for one in values if one is not None]
    return median(known) if known else None


def _agent_tokens(result: TestResult) -> int | None:
    """None for an agent that does not tell: no model answers without any."""
    spent = [one.token_usage.total_tokens for one in result.single_runs if one.token_usage]
    return sum(spent) or None


def _judge_calls(result: TestResult) -> int:
    runs = result.single_runs
    of_criteria = sum(run.judge_cost.calls for run in runs if run.judge_cost)
    return of_criteria + sum(row.judge_calls for run in runs for row in run.rows)


def _judge_tokens(result: TestResult) -> int:
    runs = result.single_runs
    of_criteria = sum(run.judge_cost.tokens.total_tokens for run in runs if run.judge_cost)
    rows = [row for run in runs for row in run.rows]
    return of_criteria + sum(row.judge_tokens.total_tokens for row in rows if row.judge_tokens)


def _simulator_tokens(result: TestResult) -> int:
    costs = [run.simulator_cost for run in result.single_runs]
    return sum(one.tokens.total_tokens for one in costs if one is not None)


def _cost(result: TestResult, currency: str | None) -> float | None:
    cost = result.cost
    return None if cost is None or cost.currency != currency else cost.total
