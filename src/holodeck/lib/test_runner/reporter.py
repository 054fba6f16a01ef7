"""The Markdown report of a run."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from holodeck.lib.reports.case_section import CaseSection
from holodeck.lib.reports.locations import SourceLinks
from holodeck.lib.reports.markdown import BLOCK_LIMIT, MAX_CHARACTERS, code, folded, inline, table
from holodeck.lib.reports.overview import most_telling_first, overview
from holodeck.lib.support.text import plural
from holodeck.models.config import ReportDetail
from holodeck.models.test_result import Outcome, TestReport

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
        scores = _text(_scores(self.report))
        everything = range(1, len(results) + 1)
        self.room -= len(_text(overview(self.report, groups, self.links, everything)))
        is_scored = len(scores) <= self.room // 2
        self.room -= len(scores) if is_scored else 0
        self._add_open(first)
        folded_parts = [
            self._folded(others, "more {} that did not pass for these reasons"),
            self._folded(by_outcome[Outcome.FLAKY], "flaky {}"),
            self._folded(by_outcome[Outcome.SKIPPED], "skipped {}"),
            self._folded(passed, "passed {}"),
        ]
        shown = [self.sections[number] for number in first if number in self.sections]
        omitted = self._omitted(by_outcome[Outcome.PASSED], has_scores=is_scored)
        parts = [
            _text(overview(self.report, groups, self.links, self.sections, omitted)),
            scores if is_scored else "",
            "## Tests\n\n" if self.sections else "",
            *shown,
            *folded_parts,
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
            _number(summary.standard_errors.get(name), "± {:.2f}"),
            inline(scales.get(name) or "–"),
            str(summary.metrics_evaluated.get(name, 0)),
            str(summary.metrics_errored.get(name, 0) or "–"),
        )
        for name in names
    ]
    header = ("Metric", "Average Score", "Standard Error", "Scale", "Scored", "Errors")
    yield from ("## Scores", "", *table(header, rows))


def _number(value: float | None, form: str, otherwise: str = "–") -> str:
    return otherwise if value is None else form.format(value)
