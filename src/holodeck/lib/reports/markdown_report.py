"""The Markdown report of a run: the verdict, the figures, what failed and why, then each test."""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from holodeck.lib.reports.case_section import STATUS, CaseSection, anchor, display_name
from holodeck.lib.reports.failures import (
    CheckGroup,
    FailureGroup,
    each_outcome_first,
    explain,
    group_by_check,
    group_failures,
    in_turns,
)
from holodeck.lib.reports.markdown import (
    BLOCK_LIMIT,
    MAX_CHARACTERS,
    MAX_NOTES,
    SourceLinks,
    code,
    folded,
    inline,
    note_lines,
    table,
)
from holodeck.lib.reports.summary import count_outcomes, count_ran, model_usage
from holodeck.lib.support.text import percent, plural
from holodeck.models.config import ReportDetail
from holodeck.models.test_result import Outcome, TestReport, TestResult

_SIZES = ((300, 10, 3), (150, 5, 2), (60, 3, 1))
"""Characters of a text, causes, and cases of a cause: the first that fit."""
_MAX_CHARACTERS = 20_000
_MAX_PLACES = 3
"""How often the cases of a cause are listed for the causes that are left out."""
_TITLES = {"expected": "Expected", "found": "Answer"}
_MAX_ESTIMATES = 5


def most_telling_first(report: TestReport) -> list[CheckGroup]:
    """Return the failures by check: failed before errors, those of many cases first."""
    return group_by_check(group_failures(report.results))


def overview(
    report: TestReport,
    groups: Sequence[CheckGroup],
    links: SourceLinks,
    sections: Collection[int] = (),
    scores: Sequence[str] = (),
    omitted: str = "",
) -> list[str]:
    """Return the first screen; it is never long, whatever the report contains.

    Args:
        report: The results.
        groups: Its failures.
        links: Where the lines of YAML can be read.
        sections: The numbers of the tests that have a section to link to.
        scores: The lines about the averages of the metrics.
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
    return [*_head(report, size[0]), *scores, *note, *failures, *_flaky(report, links, size)]


def _head(report: TestReport, limit: int) -> Iterator[str]:
    yield from (f"# Test Report: {inline(report.agent_name)}", "")
    yield from (f"{'✅' if report.passed else '❌'} {_verdict(report)}", "")
    if report.interrupted:
        yield from (f"**Interrupted: {count_ran(report)} ran.**", "")
    if report.stopped is not None:
        yield from (f"**Stopped: {inline(report.stopped, limit)}**", "")
    if report.selection is not None:
        yield from (f"**Selected: {inline(str(report.selection), limit)}**", "")
    for note in report.notes[:MAX_NOTES]:
        yield from note_lines(note if "\n" in note.strip() else f"Note: {note}", limit)
    if len(report.notes) > MAX_NOTES:
        yield from (f"*… and {plural(len(report.notes) - MAX_NOTES, 'more note')}.*", "")
    yield from (*_fields(report, limit), "")
    yield from ("## Summary", "", *table(("Metric", "Value"), _figures(report)))


def _verdict(report: TestReport) -> str:
    summary = report.summary
    counts = count_outcomes(summary.outcomes)
    counts.pop(Outcome.PASSED, None)
    listed = f": {', '.join(counts.values())}" if counts else ""
    if not report.ran:
        return f"**No test ran**{listed}"
    passed = f"{summary.passed:,} of {plural(report.ran, 'test', form=',')}"
    return f"**{passed} passed** ({percent(summary.pass_rate, 1)}){listed}"


def _fields(report: TestReport, limit: int) -> Iterator[str]:
    """Yield what was run, in the lines of HoloDeck's reports, which scripts read."""
    facts = dict(report.environment)
    system = " on ".join(facts.pop(name) for name in ("python_version", "os") if name in facts)
    environment = [system, *(f"{name}: {value}" for name, value in facts.items())]
    run = None if report.origin is None else report.origin.run
    fields = {
        "Configuration": code(report.agent_config_path, limit),
        "Generated": inline(report.timestamp),
        "HoloDeck Version": inline(report.holodeck_version),
        "Environment": " · ".join(inline(fact, limit) for fact in environment if fact),
        "Prompts": " · ".join(inline(str(prompt), limit) for prompt in report.prompts[:MAX_NOTES]),
        "Run": "" if run is None else code(run),
    }
    yield from (f"**{title}:** {value}" for title, value in fields.items() if value)


