"""The first screen of a report in Markdown: the verdict, the figures, what failed and why."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from holodeck.lib.reports.case_section import STATUS, anchor, display_name
from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.failure_groups import (
    NOT_PASSED,
    FailureGroup,
    distinct_reasons,
    failed_part,
    group_failures,
)
from holodeck.lib.reports.locations import SourceLinks
from holodeck.lib.reports.markdown import code, inline
from holodeck.lib.reports.summary import unknown_usage_note
from holodeck.lib.text import percent, plural
from holodeck.models.result_sequence import positions_of, results_at
from holodeck.models.test_result import Outcome, TestReport, TestResult
from holodeck.models.token_usage import TokenUsage

_SIZES = ((300, 10, 3), (150, 5, 2), (60, 3, 1))
"""Characters of a text, causes, and cases of a cause: the first that fit."""
_MAX_CHARACTERS = 20_000
_MAX_NOTES = 20
_MAX_ESTIMATES = 5
_COUNTS = (
    (Outcome.FAILED, "failed", "failed"),
    (Outcome.AGENT_ERROR, "agent error", "agent errors"),
    (Outcome.METRIC_ERROR, "metric error", "metric errors"),
    (Outcome.UNCHECKED, "unchecked", "unchecked"),
    (Outcome.FLAKY, "flaky", "flaky"),
    (Outcome.SKIPPED, "skipped", "skipped"),
)


def most_telling_first(report: TestReport) -> list[FailureGroup]:
    """Return the groups of failures: failed before errors, those of many cases first."""
    return sorted(
        group_failures(report.results),
        key=lambda one: (NOT_PASSED.index(one.outcome), -len(one.numbers)),
    )


def overview(
    report: TestReport,
    groups: Sequence[FailureGroup],
    links: SourceLinks,
    sections: Collection[int] = (),
    omitted: str = "",
) -> list[str]:
    """Return the first screen; it is never long, whatever the report contains.

    Args:
        report: The results.
        groups: Its failures.
        links: Where the lines of YAML can be read.
        sections: The numbers of the tests that have a section to link to.
        omitted: What the document leaves out.
    """
    everything = range(len(report.results) + 1)
    link = partial(links.link, report)
    size = _SIZES[-1]
    for size in _SIZES:  # the longest variant decides
        failures = _failures(groups, link, everything, size)
        lines = (*_head(report, size[0]), *failures, *_flaky(report, links, size))
        if sum(map(len, lines)) <= _MAX_CHARACTERS:
            break
    note = [omitted, ""] if omitted else []
    failures = _failures(groups, link, sections, size)
    return [*_head(report, size[0]), *note, *failures, *_flaky(report, links, size)]


def _head(report: TestReport, limit: int) -> Iterator[str]:
    yield from (f"# Test Report: {inline(report.agent_name)}", "")
    yield from (f"{'✅' if report.passed else '❌'} {_verdict(report)}", "")
    if report.interrupted:
        planned = report.planned_tests
        of = "" if planned is None else f" of {planned}"
        tests = plural(report.ran if planned is None else planned, "test")
        ran = f"{report.ran}{of} {tests.split()[1]}"
        yield from (f"**Interrupted: {ran} ran.**", "")
    if report.stopped is not None:
        yield from (f"**Stopped: {inline(report.stopped, limit)}**", "")
    if report.selection is not None:
        yield from (f"**Selected: {inline(str(report.selection), limit)}**", "")
    for note in report.notes[:_MAX_NOTES]:
        title, *details = [line for line in note.split("\n") if line.split()][:_MAX_NOTES] or [""]
        yield from (f"**{'' if details else 'Note: '}{inline(title, limit)}**", "")
        yield from (f"- {inline(one, limit)}" for one in details)
        yield from [""] if details else []
    if len(report.notes) > _MAX_NOTES:
        yield from (f"*… and {plural(len(report.notes) - _MAX_NOTES, 'more note')}.*", "")
    yield from (*_figures(report, limit), "")


def _verdict(report: TestReport) -> str:
    summary = report.summary
    counts = [
        f"{count:,} {one if count == 1 else several}"
        for kind, one, several in _COUNTS
        if (count := summary.outcomes.get(kind, 0))
    ]
    listed = f": {', '.join(counts)}" if counts else ""
    if not report.ran:
        return f"**No test ran**{listed}"
    passed = f"{summary.passed:,} of {plural(report.ran, 'test', form=',')}"
    return f"**{passed} passed** ({percent(summary.pass_rate, 1)}){listed}"


def _figures(report: TestReport, limit: int) -> Iterator[str]:
    summary = report.summary
    total = f", {_seconds(summary.total_duration_ms)} over all tests"
    yield f"- **Time:** {_seconds(summary.wall_time_ms)}{total}"
    usage = summary.token_usage
    if usage.total_tokens:
        parts = f"{usage.prompt_tokens:,} prompt, {usage.completion_tokens:,} completion"
        yield f"- **Tokens:** {usage.total_tokens:,} ({parts}){unknown_usage_note(summary)}"
    if summary.judge_calls:
        yield f"- **Judges:** {_calls(summary.judge_calls, summary.judge_usage)}"
    if summary.simulator_calls:
        yield f"- **Simulated users:** {_calls(summary.simulator_calls, summary.simulator_usage)}"
    if summary.cost is not None:
        yield f"- **Cost:** {inline(describe_cost(summary.cost), limit)}"
    for title, estimates in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if estimates:
            yield f"- **{title}:** {_estimates(estimates)}"
    run = None if report.origin is None else report.origin.run
    facts = [
        "" if run is None else code(run),
        code(report.agent_config_path, limit),
        inline(report.timestamp),
        f"HoloDeck {inline(report.holodeck_version)}",
        *(inline(f"{name}: {value}", limit) for name, value in report.environment.items()),
        *(inline(str(one), limit) for one in report.prompts[:_MAX_NOTES]),
    ]
    yield f"- **Run:** {' · '.join(filter(None, facts))}"


def _estimates(estimates: dict[int, float]) -> str:
    """Return the first few estimates and the last."""
    ks = sorted(estimates)
    shown = [*ks[:_MAX_ESTIMATES], *ks[_MAX_ESTIMATES:][-1:]]
    return ", ".join(f"k={k}: {100 * estimates[k]:.1f} %" for k in shown)


def _calls(calls: int, usage: TokenUsage) -> str:
    return f"{plural(calls, 'call')}, {plural(usage.total_tokens, 'token', form=',')}"


def _seconds(elapsed_ms: int) -> str:
    return f"{elapsed_ms} ms" if elapsed_ms < 1000 else f"{elapsed_ms / 1000:,.1f} s"


def _failures(
    groups: Sequence[FailureGroup],
    link: Callable[[TestResult], str],
    sections: Collection[int],
    size: tuple[int, int, int],
) -> Iterator[str]:
    """Yield each cause with its cases, and with the reason and the answer once."""
    limit, most_causes, most_cases = size
    if not groups:
        return
    count = sum(len(one.numbers) for one in groups)
    by = f" for {len(groups)} Reasons" if 1 < len(groups) < count else ""
    yield from (f"## Not Passed: {plural(count, 'Test')}{by}", "")
    for group in groups[:most_causes]:
        first = group.first
        known = distinct_reasons(first)
        reasons = [inline(str(one), limit) for one in known] or ["no reason is known"]
        more = f" *(and {plural(len(reasons) - 1, 'more reason')})*" if reasons[1:] else ""
        times = f"**{len(group.numbers)} ×** " if group.numbers[1:] else ""
        yield f"- {STATUS[group.outcome].split()[0]} {times}{reasons[0]}{more}"
        yield f"  - {', '.join(_cases(group, link, sections, most_cases))}"
        yield from _answer(first, " ".join(map(str, known)), limit)
    hidden = groups[most_causes:]
    if hidden:
        tests = plural(sum(len(one.numbers) for one in hidden), "test")
        yield f"- … and {plural(len(hidden), 'more reason')} ({tests})"
    yield ""


def _cases(
    group: FailureGroup, link: Callable[[TestResult], str], sections: Collection[int], most: int
) -> Iterator[str]:
    for number, result in zip(group.numbers[:most], group.results[:most], strict=True):
        name = display_name(result)
        place = link(result)
        linked = f"[{name}](#{anchor(number)})" if number in sections else name
        yield f"{linked} ({place})" if place else linked
    if group.numbers[most:]:
        yield f"and {len(group.numbers) - most} more"


def _answer(result: TestResult, quoted: str, limit: int) -> Iterator[str]:
    """Yield what was expected and answered, unless that is quoted; errors have no answer."""
    if result.outcome is not Outcome.FAILED:
        return
    part = failed_part(result)
    for title, text in (("Expected", part.ground_truth), ("Answer", part.agent_response)):
        if text is not None and repr(text) not in quoted:
            yield f"  - {title}: {inline(text, limit) or '*(empty)*'}"


def _flaky(report: TestReport, links: SourceLinks, size: tuple[int, int, int]) -> Iterator[str]:
    """Yield the tests that passed, but not each time."""
    limit, most, _ = size
    flaky = results_at(report.results, positions_of(report.results, {Outcome.FLAKY}))
    if not flaky:
        return
    yield from (f"## Flaky: {plural(len(flaky), 'Test')}", "")
    for one in flaky[:most]:
        place = links.link(report, one)
        at = f" ({place})" if place else ""
        why = "".join(f": {inline(reason, limit)}" for reason in one.reasons()[:1])
        yield f"- {STATUS[one.outcome].split()[0]} {display_name(one)}{at}{why}"
    if flaky[most:]:
        yield f"- … and {plural(len(flaky[most:]), 'more test')}"
    yield ""
