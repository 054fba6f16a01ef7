"""What a new run takes over from an earlier run: its selection, and the results that still hold."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holodeck.errors import ConfigError
from holodeck.lib.records.fingerprint import Fingerprint, fingerprint_of
from holodeck.lib.records.run_store import Run, RunStore, is_of_second_agent
from holodeck.lib.support.text import plural, shorten_list
from holodeck.lib.ui.live import echo
from holodeck.models.agent import Agent
from holodeck.models.records.record import CaseFinished, PlannedCase
from holodeck.models.results.origin import Selection
from holodeck.models.test_result import Outcome, TestResult

OPTION = "--resume"
_UNDECIDED = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}
_MAX_NAMES = 10


@dataclass(frozen=True)
class ResumedRun:
    """An earlier run and those of its results that are still valid."""

    id: str
    results: Mapping[int, TestResult]
    """By the case's index in the present file."""


def find_runs(name: str, folder: Path, *, is_comparison: bool) -> list[Run]:
    """Return the recorded run of that name in a folder; of a comparison, both of its runs.

    `name` is then either of them, and the first agent's comes first. Raises ConfigError.
    """
    store = RunStore(folder)
    run = store.read(name)
    if not is_comparison:
        if is_of_second_agent(run):
            raise ConfigError(
                OPTION, f"run {run.id} is that of a second agent; add --against to resume both"
            )
        return [run]
    compared_with = run.started.compared_with if run.started else None
    if compared_with is None:
        raise ConfigError(
            OPTION, f"run {run.id} compared no agents; remove --against, or name another run"
        )
    other = store.read(compared_with.run)
    return [other, run] if compared_with.is_second else [run, other]


def repeat_selection(agent: Agent, run: Run) -> tuple[Agent, Selection | None]:
    """Return the agent with the cases that `run` selected; no Selection if it selected all."""
    selection = run.started.selection if run.started else None
    if run.started is None or selection is None:
        return agent, None
    present = fingerprint_of(agent).cases
    indexes = find_cases(run.started.cases, present)
    return agent.with_cases(indexes), selection.now(len(present), len(indexes))


def resume_run(
    agent: Agent,
    run: Run,
    warn: Callable[[str], None],
    *,
    version: str,
    retry_errors: bool,
    force: bool,
) -> ResumedRun:
    """Return the results to keep of a run of the agent, and print how many there are.

    Args:
        agent: The agent, as it is now.
        run: The earlier run.
        warn: Prints a warning.
        version: That of the present holodeck.
        retry_errors: Whether cases whose agent or metric failed run again.
        force: Whether the cases that have changed run again; otherwise a change is an error.

    Raises:
        ConfigError: The run goes on, or its agent has changed.
    """
    if run.is_running:
        raise ConfigError(OPTION, f"run {run.id} is still running; wait for it, or stop it")
    for warning in run.warnings:
        warn(warning)
    present = fingerprint_of(agent)
    lines = describe_changes(run, present, version)
    changed = "".join(f"\n  {line}" for line in lines)
    if changed and not force:
        raise ConfigError(
            OPTION,
            f"the configuration has changed since run {run.id}:{changed}\n"
            "add --force to rerun the affected cases and keep the other results",
        )
    if changed:
        echo(f"Changed since run {run.id}:{changed}", err=True)
    results = reusable_results(run, present, retry_errors=retry_errors)
    count = len(agent.test_cases or [])
    left = plural(count - len(results), "case runs", "cases run")
    echo(f"Resuming {run.id}: {len(results)} of {count} results are kept, {left}", err=True)
    return ResumedRun(run.id, results)


def reusable_results(
    run: Run, present: Fingerprint, *, retry_errors: bool = False
) -> dict[int, TestResult]:
    """Return the recorded results that are valid for the present cases, by the present index.

    A result is valid for a case if everything it depends on is the same, whatever the index of the
    case was. With `retry_errors`, results that are errors are not reused.
    """
    unused: dict[str, list[CaseFinished]] = {}
    for line in run.finished.values():
        if not (retry_errors and line.result.outcome in _UNDECIDED):
            unused.setdefault(line.hash, []).append(line)
    results: dict[int, TestResult] = {}
    for index, wanted in enumerate(present.hashes):
        if unused.get(wanted):
            results[index] = unused[wanted].pop(0).result
    return results


def find_cases(planned: Sequence[PlannedCase], present: Sequence[PlannedCase]) -> list[int]:
    """Return the present indexes of the planned cases, in planned order, without removed ones."""
    by_hash: dict[str, list[int]] = {}
    by_key: dict[tuple[str, ...], int] = {}
    for index, case in enumerate(present):
        by_hash.setdefault(case.hash, []).append(index)
        by_key.setdefault(case.key, index)
    indexes = [
        by_hash[planned_case.hash].pop(0)
        if by_hash.get(planned_case.hash)
        else by_key.get(planned_case.key)
        for planned_case in planned
    ]
    return list(dict.fromkeys(index for index in indexes if index is not None))


def describe_changes(run: Run, present: Fingerprint, version: str) -> list[str]:
    """Return a line for each difference between the run's configuration and the present one.

    `version` is that of the present holodeck.
    """
    if run.started is None:
        return ["the configuration of the run is unknown: the record's first line is damaged"]
    before, now = run.started.hashes, present.parts
    lines = [f"{name}: changed" for name in {**before, **now} if before.get(name) != now.get(name)]
    old, new = run.started.cases, present.cases
    counts = Counter(map(_name_and_hash, old)), Counter(map(_name_and_hash, new))
    only_old, only_new = counts[0] - counts[1], counts[1] - counts[0]
    removed = [
        _case_name(case, at) for at, case in enumerate(old) if _name_and_hash(case) in only_old
    ]
    added = [
        _case_name(case, at) for at, case in enumerate(new) if _name_and_hash(case) in only_new
    ]
    changed = [name for name in added if name in removed]
    for change, names in (
        ("changed", changed),
        ("added", [name for name in added if name not in changed]),
        ("removed", [name for name in removed if name not in changed]),
    ):
        if names:
            lines.append(f"test cases {change}: {shorten_list(names, _MAX_NAMES)}")
    recorded = run.started.versions.get("holodeck")
    if lines and recorded not in {None, version}:
        reason = "which alone can change the lines below"
        lines.insert(0, f"holodeck: changed from {recorded} to {version}, {reason}")
    return lines


def _name_and_hash(case: PlannedCase) -> tuple[str | None, str]:
    return case.name, case.hash


def _case_name(case: PlannedCase, index: int) -> str:
    return f"#{index + 1}" if case.name is None else case.name