def _figures(report: TestReport) -> Iterator[tuple[str, str]]:
    summary = report.summary
    duration_ms = summary.total_duration_ms
    yield "Total Tests", str(summary.total_tests)
    yield "Passed", str(summary.passed)
    yield "Failed", str(summary.failed)
    yield "Pass Rate", f"{summary.pass_rate:.2f}%"
    yield "Total Duration", f"{duration_ms}ms ({duration_ms / 1000:.1f}s)"
    yield "Time", _seconds(summary.wall_time_ms)
    yield from ((title, inline(text)) for title, text in model_usage(summary))
    for title, estimates in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if estimates:
            ks = sorted(estimates)
            shown = [*ks[:_MAX_ESTIMATES], *ks[_MAX_ESTIMATES:][-1:]]
            yield title, ", ".join(f"k={k}: {100 * estimates[k]:.1f} %" for k in shown)


def _seconds(elapsed_ms: int) -> str:
    return f"{elapsed_ms} ms" if elapsed_ms < 1000 else f"{elapsed_ms / 1000:,.1f} s"


def _failures(
    groups: Sequence[CheckGroup],
    link: Callable[[TestResult], str],
    sections: Collection[int],
    size: tuple[int, int, int],
) -> Iterator[str]:
    """Yield each failed check with its causes and cases; every outcome has a place."""
    limit, most_causes, most_cases = size
    if not groups:
        return
    count = sum(group.count for group in groups)
    by = f" for {len(groups)} Reasons" if 1 < len(groups) < count else ""
    yield from (f"## Not Passed: {plural(count, 'Test')}{by}", "")
    in_order = in_turns(group.causes for group in each_outcome_first(groups))
    listed_causes = set(map(id, islice(in_order, most_causes)))
    cases = _Cases(link, sections, limit, most_cases)
    hidden = []
    for group in groups:
        if places := sum(id(cause) in listed_causes for cause in group.causes[:most_causes]):
            yield from _check(group, cases, places)
        else:
            hidden.append(group)
    if hidden:
        tests = plural(sum(group.count for group in hidden), "test")
        yield f"- … and {plural(len(hidden), 'more reason')} ({tests})"
    yield ""


@dataclass(frozen=True)
class _Cases:
    """How cases are listed."""

    link: Callable[[TestResult], str]
    sections: Collection[int]
    limit: int
    """Characters of a text."""
    most: int
    """Cases of a cause."""

    def listed(self, causes: Sequence[FailureGroup], most: int) -> str:
        """Return the first cases, with their places."""
        numbered = (
            (number, result)
            for cause in causes
            for number, result in zip(cause.numbers, cause.results, strict=True)
        )
        shown = [self._linked(*row) for row in islice(numbered, most)]
        more = sum(len(cause.numbers) for cause in causes) - len(shown)
        return ", ".join([*shown, f"and {more} more"] if more else shown)

    def _linked(self, number: int, result: TestResult) -> str:
        name = display_name(result)
        place = self.link(result)
        linked = f"[{name}](#{anchor(number)})" if number in self.sections else name
        return f"{linked} ({place})" if place else linked


def _check(group: CheckGroup, cases: _Cases, most_causes: int) -> Iterator[str]:
    """Yield a cause, or what failed in several causes and the first of these."""
    symbol = STATUS[group.outcome].split()[0]
    times = f"**{group.count} ×** " if group.count > 1 else ""
    if not group.causes[1:]:
        yield from _cause(group.causes[0], f"- {symbol} {times}", cases)
        return
    yield f"- {symbol} {times}{inline(group.checks, cases.limit)}"
    for cause in group.causes[:most_causes]:
        several = f"**{len(cause.numbers)} ×** " if cause.numbers[1:] else ""
        yield from _cause(cause, f"  - {several}", cases)
    if hidden := group.causes[most_causes:]:
        yield f"  - … and {cases.listed(hidden, _MAX_PLACES * cases.most)}"


