"""The part of the Markdown report that one test takes."""

from collections.abc import Iterator

from holodeck.lib.conversation.messages import transcript_of
from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.markdown import fenced, inline, json_text, table
from holodeck.lib.text import plural
from holodeck.models.model_request import ModelRequest
from holodeck.models.outcome import CriterionRow, ModelCost, RaisedError
from holodeck.models.test_case import ExpectedTool
from holodeck.models.test_result import (
    NO_RESULT,
    MetricResult,
    Outcome,
    ProcessedFileInput,
    Repeats,
    Spread,
    TestResult,
    ToolCheck,
    ToolInvocation,
    TurnResult,
)

_TEXT_LIMIT = 500


def transcript_section(result: TestResult, mark: str) -> Iterator[str]:
    """Yield the transcript of a conversation whose turns do not contain all messages."""
    if result.messages:
        yield from (f"{mark} Transcript", "", *fenced(transcript_of(result.messages)), "")


def conclusion_section(result: TestResult, mark: str) -> Iterator[str]:
    """Yield the end reason, the verdicts on the criteria, and the usage of models."""
    if result.ending is not None:
        reason = result.ending.reasoning or result.ending.code.replace("_", " ")
        yield from (f"**Ended:** {inline(reason, _TEXT_LIMIT)}", "")
    yield from _criteria(result.criteria, mark)
    costs = (("Judge", result.judge_cost), ("Simulated user", result.simulator_cost))
    lines = [_model_cost(who, cost) for who, cost in costs if cost is not None]
    if lines:
        yield from (*lines, "")


def _criteria(rows: list[CriterionRow], mark: str) -> Iterator[str]:
    if not rows:
        return
    yield from (f"{mark} Criteria", "")
    cells = [(inline(row.criterion, _TEXT_LIMIT), _criterion_status(row)) for row in rows]
    yield from (*table(("Criterion", "Status"), cells), "")
    for row in rows:
        if row.reasoning:
            yield from (f"{mark}# {inline(row.criterion)}", "")
            yield from ("Reasoning:", "", *fenced(row.reasoning), "")


def _criterion_status(row: CriterionRow) -> str:
    if row.status == "passed":
        return "✅ pass"
    status = "fail" if row.status == "failed" else row.status
    return f"❌ {status}" if row.required else f"{status}, reported only"


def _model_cost(who: str, cost: ModelCost) -> str:
    tokens = plural(cost.tokens.total_tokens, "token")
    cached = f", {plural(cost.kept, 'cached response')}" if cost.kept else ""
    calls = plural(cost.calls, "call")
    calls += f" ({cost.failed} not answered)" if cost.failed else ""
    return f"- **{who}:** {inline(cost.model or '–')}, {calls}{cached}, {tokens}"


def format_calls(calls: int, failed: int) -> str:
    """Return the number of calls, and how many of them failed."""
    return f"{calls} ({failed} not answered)" if failed else str(calls)


def history_section(result: TestResult, mark: str) -> Iterator[str]:
    """Yield the messages before the case, none of which is a response of this run."""
    messages = []
    tool_names: dict[str, str] = {}
    for one in result.history:
        message = one.model_dump(mode="json", exclude_none=True)
        tool_names |= {call.id: call.function.name for call in one.tool_calls or ()}
        if one.tool_call_id is not None:
            message["name"] = tool_names[one.tool_call_id]
        messages.append(message)
    if messages:
        yield from (f"{mark} Earlier Messages", "", *fenced(transcript_of(messages)), "")


STATUS = {
    Outcome.PASSED: "✅ PASSED",
    Outcome.FAILED: "❌ FAILED",
    Outcome.AGENT_ERROR: "⚠️ ERROR",
    Outcome.METRIC_ERROR: "⚠️ ERROR",
    Outcome.UNCHECKED: "❔ UNCHECKED",
    Outcome.FLAKY: "🎲 FLAKY",
    Outcome.SKIPPED: "⏭️ SKIPPED",
}
_PART = "####"
"""The heading of a part of a case; a part of a turn is one level below."""
_PART_OF_TURN = "#####"
_MAX_CALLS = 50
_MAX_CELL = 120


