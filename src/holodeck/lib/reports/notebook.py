"""Reports as the compact table that a notebook shows, failures first."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from holodeck.lib.reports.failure_groups import explain
from holodeck.lib.reports.recap import MARKS, MAX_REASONS, case_label
from holodeck.lib.support.text import one_line, plural
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import MetricResult, TestReport, TestResult

MAX_ROWS = 50
_MAX_TEXT = 160
_MAX_METRICS = 6
_WORST_FIRST = (
    Outcome.FAILED,
    Outcome.AGENT_ERROR,
    Outcome.METRIC_ERROR,
    Outcome.UNCHECKED,
    Outcome.FLAKY,
    Outcome.SKIPPED,
    Outcome.PASSED,
)
# The variables are those of JupyterLab's themes; elsewhere, the second value fits light and dark.
_RED = "var(--jp-error-color1, #d32f2f)"
_AMBER = "var(--jp-warn-color1, #b26a00)"
_GREEN = "var(--jp-success-color1, #388e3c)"
_COLORS = {Outcome.FAILED: _RED, Outcome.AGENT_ERROR: _RED, Outcome.PASSED: _GREEN}
_CELL = "text-align:left;vertical-align:top"
_LONG = f"{_CELL};overflow-wrap:anywhere;min-width:8em"
_COLUMNS = {
    "Outcome": f"{_CELL};white-space:nowrap",
    "Test": _LONG,
    "Response": _LONG,
    "Why": _LONG,
    "Metrics": _CELL,
    "Time": f"{_CELL};white-space:nowrap",
}
"""Column → its style. Only long texts break inside words, or short columns would, too."""


@dataclass(frozen=True)
class TableRow:
    """A test as a notebook shows it; all texts are cut and escaped later."""

    outcome: Outcome
    name: str
    response: str | None
    """None if there is none."""
    reasons: Sequence[str]
    metrics: str
    duration_ms: float | None
    """None if the test was not run."""


def render_notebook_table(report: TestReport) -> str:
    """Return the report as HTML without scripts, at most MAX_ROWS tests, failures first."""
    outcomes = report.summary.outcomes.items()
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in outcomes)
    verdict = "passed" if report.passed else "not passed"
    title = f"{report.agent_name}: {verdict}; {counts or 'nothing ran'}"
    notes = ["the run was interrupted"] if report.interrupted else []
    notes += [report.stopped] if report.stopped else []
    return render_table(title, [_row(result) for result in report.results], notes)


def render_table(title: str, rows: Sequence[TableRow], notes: Sequence[str] = ()) -> str:
    """Return a table of tests, failures first, as HTML that needs neither scripts nor styles."""
    ordered = sorted(rows, key=lambda row: _WORST_FIRST.index(row.outcome))
    shown, left = ordered[:MAX_ROWS], ordered[MAX_ROWS:]
    head = "".join(
        f'<th scope="col" style="{style}">{name}</th>' for name, style in _COLUMNS.items()
    )
    lines = [
        "<div>",
        f"<p><strong>{_text(title)}</strong></p>",
        *(f"<p>{_text(note)}</p>" for note in notes),
        f"<table><thead><tr>{head}</tr></thead><tbody>",
        *map(_html_row, shown),
        "</tbody></table>",
        f"<p>{_left_out(left)}</p>" if left else "",
        "</div>",
    ]
    return "\n".join(filter(None, lines))


def _left_out(left: Sequence[TableRow]) -> str:
    """Return how many tests the table lacks, by outcome."""
    counts = {outcome: sum(row.outcome is outcome for row in left) for outcome in _WORST_FIRST}
    listed = ", ".join(f"{count} {_word(outcome)}" for outcome, count in counts.items() if count)
    return f"… and {plural(len(left), 'more test')} ({listed}); <code>to_dataframe()</code> has all"


def _row(result: TestResult) -> TableRow:
    is_run = result.outcome is not Outcome.SKIPPED
    name = case_label(result.test_name, result.test_input)
    return TableRow(
        outcome=result.outcome,
        name=f"{result.group} › {name}" if result.group else name,
        response=_response(result),
        reasons=result.reasons(),
        metrics=_metrics(result.rows),
        duration_ms=result.execution_time_ms if is_run else None,
    )


def _response(result: TestResult) -> str | None:
    """Return the response that failed first; of other cases, the last one."""
    is_failed = result.outcome is Outcome.FAILED
    return explain(result)[0].response if is_failed else result.agent_response


def _metrics(rows: Sequence[MetricResult]) -> str:
    shown = [
        f"{row.metric_name} {'error' if row.score is None else format(row.score, '.2f')}"
        for row in rows[:_MAX_METRICS]
    ]
    more = len(rows) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _html_row(row: TableRow) -> str:
    color = _COLORS.get(row.outcome, _AMBER)
    mark = f'<span style="color:{color}">{MARKS[row.outcome].symbol} {_word(row.outcome)}</span>'
    reasons = [_text(reason) for reason in row.reasons[:MAX_REASONS]]
    if row.reasons[MAX_REASONS:]:
        reasons.append(f"… and {len(row.reasons) - MAX_REASONS} more")
    response = "–" if row.response is None else _text(row.response) or "(empty)"
    cells = (mark, _text(row.name), response, "<br>".join(reasons), _text(row.metrics), _time(row))
    styled = zip(cells, _COLUMNS.values(), strict=True)
    return "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for cell, style in styled) + "</tr>"


def _word(outcome: Outcome) -> str:
    return outcome.value.replace("_", " ")


def _time(row: TableRow) -> str:
    return "–" if row.duration_ms is None else f"{row.duration_ms / 1000:.2f} s"


def _text(text: str) -> str:
    return escape(one_line(text, _MAX_TEXT))