def _cause(cause: FailureGroup, bullet: str, cases: _Cases) -> Iterator[str]:
    """Yield the first reason, the cases, and what was expected and answered."""
    first, *others = explain(cause.first)
    # How many repetitions passed does not say why another did not.
    known = first.reasons[: 1 if cause.first.repeats is None else 2]
    shown = "; ".join(inline(str(reason), cases.limit) for reason in known)
    hidden = sum(len(failure.reasons) for failure in (first, *others)) - len(known)
    more = f" *(and {plural(hidden, 'more reason')})*" if hidden else ""
    indent = " " * bullet.index("-")
    yield f"{bullet}{shown or 'no reason is known'}{more}"
    yield f"{indent}  - {cases.listed([cause], cases.most)}"
    whose = f" ({display_name(cause.first)})" if cause.numbers[1:] else ""
    for title, text in first.unquoted(" ".join(map(str, known))):
        yield f"{indent}  - {_TITLES[title]}{whose}: {inline(text, cases.limit) or '*(empty)*'}"


def _flaky(report: TestReport, links: SourceLinks, size: tuple[int, int, int]) -> Iterator[str]:
    """Yield the tests that passed, but not each time."""
    limit, most, _ = size
    flaky = [result for result in report.results if result.outcome is Outcome.FLAKY]
    if not flaky:
        return
    yield from (f"## Flaky: {plural(len(flaky), 'Test')}", "")
    for flaky_result in flaky[:most]:
        place = links.link(report, flaky_result)
        at = f" ({place})" if place else ""
        why = "".join(f": {inline(reason, limit)}" for reason in flaky_result.reasons()[:1])
        yield f"- {STATUS[flaky_result.outcome].split()[0]} {display_name(flaky_result)}{at}{why}"
    if flaky[most:]:
        yield f"- … and {plural(len(flaky[most:]), 'more test')}"
    yield ""


_LIMITS = (BLOCK_LIMIT, 4_000, 1_000, 200)
"""How much of a text is shown: the first that fits."""
_RESERVE = 2_000
"""For the lines that frame the sections, and for what is said of those left out."""
_LEAST = 150
"""The characters that no section goes without."""
_MOST_UNFOLDED = 10
"""More tests than these are folded together."""


def generate_markdown_report(
    report: TestReport, detail: ReportDetail = "all", links: SourceLinks | None = None
) -> str:
    """Return the report as Markdown; no agent response can change how it renders.

    The first screen says what happened. Then come the tests: the first of each cause of failure
    open, the others folded. A report that would be too long for GitHub shortens texts and leaves
    out tests, those that passed first, and says so.

    Args:
        report: The results and their summary.
        detail: `failures` leaves out the tests that passed each time.
        links: Where the lines of YAML can be read; by default beside the report.

    Returns:
        The whole document.
    """
    return _Document(report, detail, links or SourceLinks()).render()