def case_section(result: TestResult, number: int) -> Iterator[str]:
    """Yield the lines about a test; `number` counts from 1 and names the anchor."""
    yield from (f'<a id="{anchor(number)}"></a>', "")
    yield from (f"### Test: {display_name(result)} {STATUS[result.outcome]}", "")
    if result.skip_reason is not None:
        yield from ("**Input:**", "", *fenced(result.test_input), "")
        yield from (f"**Skipped:** {inline(result.skip_reason, 2_000)}", "")
        return
    yield from history_section(result, _PART)
    if result.repeats is not None:
        yield from ("**Input:**", "", *fenced(result.test_input), "")
        yield from (f"**Execution Time:** {result.execution_time_ms}ms", "")
        yield from _repeats(result.repeats)
    else:
        yield from _single_run(result)
    if result.cost is not None:
        yield from (f"**Cost:** {inline(describe_cost(result.cost), 1_000)}", "")


def _repeats(repeats: Repeats) -> Iterator[str]:
    """Yield tables of the repetitions and scores, then all about those that did not pass."""
    low, high = repeats.interval or (0, 1)
    yield from (f"**{repeats}**; 95 % interval {100 * low:.1f} % to {100 * high:.1f} %", "")
    yield from _runs_table("Repetition", repeats.runs)
    if repeats.spread:
        rows = ((inline(one.metric_name), *_spread_cells(one)) for one in repeats.spread)
        header = ("Metric", "Mean", "Least", "Most", "Standard Deviation", "Scored")
        yield from (f"{_PART} Spread of the Scores", "", *table(header, rows), "")
    for number, run in enumerate(repeats.runs, 1):
        if run.outcome is not Outcome.PASSED:
            yield from (f"{_PART} Repetition {number} {STATUS[run.outcome]}", "")
            yield from _single_run(run)


def _spread_cells(spread: Spread) -> tuple[str, ...]:
    figures = (spread.mean, spread.least, spread.most, spread.deviation)
    return (*("–" if one is None else f"{one:.4g}" for one in figures), str(spread.scored))


def _runs_table(what: str, runs: list[TestResult]) -> Iterator[str]:
    rows = [
        (str(number), STATUS[one.outcome], _reason(one), _milliseconds(one.execution_time_ms))
        for number, one in enumerate(runs, 1)
    ]
    yield from (*table((what, "Status", "Reason", "Time"), rows), "")


def _single_run(result: TestResult) -> Iterator[str]:
    if result.turns:
        yield from (f"**Execution Time:** {result.execution_time_ms}ms", "")
        yield from _conversation(result)
    else:
        yield from ("**Input:**", "", *fenced(result.test_input), "")
        yield from (f"**Execution Time:** {result.execution_time_ms}ms", "")
        yield from _files(result.processed_files)
        yield from _response(result.agent_response)
        yield from _tools(result, result.tool_invocations)
        yield from trace_section(result, _PART)
        yield from _metrics(result.metric_results)
        yield from _ground_truth(result.ground_truth)
        yield from conclusion_section(result, _PART)
    yield from _model_requests(result.model_requests)
    yield from _errors(result)
    yield from _attempts(result)
    yield from _earlier_runs(result)


def _conversation(result: TestResult) -> Iterator[str]:
    """Yield each turn with its verdict, then the checks of the whole conversation."""
    for number, turn in enumerate(result.turns, 1):
        yield from (f"{_PART} Turn {number}{_status(result, turn)}", "")
        yield from ("**Input:**", "", *fenced(turn.input), "")
        yield from _files(turn.processed_files, _PART_OF_TURN)
        yield from _response(turn.agent_response, _PART_OF_TURN)
        yield from _tools(turn, turn.tool_invocations, _PART_OF_TURN)
        yield from trace_section(turn, _PART_OF_TURN)
        yield from _metrics(turn.metric_results, _PART_OF_TURN)
        yield from _ground_truth(turn.ground_truth, _PART_OF_TURN)
    yield from transcript_section(result, _PART)
    at_end = (result.metric_results, result.tool_checks, result.criteria, result.ending)
    if any(at_end) or result.ground_truth is not None:
        yield from (f"{_PART} Whole Conversation", "")
    if result.tool_checks:
        yield from _tools(result, [], _PART_OF_TURN)
        yield from trace_section(result, _PART_OF_TURN)
    yield from _metrics(result.metric_results, _PART_OF_TURN)
    yield from _ground_truth(result.ground_truth, _PART_OF_TURN)
    yield from conclusion_section(result, _PART_OF_TURN)


