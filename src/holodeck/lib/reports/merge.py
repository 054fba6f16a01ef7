"""Join the reports of several runs: of the shards of a run, and of several agents."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holodeck.errors import INTERRUPTED, ConfigError, ExitCode, worst_exit_code
from holodeck.lib.reports.locations import split_location
from holodeck.lib.reports.summary import exit_code, summarize
from holodeck.lib.support.text import one_line, plural, shorten_list
from holodeck.models.records.record import case_keys
from holodeck.models.results.origin import MergedRun, RunOrigin, Selection
from holodeck.models.test_result import TestReport, TestResult

_MAX_NAME = 80
_MAX_LISTED = 5
_DIGITS = re.compile(r"(\d+)")
_SHARD_OPTION = re.compile(r"(?:^| )--shard \S+")

AgentKey = tuple[str, str]
"""The name of an agent, and the normalized path of its file."""


@dataclass(frozen=True)
class NamedReport:
    """A report, and what the user calls it."""

    name: str
    """An id, or the path of a file."""
    report: TestReport


@dataclass(frozen=True)
class _Part:
    """The runs of an agent in a report, and their results."""

    source: str
    runs: Sequence[MergedRun]
    results: Sequence[TestResult]


def merge_reports(sources: Sequence[NamedReport]) -> TestReport:
    """Return a report about all runs, each of which may be about some cases of an agent.

    A report without all shards, or with a run that ended early, says so in `stopped` or
    `interrupted`, and never passes. Reports that were merged before can be merged again.

    Raises:
        ConfigError: Runs of the same agent had different configurations, or the same cases.
    """
    agents: dict[AgentKey, list[_Part]] = {}
    for source in sources:
        for key, part in _split(source):
            agents.setdefault(key, []).append(part)
    problems = [line for parts in agents.values() for line in _conflicts(parts)]
    if problems:
        raise ConfigError("--merge", "\n  ".join(["these runs are not parts of one:", *problems]))
    labels = _labels(agents)
    merged: list[MergedRun] = []
    results: list[TestResult] = []
    for key, parts in agents.items():
        runs = sorted(
            (run for part in parts for run in part.runs),
            key=lambda run: 0 if run.shard is None else int(run.shard.partition("/")[0]),
        )
        merged += [run.model_copy(update={"label": labels[key]}) for run in runs]
        agent_name = labels[key] if len(agents) > 1 else None
        results += [
            result.model_copy(update={"agent_name": agent_name})
            for result in _in_order_of_file([row for part in parts for row in part.results])
        ]
    return _report(merged, results)


def _report(runs: Sequence[MergedRun], results: Sequence[TestResult]) -> TestReport:
    stops = [f"{run.title}: {run.stopped}" for run in runs if run.stopped is not None]
    missing = list(_missing_shards(runs))
    kinds = {run.stopped_by for run in runs if run.stopped is not None}
    planned = [run.planned_tests for run in runs if run.planned_tests is not None]
    return TestReport(
        agent_name=", ".join(dict.fromkeys(run.label for run in runs)),
        agent_config_path=", ".join(dict.fromkeys(run.agent_config_path for run in runs)),
        results=results,
        summary=summarize(results, _busy_ms(runs)),
        timestamp=max(run.timestamp for run in runs),
        holodeck_version=_joined(run.holodeck_version for run in runs),
        environment={
            name: _joined(run.environment.get(name, "") for run in runs)
            for name in dict.fromkeys(name for run in runs for name in run.environment)
        },
        interrupted=any(run.interrupted for run in runs),
        stopped="; ".join([*missing, *stops]) or None,
        stopped_by=kinds.pop() if len(kinds) == 1 and not missing else None,
        planned_tests=None if missing or len(planned) < len(runs) else sum(planned),
        selection=_selection(runs),
        notes=list(dict.fromkeys(_notes(runs))),
        prompts=list({str(prompt): prompt for run in runs for prompt in run.prompts}.values()),
        merged=list(runs),
    )


def _split(source: NamedReport) -> Iterator[tuple[AgentKey, _Part]]:
    """Yield the runs and results of each agent in a report."""
    report = source.report
    if not report.merged:
        run = _run_of(report)
        yield _agent_key(run), _Part(source.name, [run], report.results)
        return
    labels = list(dict.fromkeys(run.label for run in report.merged))
    unknown = {result.agent_name for result in report.results} - {None, *labels}
    if unknown or (len(labels) > 1 and any(result.agent_name is None for result in report.results)):
        raise ConfigError(source.name, "has results of an agent that its 'merged' does not name")
    for label in labels:
        runs = [run for run in report.merged if run.label == label]
        results = [result for result in report.results if (result.agent_name or label) == label]
        yield _agent_key(runs[0]), _Part(source.name, runs, results)


def _run_of(report: TestReport) -> MergedRun:
    origin = report.origin or RunOrigin()
    shared = MergedRun.model_fields.keys() & TestReport.model_fields.keys() - {"origin"}
    return MergedRun(
        label=report.agent_name,
        wall_time_ms=report.summary.wall_time_ms,
        origin=origin,
        exit_code=_exit_code(report, origin.exit_code),
        tests=len(report.results),
        **{name: getattr(report, name) for name in shared},
    )


def _exit_code(report: TestReport, recorded: int | None) -> ExitCode:
    """Return the exit code of a run.

    Only two facts are not in its results: that the failures are no regressions, and which signal
    ended it. A shard without a case, or an agent of which none is selected, does not count.
    """
    is_whole = not report.interrupted and report.stopped is None
    if report.selection is not None and is_whole and report.planned_tests == 0:
        return ExitCode.PASSED
    computed = exit_code(report)
    if recorded is None:
        return computed
    if computed is ExitCode.TEST_FAILED and recorded == ExitCode.PASSED:
        return ExitCode.PASSED
    return ExitCode(recorded) if recorded in INTERRUPTED else worst_exit_code([computed, recorded])


def _agent_key(run: MergedRun) -> AgentKey:
    return run.agent_name, os.path.normpath(run.agent_config_path)


def _labels(keys: Iterable[AgentKey]) -> dict[AgentKey, str]:
    """Return what the report calls each agent: its name, if two have the same with their file."""
    names = Counter(name for name, _ in keys)
    return {(name, path): name if names[name] == 1 else f"{name} ({path})" for name, path in keys}


def _conflicts(parts: Sequence[_Part]) -> Iterator[str]:
    """Yield why runs of an agent do not belong together, each on a line."""
    runs = [(part.source, run) for part in parts for run in part.runs]
    first_source, first = runs[0]
    for source, run in runs[1:]:
        differences = list(_differences(first, run))
        if differences:
            what = "; ".join(differences)
            yield f"{run.label}: {_titled(first_source, first)} and {_titled(source, run)}: {what}"
    seen: dict[str, str] = {}
    for source, run in runs:
        if run.shard is not None and run.shard in seen:
            yield f"{run.label}: shard {run.shard} is there twice: {seen[run.shard]} and {source}"
        elif run.shard is not None:
            seen[run.shard] = source
    if any(run.shard is None for _, run in runs):  # shards of a plan have no common case
        yield from _common_cases(parts)


def _differences(first: MergedRun, second: MergedRun) -> Iterator[str]:
    if first.holodeck_version != second.holodeck_version:
        yield f"holodeck {first.holodeck_version} and {second.holodeck_version}"
    commits = [run.origin.commit for run in (first, second)]
    if commits[0] != commits[1]:
        yield "commit " + " and ".join(commit[:12] if commit else "unknown" for commit in commits)
    before, after = first.origin.hashes, second.origin.hashes
    if not before or not after:
        yield "the configuration of one is unknown; use reports that `holodeck test` wrote"
    else:
        changed = [part for part in {**before, **after} if before.get(part) != after.get(part)]
        if changed:
            yield f"different {', '.join(part.replace('_', ' ') for part in changed)}"
    plans = [run.selection.plan for run in (first, second) if run.selection and run.selection.shard]
    if len(set(plans)) > 1:
        yield (
            f"shards of different plans ({' and '.join(map(str, plans))}); give all shards the "
            "same cases and the same recorded runs, or none"
        )


def _titled(source: str, run: MergedRun) -> str:
    return source if run.shard is None else f"shard {run.shard} ({source})"


def _common_cases(parts: Sequence[_Part]) -> Iterator[str]:
    seen: dict[tuple[object, ...], str] = {}
    common: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        keys = []
        for case_key, result in zip(case_keys(part.results), part.results, strict=True):
            key = (*case_key, result.location, result.test_input)
            keys.append(key)
            if key in seen:
                name = result.written_name or result.test_id or result.test_input
                common.setdefault((seen[key], part.source), []).append(one_line(name, _MAX_NAME))
        seen.update(dict.fromkeys(keys, part.source))
    for sources, names in common.items():
        cases = plural(len(names), "case")
        yield f"{' and '.join(sources)} share {cases}: {shorten_list(names, _MAX_LISTED)}"


def _missing_shards(runs: Sequence[MergedRun]) -> Iterator[str]:
    for label, parts in _by_label(runs):
        present = [run.shard for run in parts if run.shard is not None]
        if not present:
            continue
        count = int(present[0].partition("/")[2])
        missing = [f"{at}/{count}" for at in range(1, count + 1) if f"{at}/{count}" not in present]
        if missing[1:]:
            yield f"{label}: shards {shorten_list(missing, _MAX_LISTED)} are missing"
        elif missing:
            yield f"{label}: shard {missing[0]} is missing"


def _by_label(runs: Sequence[MergedRun]) -> list[tuple[str, list[MergedRun]]]:
    labels = dict.fromkeys(run.label for run in runs)
    return [(label, [run for run in runs if run.label == label]) for label in labels]


def _in_order_of_file(results: Sequence[TestResult]) -> list[TestResult]:
    """Return results in the order in which the files list their cases; those without location stay
    where they are."""
    places = [(*split_location(result.location), result.written_name or "") for result in results]
    files = {file: at for at, file in enumerate(dict.fromkeys(file for file, *_ in places))}

    def place(at: int) -> tuple[object, ...]:
        file, line, column, name = places[at]
        if line is None:
            return files[file], 0, 0, [], at
        # cases with parameters share a line
        parts = _DIGITS.split(name)  # so that `case 10` comes after `case 9`
        natural = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
        return files[file], line, column or 0, natural, at

    return [results[at] for at in sorted(range(len(places)), key=place)]


def _busy_ms(runs: Sequence[MergedRun]) -> int:
    """Return how long any of the runs was running; shards mostly run at the same time."""
    ends = [(_time(run), timedelta(milliseconds=run.wall_time_ms)) for run in runs]
    busy, last = timedelta(), datetime.min.replace(tzinfo=UTC)
    for start, end in sorted((end - elapsed, end) for end, elapsed in ends):
        busy += max(end - max(start, last), timedelta())
        last = max(last, end)
    return round(busy.total_seconds() * 1000)


def _time(run: MergedRun) -> datetime:
    try:
        time = datetime.fromisoformat(run.timestamp)
    except ValueError as error:
        raise ConfigError(
            "--merge", f"{run.title}: the timestamp {run.timestamp[:80]!r} is not a time"
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _joined(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, values)))


def _selection(runs: Sequence[MergedRun]) -> Selection | None:
    """Return what the runs selected together; None if these are all cases."""
    total = selected = 0
    how: list[str] = []
    for _, parts in _by_label(runs):
        chosen = [run.selection for run in parts if run.selection is not None]
        if len(chosen) < len(parts):  # a run of all cases
            count = sum(run.planned_tests or run.tests for run in parts)
            total, selected = total + count, selected + count
            continue
        total += max(selection.total for selection in chosen)
        selected += sum(selection.selected for selection in chosen)
        how += [_SHARD_OPTION.sub("", selection.how).strip() for selection in chosen]
    if selected >= total:
        return None
    left = total - selected
    options = _joined(how) or "the merged shards"
    return Selection(total=total, selected=selected, deselected=left, how=options)


def _notes(runs: Sequence[MergedRun]) -> Iterator[str]:
    for run in runs:
        if run.interrupted:
            yield f"Interrupted: {run.title}"
    agents = len({run.label for run in runs})
    of_agents = f" of {agents} agents" if agents > 1 else ""
    listed = "; ".join(
        f"{run.title} ({plural(run.tests, 'test')}, exit {run.exit_code})" for run in runs
    )
    yield f"Merged from {plural(len(runs), 'run')}{of_agents}: {listed}"
    facts = {
        "commits": [(run.origin.commit or "unknown")[:12] for run in runs],
        "versions of holodeck": [run.holodeck_version for run in runs],
    }
    for name, values in facts.items():
        if len(set(values)) > 1:
            pairs = zip(runs, values, strict=True)
            labelled = dict.fromkeys(f"{run.label} {value}" for run, value in pairs)
            yield f"The agents ran with different {name}: {', '.join(labelled)}"
    for run in runs:
        for note in run.notes:
            yield note if all(note in other.notes for other in runs) else f"{run.title}: {note}"