@dataclass
class _Document:
    report: TestReport
    detail: ReportDetail
    links: SourceLinks
    sections: dict[int, str] = field(default_factory=dict)
    """Number of a test → its section."""
    room: int = MAX_CHARACTERS - _RESERVE
    """The characters that are left."""

    def render(self) -> str:
        """Return the document; what is more important gets room first."""
        results = self.report.results
        groups = most_telling_first(self.report)
        causes = [cause for group in groups for cause in group.causes]
        first = [cause.numbers[0] for cause in causes]
        others = sorted(number for cause in causes for number in cause.numbers[1:])
        by_outcome = {
            outcome: [at for at, result in enumerate(results, 1) if result.outcome is outcome]
            for outcome in (Outcome.FLAKY, Outcome.SKIPPED, Outcome.PASSED)
        }
        passed = by_outcome[Outcome.PASSED] if self.detail == "all" else []
        scores = list(_scores(self.report))
        scores_length = len(_text(scores))
        everything = range(1, len(results) + 1)
        self.room -= len(_text(overview(self.report, groups, self.links, everything)))
        is_scored = scores_length <= self.room // 2
        self.room -= scores_length if is_scored else 0
        self._add_open(first)
        folded_parts = [
            self._folded(others, "more {} that did not pass for these reasons"),
            self._folded(by_outcome[Outcome.FLAKY], "flaky {}"),
            self._folded(by_outcome[Outcome.SKIPPED], "skipped {}"),
            self._folded(passed, "passed {}"),
        ]
        shown = [self.sections[number] for number in first if number in self.sections]
        omitted = self._omitted(by_outcome[Outcome.PASSED], has_scores=is_scored)
        shown_scores = scores if is_scored else ()
        parts = [
            _text(overview(self.report, groups, self.links, self.sections, shown_scores, omitted)),
            "---\n\n## Test Results\n\n" if self.sections else "",
            *shown,
            *folded_parts,
            _text(_end(self.report)),
        ]
        return "".join(parts).rstrip("\n") + "\n"

    def _add_open(self, numbers: Sequence[int]) -> None:
        """Render tests, each with its share of the room if that is enough."""
        for at, number in enumerate(numbers):
            if self.room < _LEAST:
                return
            share = self.room // (len(numbers) - at)
            result = self.report.results[number - 1]
            for limit in _LIMITS:
                section = CaseSection(limit, partial(self.links.link, self.report))
                most = self.room if limit == _LIMITS[-1] else share
                text = _text_within(section.open(result, number), most)
                if text is not None:
                    self._add(number, text)
                    break

    def _folded(self, numbers: Sequence[int], title: str) -> str:
        """Return the tests that there is room for, each folded; many of them folded together."""
        section = CaseSection(_LIMITS[1], partial(self.links.link, self.report))
        shown = []
        for number in numbers:
            if self.room < _LEAST:
                break
            text = _text_within(section.folded(self.report.results[number - 1], number), self.room)
            if text is not None:
                self._add(number, text)
                shown.append(text)
        if len(shown) <= _MOST_UNFOLDED:
            return "".join(shown)
        of = "" if len(shown) == len(numbers) else f" of {len(numbers):,}"
        summary = f"{len(shown):,}{of} {title.format('tests')}"
        return _text(folded(summary, "".join(shown).split("\n")[:-1]))

    def _add(self, number: int, text: str) -> None:
        """Keep a section, for which there is room."""
        self.room -= len(text)
        self.sections[number] = text

    def _omitted(self, passed: Sequence[int], *, has_scores: bool) -> str:
        """Return what the document leaves out, and where that is; empty if it has everything."""
        left_out = len(self.report.results) - len(self.sections)
        of_passed = sum(number not in self.sections for number in passed)
        kinds = ((left_out - of_passed, "other"), (of_passed, "passed"))
        parts = [plural(count, f"{kind} test", form=",") for count, kind in kinds if count]
        if of_passed == left_out > 0:
            parts = [plural(of_passed, "passed test", form=",")]
        if not has_scores:
            parts.append("the scores")
        if not parts:
            return ""
        origin = self.report.origin
        has_them = "the HTML and JSON reports have them"
        if origin is not None and origin.run is not None:
            path = self.report.agent_config_path
            agent = [] if path == "agent.yaml" else ["--agent", path]
            command = ["holodeck", "report", origin.run, *agent, "-o", "report.html"]
            has_them = f"{code(shlex.join(command), 500)} shows them"
        return f"Without the details of {' and '.join(parts)}; {has_them}."


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _text_within(lines: Iterable[str], most: int) -> str | None:
    """Return the text of the lines; None, without asking for more lines, once it is too long."""
    shown = []
    for line in lines:
        shown.append(line)
        most -= len(line) + 1
        if most < 0:
            return None
    return _text(shown)


def _scores(report: TestReport) -> Iterator[str]:
    """Yield the averages of the metrics."""
    summary = report.summary
    names = list(dict.fromkeys([*summary.average_scores, *summary.metrics_errored]))
    if not names:
        return
    scales = {row.metric_name: row.scale for result in report.results for row in result.rows}
    rows = [
        (
            inline(name),
            _number(summary.average_scores.get(name), "{:.2f}", "not computed"),
            inline(scales.get(name) or "–"),
            _number(summary.standard_errors.get(name), "± {:.2f}"),
            str(summary.metrics_evaluated.get(name, 0)),
            str(summary.metrics_errored.get(name, 0) or "–"),
        )
        for name in names
    ]
    header = ("Metric", "Average Score", "Scale", "Standard Error", "Scored", "Errors")
    yield from ("### Average Metric Scores", "", *table(header, rows))


def _end(report: TestReport) -> Iterator[str]:
    """Yield the last line of HoloDeck's reports, which scripts read."""
    summary = report.summary
    counts = f"✅ **{summary.passed} tests passed** | ❌ **{summary.failed} tests failed**"
    yield from ("---", "", "## Report Summary", "")
    yield f"{counts} | **Pass Rate: {summary.pass_rate:.2f}%**"


def _number(value: float | None, form: str, otherwise: str = "–") -> str:
    return otherwise if value is None else form.format(value)