def _status(result: TestResult, turn: TurnResult) -> str:
    if turn.outcome is not None:
        return f" {STATUS[turn.outcome]}"
    return "" if result.ending is not None and not result.ending.broke else " not graded"


def display_name(result: TestResult) -> str:
    """Return the test's name as inline Markdown."""
    name = inline(result.test_name) if result.test_name else "Unnamed Test"
    return name if result.agent_name is None else f"{inline(result.agent_name)} › {name}"


def anchor(number: int) -> str:
    """Return the target of links to the test."""
    return f"test-{number}"


def _files(files: list[ProcessedFileInput], mark: str = _PART) -> Iterator[str]:
    if not files:
        return
    yield from (f"{mark} Processed Files", "")
    yield from table(("File", "Type", "Processing Time", "Status"), map(_file_row, files))
    yield ""
    for file in files:
        if file.metadata:
            facts = ", ".join(f"{key}: {value}" for key, value in file.metadata.items())
            yield f"- {inline(file.original.shown_path)}: {inline(facts)}"
    yield ""


def _file_row(file: ProcessedFileInput) -> tuple[str, ...]:
    status = "✅ processed" if file.error is None else f"❌ {inline(file.error)}"
    took = _milliseconds(file.processing_time_ms)
    return inline(file.original.shown_path), inline(file.original.type), took, status


def _response(text: str | None, mark: str = _PART) -> Iterator[str]:
    yield from (f"{mark} Agent Response", "")
    if text is None:
        yield "*(no response)*"
    elif not text:
        yield "*(empty response)*"
    else:
        yield from fenced(text)
    yield ""


def _tools(
    result: TestResult | TurnResult, calls: list[ToolInvocation], mark: str = _PART
) -> Iterator[str]:
    """Yield the called and the expected tools, then each of `calls` with its result."""
    called, expected, agents = result.tool_calls, result.expected_tools, result.agents
    checks = [one for one in result.tool_checks if one.kind == "tools"]
    if not (called or calls or agents or checks) and expected is None:
        return
    yield from (f"{mark} Tool Usage", "")
    is_tapped = result.evidence.tool_calls == "tap"
    yield f"- **{'Tools Requested' if is_tapped else 'Tools Called'}:** {_called_tools(result)}"
    if expected is not None:
        wanted = [tool if isinstance(tool, str) else _expectation(tool) for tool in expected]
        yield f"- **Expected Tools:** {_listed(wanted) if wanted else 'no tool may be called'}"
    if agents:
        yield f"- **Agents:** {' → '.join(map(inline, agents))}"
    if result.tools_matched is not None or checks:
        yield f"- **Match Status:** {_match_status(result.tools_matched)}"
    yield ""
    yield from _checks(checks)
    yield from _calls(calls, is_tapped=is_tapped)


def trace_section(part: TestResult | TurnResult, mark: str) -> Iterator[str]:
    """Yield the checks of spans, and the spans that were seen."""
    checks = [one for one in part.tool_checks if one.kind == "trace"]
    if not checks and part.trace is None:
        return
    yield from (f"{mark} Spans", "")
    yield from _checks(checks)
    spans = [] if part.trace is None else part.trace.spans
    rows = [
        (inline(one.name, _MAX_CELL), one.status, f"{one.duration_ms:.4g}ms", _cell(one.attributes))
        for one in spans[:_MAX_CALLS]
    ]
    if rows:
        yield from (*table(("Span", "Status", "Time", "Attributes"), rows), "")
    if len(spans) > _MAX_CALLS:
        yield from (f"*… and {plural(len(spans) - _MAX_CALLS, 'more span')}.*", "")


def _called_tools(result: TestResult | TurnResult) -> str:
    if result.evidence.tool_calls == "tap":
        return f"{_listed(result.tool_calls)} (requested by the model, seen by the tap)"
    if result.evidence.tool_calls is not None:
        return _listed(result.tool_calls)
    return f"{_listed(result.tool_calls)}, others are unknown" if result.tool_calls else "unknown"


