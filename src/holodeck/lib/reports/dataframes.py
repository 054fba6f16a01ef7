"""Reports as pandas DataFrames: a row for each test case, or for each result of a metric."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from holodeck.errors import MissingExtra
from holodeck.lib.support.text import replace_surrogates
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import MetricResult, TestReport, TestResult
from holodeck.models.token_usage import TokenUsage, sum_of

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
    found = [{name: _clean(value) for name, value in row.items()} for row in rows]
    frame = pd.DataFrame(found, columns=list(columns), dtype=object)
    times = {
        name: pd.to_datetime(frame[name], utc=True, format="ISO8601").astype(_TIME)
        for name, dtype in columns.items()
        if dtype == _TIME
    }
    others = {name: dtype for name, dtype in columns.items() if dtype != _TIME}
    return frame.astype(others).assign(**times)


def cases_dataframe(report: TestReport) -> "DataFrame":
    """Return a row for each test case, in the order of the report."""
    return make_dataframe((_case_row(report, result) for result in report.results), CASE_COLUMNS)


def metrics_dataframe(report: TestReport) -> "DataFrame":
    """Return a row for each result of a metric, those of turns and repetitions included."""
    rows = (row for result in report.results for row in _metric_rows(report, result))
    return make_dataframe(rows, METRIC_COLUMNS)


def _clean(value: str | float | bool | None) -> str | float | bool | None:
    return replace_surrogates(value) if isinstance(value, str) else value


def _place(report: TestReport, result: TestResult) -> dict[str, str | None]:
    return {
        "agent": result.agent_name or report.agent_name,
        "suite": result.suite,
        "test_id": result.test_id,
        "test_name": result.test_name,
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
    """Return the agent's tokens in all runs; unknown if they are in one of them."""
    usage = sum_of(_usage(run) for run in runs if run.agent_time_ms is not None)
    return {} if usage is None else usage.model_dump()


def _usage(run: TestResult) -> TokenUsage | None:
    usage = run.token_usage
    if usage is None or usage.total_tokens or run.evidence.token_usage is not None:
        return usage
    return None


def _metric_rows(report: TestReport, result: TestResult) -> Iterator[Row]:
    runs = [result] if result.repeats is None else result.repeats.runs
    for number, run in enumerate(runs, 1):
        place = {**_place(report, result), "repetition": number if result.repeats else None}
        for turn_number, turn in enumerate(run.turns, 1):
            for row in turn.metric_results:
                yield {**place, "turn": turn_number, **_metric_cells(row)}
        for row in run.metric_results:
            yield {**place, **_metric_cells(row)}


def _metric_cells(row: MetricResult) -> Row:
    return {
        "metric": row.metric_name,
        "kind": row.kind,
        "score": row.score,
        "threshold": row.threshold,
        "passed": row.passed,
        "required": row.required,
        "inconclusive": row.inconclusive,
        "raw_score": row.raw_score,
        "raw_scale": row.raw_scale,
        "reason": row.reasoning,
        "error": row.error,
        "judge": row.model_used,
        "judge_calls": row.judge_calls,
        "judge_tokens": None if row.judge_tokens is None else row.judge_tokens.total_tokens,
        "duration_ms": row.evaluation_time_ms,
    }
