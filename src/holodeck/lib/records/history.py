"""What recorded runs know of the present cases."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from holodeck.config.cases.suite_files import DEFAULT_AGENT_FILE
from holodeck.errors import ConfigError
from holodeck.lib.records.recorder import RECORD_FILE
from holodeck.lib.records.run_store import Run, RunStore, parse_event, read_run
from holodeck.lib.selection.request import CaseHistory
from holodeck.models.records.record import PlannedCase, RunHead
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_result import TestResult

logger = logging.getLogger(__name__)

Key = tuple[str, ...]
ResultId = tuple[str, int]
"""The time of a result, and its number among the results of the case at that time."""


@dataclass(frozen=True)
class _RecordedResult:
    result: TestResult
    in_shard: bool
    run: Path


@dataclass(frozen=True)
class HistoryQuery:
    """The cases whose history is wanted."""

    agent_name: str
    agent_config_path: str
    planned: Sequence[PlannedCase]
    currency: str | None = None
    """Costs in another currency are unknown."""
    whole_runs: bool = False
    """Whether only results of runs without `--shard` count. Otherwise shards that ran since would
    displace the results that decide which case belongs to which shard."""


def case_history(run_store: RunStore, query: HistoryQuery, limit: int) -> list[CaseHistory]:
    """Return the history of each planned case, from at most `limit` of its latest results.

    Only runs of the same agent in the same file count. Cases of two runs are the same if their id,
    else their suite and name, else their whole content is the same.
    """
    recorded: dict[Key, dict[ResultId, _RecordedResult]] = {case.key: {} for case in query.planned}
    for run in run_store.ids():
        counts = {
            key: sum(not (query.whole_runs and row.in_shard) for row in results.values())
            for key, results in recorded.items()
        }
        missing = {key for key, count in counts.items() if count < limit}
        if not missing:
            break
        path = run_store.folder / run / RECORD_FILE
        started = _read_start(path, query)
        if started is None:
            continue
        if query.whole_runs and _is_shard(started):  # only needed for the latest outcome of a case
            missing = {key for key in missing if not recorded[key]}
        is_wanted = any(case.key in missing for case in started.cases)
        read = _read(path) if is_wanted else None
        for key, result_id, result in () if read is None else _results_of(read):
            if key in missing:
                row = _RecordedResult(result, _is_shard(started), path)
                recorded[key].setdefault(result_id, row)
    return [_summarize(list(recorded[case.key].values()), query.currency) for case in query.planned]


def _read_start(path: Path, query: HistoryQuery) -> RunHead | None:
    """Read the first line of a record; return None unless it is a run of the wanted agent."""
    try:
        with path.open("rb") as file:
            head = parse_event(file.readline())
    except OSError:  # it was removed in the meantime
        return None
    if isinstance(head, int):
        logger.warning("%s was written by a later version; it is ignored", path)
    if not isinstance(head, RunHead) or head.agent_name != query.agent_name:
        return None
    if head.compared_with is not None and head.compared_with.is_second:
        return None  # of another agent, whatever its name
    names = {agent_file_name(head.agent_config_path), agent_file_name(query.agent_config_path)}
    return head if len(names) == 1 else None


def agent_file_name(path: str) -> str:
    """Return the name of the file; a folder means the agent.yaml in it."""
    written = Path(path)
    return written.name if written.suffix in {".yaml", ".yml"} else DEFAULT_AGENT_FILE


def _is_shard(started: RunHead) -> bool:
    return started.selection is not None and started.selection.shard is not None


def _read(path: Path) -> Run | None:
    """Read a record; if it cannot be read, it is left out with a warning."""
    try:
        return read_run(path)
    except ConfigError as error:
        logger.warning("a run is ignored in the history of the cases: %s", error)
        return None


def _results_of(run: Run) -> Iterator[tuple[Key, ResultId, TestResult]]:
    """Yield the key and the result of each finished case, with what identifies the result.

    The record of a resumed run contains the results of the earlier run, with the same identity.
    """
    cases = run.started.cases if run.started else []
    numbers = Counter[tuple[Key, str]]()
    for index, finished in run.finished.items():
        if index < len(cases):
            key, time = cases[index].key, finished.result.timestamp
            numbers[key, time] += 1
            yield key, (time, numbers[key, time]), finished.result


def _summarize(found: Sequence[_RecordedResult], currency: str | None) -> CaseHistory:
    if not found:
        return CaseHistory()
    results = [row.result for row in found]
    judges = [result.judge_costs for result in results]
    return CaseHistory(
        passed=all(row.result.passed for row in found if row.run == found[0].run),
        duration_ms=_median(result.execution_time_ms for result in results),
        whole_run_ms=_median(row.result.execution_time_ms for row in found if not row.in_shard),
        # An agent that does not report its tokens has none, as no response needs none.
        agent_tokens=_median(
            sum(run.token_usage.total_tokens for run in result.single_runs if run.token_usage)
            or None
            for result in results
        ),
        judge_calls=_median(sum(cost.calls for cost in costs) for costs in judges),
        judge_tokens=_median(map(_tokens, judges)),
        simulator_tokens=_median(_tokens(result.simulator_costs) for result in results),
        cost=_median(
            None if cost is None or cost.currency != currency else cost.total
            for cost in (result.cost for result in results)
        ),
    )


def _tokens(costs: Sequence[ModelCost]) -> int:
    return sum(cost.tokens.total_tokens for cost in costs)


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