def _match_status(matched: bool | None) -> str:
    return "⚠️ unknown" if matched is None else _verdict(matched)


def _listed(names: list[str]) -> str:
    shown = ", ".join(inline(name) for name in names[:_MAX_CALLS]) or "none"
    hidden = len(names) - _MAX_CALLS
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def _expectation(tool: ExpectedTool) -> str:
    args = f" with {json_text(tool.args)}" if tool.args else ""
    agent = f" by {tool.agent}" if tool.agent is not None else ""
    result = f", result {json_text(tool.result)}" if tool.result is not None else ""
    error = {None: "", True: ", failing", False: ", without error"}[tool.error]
    count = f", {plural(tool.count, 'time')}" if tool.count is not None else ""
    return f"{tool.name}{args}{agent}{result}{error}{count}"


def _checks(checks: list[ToolCheck]) -> Iterator[str]:
    if checks:
        rows = [
            (
                inline(check.expectation),
                _check_status(check),
                inline(check.error or check.reason or ""),
            )
            for check in checks
        ]
        yield from (*table(("Expectation", "Status", "Reason"), rows), "")


def _check_status(check: ToolCheck) -> str:
    return _verdict(check.passed) if check.error is None else "⚠️ error"


def _calls(calls: list[ToolInvocation], *, is_tapped: bool) -> Iterator[str]:
    if not calls:
        return
    shown = list(enumerate(calls[:_MAX_CALLS], 1))
    header: tuple[str, ...] = ("Call", "Tool", "Arguments", "Result", "Time")
    rows = [_call_row(number, call, is_tapped=is_tapped) for number, call in shown]
    if any(call.agent is not None for call in calls):
        header = (*header, "Agent")
        agents = (inline(call.agent or "unknown") for _, call in shown)
        rows = [(*row, agent) for row, agent in zip(rows, agents, strict=True)]
    yield from (*table(header, rows), "")
    if len(calls) > _MAX_CALLS:
        yield from (f"*… and {plural(len(calls) - _MAX_CALLS, 'more call')}.*", "")
    for number, call in shown:
        yield from _call_details(number, call)


def _call_row(number: int, call: ToolInvocation, *, is_tapped: bool) -> tuple[str, ...]:
    outcome = f"❌ {inline(call.error, _MAX_CELL)}" if call.error else _cell(call.result)
    if is_tapped and call.error == NO_RESULT:
        outcome = "requested; the tap saw no result"
    return (
        str(number),
        inline(call.name),
        _cell(call.args),
        outcome,
        _milliseconds(call.duration_ms),
    )


def _cell(value: object) -> str:
    return inline(json_text(value), _MAX_CELL)


def _call_details(number: int, call: ToolInvocation) -> Iterator[str]:
    """Yield what does not fit into the table."""
    if call.raised is not None:
        yield from _raised(f"Call {number}, raised", call.raised)
    for title, value in (("arguments", call.args), ("result", call.result)):
        if len(json_text(value)) > _MAX_CELL:
            yield from (f"Call {number}, {title}:", "")
            yield from (*fenced(json_text(value, indent=2), "json"), "")


def _metrics(rows: list[MetricResult], mark: str = _PART) -> Iterator[str]:
    if not rows:
        return
    yield from (f"{mark} Evaluation Metrics", "")
    header: tuple[str, ...] = ("Metric", "Score", "Threshold", "Status", "Model", "Eval Time")
    is_judged = any(row.judge_calls for row in rows)
    if is_judged:
        header += ("Judge Calls", "Judge Tokens", "Judge Time")
    cells = (_metric_row(row) + (_judge_cells(row) if is_judged else ()) for row in rows)
    yield from (*table(header, cells), "")
    for row in rows:
        if row.reasoning or row.error or row.retry_count:
            yield from _metric_details(row, mark)


def _metric_row(row: MetricResult) -> tuple[str, ...]:
    return (
        inline(row.metric_name),
        _score(row),
        "–" if row.threshold is None else f"{row.threshold:.4g}",
        _metric_status(row),
        inline(row.model_used or "–"),
        _milliseconds(row.evaluation_time_ms),
    )


