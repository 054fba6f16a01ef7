"""Results of a suite in a notebook: a compact table, and pandas DataFrames."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holodeck.lib.reports.dataframes import CASE_COLUMNS, METRIC_COLUMNS, Row, make_dataframe
from holodeck.lib.reports.notebook import TableRow, render_table
from holodeck.lib.support.text import percent
from holodeck.suite.results import RunResult, ScenarioRunResult

if TYPE_CHECKING:
    from pandas import DataFrame


def render_notebook_table(run: RunResult) -> str:
    """Return the results as HTML without scripts, failures first."""
    results = run.scenario_results
    passed = sum(one.passed for one in results)
    title = f"{run.suite_name}: {passed} of {len(results)} passed"
    title += f" ({percent(100 * passed / len(results), 1)})" if results else ""
    notes = [f"not reached: {', '.join(run.not_reached)}"] if run.not_reached else []
    return render_table(title, [_table_row(result) for result in results], notes)


def cases_dataframe(run: RunResult) -> "DataFrame":
    """Return a row for each scenario that ran."""
    return make_dataframe((_case_row(run, result) for result in run.scenario_results), CASE_COLUMNS)


def metrics_dataframe(run: RunResult) -> "DataFrame":
    """Return a row for each score."""
    rows = (row for result in run.scenario_results for row in _metric_rows(run, result))
    return make_dataframe(rows, METRIC_COLUMNS)


def _table_row(result: ScenarioRunResult) -> TableRow:
    scores = (f"{score.scorer_name} {score.score:.2f}" for score in result.scores)
    return TableRow(
        outcome=result.outcome,
        name=result.scenario.name,
        response=_response(result),
        reasons=_reasons(result),
        metrics=", ".join(scores),
        duration_ms=result.duration_ms,
    )


def _reasons(result: ScenarioRunResult) -> list[str]:
    if result.error:
        return [result.error]
    missed = (score for score in result.scores if not score.passed)
    return [f"{one.scorer_name}: {one.error or one.explanation}" for one in missed]


def _response(result: ScenarioRunResult) -> str | None:
    """Return the answer; None if the agent never answered."""
    return result.agent_result.output or (None if result.error else "")


def _place(run: RunResult, result: ScenarioRunResult) -> Row:
    scenario = result.scenario
    return {"suite": run.suite_name, "test_id": scenario.id, "test_name": scenario.name}


def _case_row(run: RunResult, result: ScenarioRunResult) -> Row:
    agent, scenario = result.agent_result, result.scenario
    usage = agent.token_usage
    names = [call.name for call in agent.tool_calls] if agent.knows_tool_calls else None
    return {
        **_place(run, result),
        "tags": ", ".join(scenario.tags),
        "outcome": result.outcome.value,
        "passed": result.passed,
        "reason": "\n".join(_reasons(result)) or None,
        "input": scenario.input,
        "response": _response(result),
        "ground_truth": scenario.expected_output,
        "turns": 1,
        "runs": result.retry_count + 1,
        "runs_passed": int(result.passed),
        "tool_calls": None if names is None else len(names),
        "tools": None if names is None else ", ".join(names),
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "total_tokens": None if usage is None else usage.total_tokens,
        "duration_ms": round(result.duration_ms),
        "timestamp": run.timestamp.isoformat(),
    }


def _metric_rows(run: RunResult, result: ScenarioRunResult) -> Iterator[Row]:
    for score in result.scores:
        yield {
            **_place(run, result),
            "metric": score.scorer_name,
            "score": None if score.error else score.score,
            "passed": None if score.error else score.passed,
            "required": True,
            "reason": score.explanation or None,
            "error": score.error,
        }
