"""Reports as tables: pandas DataFrames of test cases and metrics, and what a notebook shows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from holodeck.errors import MissingExtra
from holodeck.lib.reports.costs import known_usage
from holodeck.lib.reports.failures import NOT_PASSED, explain
from holodeck.lib.reports.summary import count_outcomes
from holodeck.lib.reports.terminal import MARKS, MAX_REASONS
from holodeck.lib.support.text import one_line, plural, replace_surrogates, shorten_list
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import MetricResult, TestReport, TestResult
from holodeck.models.token_usage import sum_of

if TYPE_CHECKING:
    from pandas import DataFrame


Row = Mapping[str, str | float | bool | None]
"""A row by column; None if a value is unknown, which pandas shows as `<NA>`."""

_TEXT, _WHOLE, _NUMBER, _FLAG = "string", "Int64", "Float64", "boolean"
_TIME = "datetime64[ns, UTC]"

_PLACE = {"agent": _TEXT, "suite": _TEXT, "test_id": _TEXT, "test_name": _TEXT, "location": _TEXT}
CASE_COLUMNS = {
    **_PLACE,
    "tags": _TEXT,
    "outcome": _TEXT,
    "passed": _FLAG,
    "reason": _TEXT,
    "input": _TEXT,
    "response": _TEXT,
    "ground_truth": _TEXT,
    "turns": _WHOLE,
    "runs": _WHOLE,
    "runs_passed": _WHOLE,
    "tool_calls": _WHOLE,
    "tools": _TEXT,
    "prompt_tokens": _WHOLE,
    "completion_tokens": _WHOLE,
    "total_tokens": _WHOLE,
    "judge_calls": _WHOLE,
    "cost": _NUMBER,
    "currency": _TEXT,
    "duration_ms": _WHOLE,
    "agent_ms": _WHOLE,
    "timestamp": _TIME,
}
"""The columns of test cases, with their types: all of them know what is unknown."""
METRIC_COLUMNS = {
    **_PLACE,
    "repetition": _WHOLE,
    "turn": _WHOLE,
    "metric": _TEXT,
    "kind": _TEXT,
    "score": _NUMBER,
    "threshold": _NUMBER,
    "passed": _FLAG,
    "required": _FLAG,
    "inconclusive": _FLAG,
    "raw_score": _NUMBER,
    "raw_scale": _TEXT,
    "reason": _TEXT,
    "error": _TEXT,
    "judge": _TEXT,
    "judge_calls": _WHOLE,
    "judge_tokens": _WHOLE,
    "duration_ms": _WHOLE,
}
"""The columns of metrics, likewise."""


def make_dataframe(rows: Iterable[Row], columns: Mapping[str, str]) -> "DataFrame":
    """Return the rows with these columns and types. Raises MissingExtra without pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra("pandas", "a DataFrame") from error
    cleaned = [
        {
            name: replace_surrogates(value) if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    frame = pd.DataFrame(cleaned, columns=list(columns), dtype=object)
    for name in columns:
        if columns[name] == _TIME:
            frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame.astype(dict(columns))


def cases_dataframe(report: TestReport) -> "DataFrame":
    """Return a row for each test case, in the order of the report."""
    return make_dataframe((_case_row(report, result) for result in report.results), CASE_COLUMNS)


def metrics_dataframe(report: TestReport) -> "DataFrame":
    """Return a row for each result of a metric, those of turns and repetitions included."""
    rows = (row for result in report.results for row in _metric_rows(report, result))
    return make_dataframe(rows, METRIC_COLUMNS)


def _place(report: TestReport, result: TestResult) -> dict[str, str | None]:
    return {
        "agent": result.agent_name or report.agent_name,
        "suite": result.suite,
        "test_id": result.test_id,
        "test_name": result.title,
        "location": result.location,
    }


def _case_row(report: TestReport, result: TestResult) -> Row:
    always = {
        **_place(report, result),
        "tags": ", ".join(result.tags),
        "outcome": result.outcome.value,
        "reason": "\n".join(result.reasons()) or None,
        "input": result.test_input,
        "ground_truth": result.ground_truth,
        "timestamp": result.timestamp,
    }
    if result.outcome is Outcome.SKIPPED:
        return {**always, "runs": 0, "runs_passed": 0}
    runs = result.single_runs
    return {
        **always,
        "passed": result.passed,
        "response": result.agent_response,
        "turns": None if result.repeats is not None else max(len(result.turns), 1),
        "runs": len(runs),
        "runs_passed": sum(run.passed for run in runs),
        **_tools(result),
        **_tokens(runs),
        "judge_calls": sum(cost.calls for cost in result.judge_costs),
        "cost": None if result.cost is None else result.cost.total,
        "currency": None if result.cost is None else result.cost.currency,
        "duration_ms": result.execution_time_ms,
        "agent_ms": result.agent_time_ms,
    }


def _tools(result: TestResult) -> Row:
    """Return the tool calls; unknown if the agent does not report them, or for repetitions."""
    if result.evidence.tool_calls is None or result.repeats is not None:
        return {}
    names = [call.full_name for call in result.tool_invocations]
    return {"tool_calls": len(names), "tools": ", ".join(names)}


def _tokens(runs: Iterable[TestResult]) -> Row:
    """Return the agent's tokens in all runs; unknown if they are in any of them."""
    usage = sum_of(
        known_usage(run.token_usage) if run.evidence.token_usage is None else run.token_usage
        for run in runs
        if run.agent_time_ms is not None
    )
    return {} if usage is None else usage.model_dump()


def _metric_rows(report: TestReport, result: TestResult) -> Iterator[Row]:
    runs = [result] if result.repeats is None else result.repeats.runs
    for number, run in enumerate(runs, 1):
        place = {**_place(report, result), "repetition": number if result.repeats else None}
        for turn, part in (*enumerate(run.turns, 1), (None, run)):
            for row in part.metric_results:
                yield {**place, "turn": turn, **_metric_cells(row)}


def _metric_cells(row: MetricResult) -> Row:
    same = {name: value for name, value in vars(row).items() if name in METRIC_COLUMNS}
    return same | {
        "metric": row.metric_name,
        "reason": row.reasoning,
        "judge": row.model_used,
        "judge_tokens": None if row.judge_tokens is None else row.judge_tokens.total_tokens,
        "duration_ms": row.evaluation_time_ms,
    }


MAX_ROWS = 50
_MAX_TEXT = 160
_MAX_METRICS = 6
_WORST_FIRST = (*NOT_PASSED, Outcome.FLAKY, Outcome.SKIPPED, Outcome.PASSED)
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


def render_notebook_table(report: TestReport) -> str:
    """Return the report as HTML without scripts, at most MAX_ROWS tests, failures first."""
    counts = ", ".join(count_outcomes(report.summary.outcomes).values())
    verdict = "passed" if report.passed else "not passed"
    title = f"{report.agent_name}: {verdict}; {counts or 'nothing ran'}"
    notes = ["the run was interrupted"] if report.interrupted else []
    notes += [report.stopped] if report.stopped else []
    ordered = sorted(report.results, key=lambda result: _WORST_FIRST.index(result.outcome))
    head = "".join(
        f'<th scope="col" style="{style}">{name}</th>' for name, style in _COLUMNS.items()
    )
    lines = [
        "<div>",
        f"<p><strong>{_text(title)}</strong></p>",
        *(f"<p>{_text(note)}</p>" for note in notes),
        f"<table><thead><tr>{head}</tr></thead><tbody>",
        *map(_html_row, ordered[:MAX_ROWS]),
        "</tbody></table>",
        *_left_out(ordered[MAX_ROWS:]),
        "</div>",
    ]
    return "\n".join(lines)


def _left_out(results: Sequence[TestResult]) -> Iterator[str]:
    """Yield how many tests the table lacks, by outcome."""
    if results:
        listed = ", ".join(count_outcomes(Counter(result.outcome for result in results)).values())
        more = plural(len(results), "more test")
        yield f"<p>… and {more} ({listed}); <code>to_dataframe()</code> has all</p>"


def _html_row(result: TestResult) -> str:
    color, word = _COLORS.get(result.outcome, _AMBER), result.outcome.value.replace("_", " ")
    mark = f'<span style="color:{color}">{MARKS[result.outcome].symbol} {word}</span>'
    label = result.title
    # Of a failed case, the response that failed first; of others, the last.
    is_failed = result.outcome is Outcome.FAILED
    response = explain(result)[0].response if is_failed else result.agent_response
    reasons = [_text(reason) for reason in result.reasons()]
    if reasons[MAX_REASONS:]:
        reasons[MAX_REASONS:] = [f"… and {len(reasons) - MAX_REASONS} more"]
    is_run = result.outcome is not Outcome.SKIPPED
    cells = (
        mark,
        _text(f"{result.group} › {label}" if result.group else label),
        "–" if response is None else _text(response) or "(empty)",
        "<br>".join(reasons),
        _text(_metrics(result.rows)),
        f"{result.execution_time_ms / 1000:.2f} s" if is_run else "–",
    )
    styled = zip(cells, _COLUMNS.values(), strict=True)
    return "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for cell, style in styled) + "</tr>"


def _metrics(rows: Sequence[MetricResult]) -> str:
    shown = [
        f"{row.metric_name} {'error' if row.score is None else format(row.score, '.2f')}"
        for row in rows
    ]
    return shorten_list(shown, _MAX_METRICS)


def _text(text: str) -> str:
    return escape(one_line(text, _MAX_TEXT))