def _score(row: MetricResult) -> str:
    if row.score is None:
        return "not computed"
    if row.raw_score is None:
        return f"{row.score:.4g}"
    return f"{row.score:.4g} ({row.raw_score:g} of {inline(row.raw_scale or '?')})"


def _judge_cells(row: MetricResult) -> tuple[str, ...]:
    tokens = "–" if row.judge_tokens is None else str(row.judge_tokens.total_tokens)
    calls = format_calls(row.judge_calls, row.judge_failed)
    return calls, tokens, _milliseconds(row.judge_ms)


def _metric_status(row: MetricResult) -> str:
    note = "" if row.required or row.passed is None else ", reported only"
    if row.judge_trust is not None:
        note += f", judge {row.judge_trust}"
    return f"{_metric_verdict(row)}{note}"


def _metric_verdict(row: MetricResult) -> str:
    if row.error is not None:
        return "⚠️ error"
    if row.inconclusive:
        return "⚠️ inconclusive"
    return "reported only" if row.passed is None else _verdict(row.passed)


def _metric_details(row: MetricResult, mark: str) -> Iterator[str]:
    yield from (f"{mark}# {inline(row.metric_name)}", "")
    if row.reasoning:
        yield from ("Reasoning:", "", *fenced(row.reasoning), "")
    if row.error:
        yield from ("⚠️ Error:", "", *fenced(row.error), "")
    if row.raised is not None:
        yield from _raised("Raised", row.raised)
    if row.retry_count:
        yield from (f"Retries: {row.retry_count}", "")


def _ground_truth(expected: str | None, mark: str = _PART) -> Iterator[str]:
    if expected is not None:
        yield from (f"{mark} Ground Truth Comparison", "", "**Expected:**", "")
        yield from (*fenced(expected), "")


def _errors(result: TestResult) -> Iterator[str]:
    if result.errors:
        yield from ("#### Errors", "")
        yield from (f"- ❌ {inline(error, 2_000)}" for error in result.errors)
        yield ""
    ending = result.ending
    found = [*result.raised, *([ending.raised] if ending is not None and ending.raised else [])]
    for one in found:
        yield from _raised("Raised", one)


def _raised(title: str, raised: RaisedError) -> Iterator[str]:
    """Yield the traceback of an error in the user's code, outermost frame first."""
    yield from (f"{title}:", "", *fenced("\n".join(raised.details)), "")


def _model_requests(requests: list[ModelRequest]) -> Iterator[str]:
    """Yield the requests that a tap saw."""
    if not requests:
        return
    rows = [
        (
            str(number),
            inline(one.model or "–"),
            "no response" if one.status is None else str(one.status),
            "–" if one.token_usage is None else str(one.token_usage.total_tokens),
            _milliseconds(one.elapsed_ms),
        )
        for number, one in enumerate(requests[:_MAX_CALLS], 1)
    ]
    yield from ("#### Model Requests", "")
    yield from (*table(("Request", "Model", "Status", "Tokens", "Time"), rows), "")
    if len(requests) > _MAX_CALLS:
        yield from (f"*… and {plural(len(requests) - _MAX_CALLS, 'more request')}.*", "")


def _attempts(result: TestResult) -> Iterator[str]:
    if result.attempts:
        rows = [
            (str(attempt.number), inline(attempt.error, 500), _milliseconds(attempt.retry_after_ms))
            for attempt in result.attempts
        ]
        yield from ("#### Attempts", "", "Calls of the agent that failed:", "")
        yield from (*table(("Attempt", "Error", "Waited before the next"), rows), "")


def _earlier_runs(result: TestResult) -> Iterator[str]:
    if result.tries:
        yield from (f"{_PART} Earlier Tries", "", "The case was run again after these:", "")
        yield from _runs_table("Try", result.tries)


def _reason(result: TestResult) -> str:
    return inline("; ".join(result.reasons()), 500)


def _verdict(passed: bool) -> str:
    return "✅ pass" if passed else "❌ fail"


def _milliseconds(elapsed: int | None) -> str:
    return "–" if elapsed is None else f"{elapsed}ms"
