"""The part of the Markdown report about a test."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import TypeVar

from holodeck.lib.conversation.messages import transcript_of
from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.markdown import (
    BLOCK_LIMIT,
    INLINE_LIMIT,
    fenced,
    folded,
    html_inline,
    inline,
    json_text,
    table,
)
from holodeck.lib.support.text import one_line, plural, shorten_list
from holodeck.models.cases.messages import messages_of
from holodeck.models.results.evidence import RecordedSpan
from holodeck.models.results.outcome import CriterionRow, ModelCost, ModelRequest, RaisedError
from holodeck.models.results.turn import HandledRequest
from holodeck.models.test_case import ExpectedTool
from holodeck.models.test_result import (
    NO_RESULT,
    MetricResult,
    Outcome,
    ProcessedFileInput,
    Repeats,
    TestResult,
    ToolCheck,
    ToolInvocation,
    TurnResult,
)

STATUS = {
    Outcome.PASSED: "✅ PASSED",
    Outcome.FAILED: "❌ FAILED",
    Outcome.AGENT_ERROR: "⚠️ ERROR",
    Outcome.METRIC_ERROR: "⚠️ ERROR",
    Outcome.UNCHECKED: "❔ UNCHECKED",
    Outcome.FLAKY: "🎲 FLAKY",
    Outcome.SKIPPED: "⏭️ SKIPPED",
}
_MAX_ROWS = 50
_MAX_CELL = 120
_LONG = 500
Part = TestResult | TurnResult
T = TypeVar("T")


@dataclass(frozen=True)
class CaseSection:
    """Renders tests, with texts of up to `limit` characters in full."""

    limit: int = BLOCK_LIMIT
    link: Callable[[TestResult], str] = field(default=lambda _: "")
    """Returns a link to the place of a test; empty if there is none."""

    def open(self, result: TestResult, number: int) -> Iterator[str]:
        """Yield the lines about a test; `number` counts from 1 and names the anchor."""
        yield from (f'<a id="{anchor(number)}"></a>', "")
        yield from (f"### Test: {display_name(result)} {STATUS[result.outcome]}", "")
        yield from self._content(result)

    def folded(self, result: TestResult, number: int) -> Iterator[str]:
        """Yield the same lines, of which readers see the first until they unfold the others."""
        symbol = STATUS[result.outcome].split()[0]
        title = f'<a id="{anchor(number)}"></a>{symbol} {display_name(result, html_inline)}'
        why = "".join(f": {html_inline(reason, _MAX_CELL)}" for reason in result.reasons()[:1])
        yield from folded(title + why, self._content(result))

    def _content(self, result: TestResult) -> Iterator[str]:
        facts = [self.link(result), f"{result.execution_time_ms:,} ms"]
        if result.cost is not None:
            facts.append(f"cost {inline(describe_cost(result.cost), 1_000)}")
        yield from (" · ".join(filter(None, facts)), "")
        if result.history:
            history = transcript_of(messages_of(result.history))
            yield from self._text("Earlier messages", history)
        if result.skip_reason is not None or result.repeats is not None or not result.turns:
            yield from self._text("Input", result.test_input)
        if result.skip_reason is not None:
            yield from self._text("Skipped", result.skip_reason)
        elif result.repeats is not None:
            yield from self._repeats(result.repeats)
        else:
            yield from self._run(result)

    def _text(self, title: str, text: str | None) -> Iterator[str]:
        """Yield a text beside its title if it is a short line, else as a block."""
        if not text:
            yield from (f"**{title}:** *({'none' if text is None else 'empty'})*", "")
        elif _is_short(text):
            yield from (f"**{title}:** {inline(text)}", "")
        else:
            yield from (f"**{title}:**", "", *fenced(text, limit=self.limit), "")

    def _repeats(self, repeats: Repeats) -> Iterator[str]:
        """Yield tables of the repetitions and scores, then all about those that did not pass."""
        low, high = repeats.interval or (0, 1)
        yield from (f"**{repeats}**; 95 % interval {100 * low:.1f} % to {100 * high:.1f} %", "")
        yield from _runs_table("Repetition", repeats.runs)
        header = ("Metric", "Mean", "Least", "Most", "Standard Deviation", "Scored")
        rows = (
            (
                inline(spread.metric_name),
                *map(_figure, (spread.mean, spread.least, spread.most, spread.deviation)),
                str(spread.scored),
            )
            for spread in repeats.spread
        )
        yield from table(header, rows)
        for number, run in enumerate(repeats.runs, 1):
            if run.outcome is not Outcome.PASSED:
                yield from (f"#### Repetition {number} {STATUS[run.outcome]}", "")
                yield from self._run(run)

    def _run(self, result: TestResult) -> Iterator[str]:
        """Yield a single run: its turns, then what is about all of it."""
        for number, turn in enumerate(result.turns, 1):
            yield from (f"#### Turn {number}{_turn_status(result, turn)}", "")
            yield from self._text("Input", turn.input)
            yield from self._part(turn, turn.tool_invocations)
        if result.messages:
            yield from self._text("Transcript", transcript_of(result.messages))
        at_end = (result.metric_results, result.tool_checks, result.criteria, result.ending)
        if result.turns and (any(at_end) or result.ground_truth is not None):
            yield from ("#### Whole Conversation", "")
        if not result.turns:
            yield from self._part(result, result.tool_invocations)
        else:
            yield from self._checks(result, [])
        yield from self._conclusion(result)
        yield from _handled_table(result)
        yield from _requests_table(result)
        yield from (f"- ❌ {inline(error, 2_000)}" for error in result.errors)
        yield from [""] if result.errors else []
        ending = result.ending
        for raised in [*result.raised, *([ending.raised] if ending and ending.raised else [])]:
            yield from self._raised("Raised", raised)
        attempts = (
            (str(each.number), inline(each.error, _LONG), _milliseconds(each.retry_after_ms))
            for each in result.attempts
        )
        yield from table(("Failed attempt", "Error", "Waited before the next"), attempts)
        yield from _runs_table("Earlier try", result.tries)

    def _part(self, part: Part, calls: list[ToolInvocation]) -> Iterator[str]:
        """Yield a turn, or a case of a single input: files, response, and what was checked."""
        header = ("File", "Type", "Processing Time", "Status")
        yield from table(header, map(_file_row, part.processed_files))
        for file in part.processed_files:
            if file.metadata:
                facts = ", ".join(f"{key}: {value}" for key, value in file.metadata.items())
                yield from (f"- {inline(file.original.shown_path)}: {inline(facts)}", "")
        yield from self._text("Response", part.agent_response)
        if part.retrieval_context is not None:
            yield from self._text("Retrieved", "\n\n".join(part.retrieval_context) or None)
        if part.approvals:
            asked = "; ".join(
                f"{inline(str(each), _LONG)} {each.outcome}" for each in part.approvals
            )
            yield from (f"- **Approvals:** {asked}", "")
        yield from self._checks(part, calls)

    def _checks(self, part: Part, calls: list[ToolInvocation]) -> Iterator[str]:
        yield from self._tools(part, calls)
        yield from _spans(part)
        yield from self._metrics(part.metric_results)
        if part.ground_truth is not None:
            yield from self._text("Expected", part.ground_truth)

    def _tools(self, part: Part, calls: list[ToolInvocation]) -> Iterator[str]:
        """Yield the called and the expected tools, then each of `calls` with its result."""
        called, expected, agents = part.tool_calls, part.expected_tools, part.agents
        checks = [check for check in part.tool_checks if check.kind == "tools"]
        is_about_case = isinstance(part, TestResult) and bool(part.turns)
        if is_about_case and not checks:
            return
        if not (called or calls or agents or checks) and expected is None:
            return
        is_tapped = part.evidence.tool_calls == "tap"
        yield f"- **{'Tools requested' if is_tapped else 'Tools called'}:** {_called_tools(part)}"
        if expected is not None:
            wanted = [tool if isinstance(tool, str) else _expectation(tool) for tool in expected]
            yield f"- **Tools expected:** {_listed(wanted) if wanted else 'no tool may be called'}"
        if agents:
            yield f"- **Agents:** {' → '.join(map(inline, agents))}"
        if part.tools_matched is not None or checks:
            yield f"- **Match:** {_verdict(part.tools_matched)}"
        yield ""
        yield from _checks_table(checks)
        yield from self._calls(calls, is_tapped=is_tapped)

    def _calls(self, calls: list[ToolInvocation], *, is_tapped: bool) -> Iterator[str]:
        header = ("Call", "Tool", "Arguments", "Result", "Time", "Agent")
        has_agents = any(call.agent is not None for call in calls)

        def row(number: int, call: ToolInvocation) -> Sequence[str]:
            outcome = f"❌ {inline(call.error, _MAX_CELL)}" if call.error else _cell(call.result)
            if is_tapped and call.error == NO_RESULT:
                outcome = "requested; the tap saw no result"
            name = inline(call.name) + (f" ({call.stub})" if call.stub else "")
            agent = inline(call.agent or "unknown") if has_agents else ""
            took = _milliseconds(call.duration_ms)
            return str(number), name, _cell(call.args), outcome, took, agent

        yield from _first_rows(header, calls, row, "call")
        for number, call in enumerate(calls[:_MAX_ROWS], 1):
            if call.raised is not None:
                yield from self._raised(f"Call {number}, raised", call.raised)
            for title, value in (("arguments", call.args), ("result", call.result)):
                if len(json_text(value)) > _MAX_CELL:
                    block = fenced(json_text(value, indent=2), "json", self.limit)
                    yield from (f"Call {number}, {title}:", "", *block, "")

    def _metrics(self, rows: list[MetricResult]) -> Iterator[str]:
        header = ("Metric", "Score", "Threshold", "Status", "Reason", "Retries", "Model", "Time")
        judged = ("Judge Calls", "Judge Tokens", "Judge Time")
        yield from table((*header, *judged), map(_metric_row, rows))
        for row in rows:
            for what, text in (("reason", row.reasoning), ("error", row.error)):
                if text and not _is_short(text):
                    yield from self._text(f"{inline(row.metric_name)}, {what}", text)
            if row.raised is not None:
                yield from self._raised("Raised", row.raised)

    def _conclusion(self, result: TestResult) -> Iterator[str]:
        """Yield the end reason, the verdicts on the criteria, and the usage of models."""
        if result.ending is not None:
            reason = result.ending.reasoning or result.ending.code.replace("_", " ")
            yield from self._text("Ended", reason)
        cells = [
            (
                inline(row.criterion, _LONG),
                _criterion_status(row),
                inline(row.reasoning) if _is_short(row.reasoning) else "",
            )
            for row in result.criteria
        ]
        yield from table(("Criterion", "Status", "Reason"), cells)
        for row in result.criteria:
            if not _is_short(row.reasoning):
                yield from self._text(f"{inline(row.criterion)}, reason", row.reasoning)
        costs = (("Judge", result.judge_cost), ("Simulated user", result.simulator_cost))
        lines = [_model_cost(who, cost) for who, cost in costs if cost is not None]
        yield from [*lines, ""] if lines else []

    def _raised(self, title: str, raised: RaisedError) -> Iterator[str]:
        """Yield the traceback of an error in the user's code, outermost frame first."""
        yield from (f"{title}:", "", *fenced("\n".join(raised.details), limit=self.limit), "")


def display_name(result: TestResult, escape: Callable[[str, int], str] = inline) -> str:
    """Return the name of the test without markup; of several agents, also that of its agent."""
    name = escape(result.title, _MAX_CELL)
    agent = "" if result.agent_name is None else f"{escape(result.agent_name, _MAX_CELL)} › "
    return agent + name


def anchor(number: int) -> str:
    """Return the target of links to the test."""
    return f"test-{number}"


def _is_short(text: str) -> bool:
    """Return whether a text is a short line, which needs no block."""
    return len(text) <= INLINE_LIMIT and one_line(text, INLINE_LIMIT) == text


def _criterion_status(row: CriterionRow) -> str:
    status = {"passed": "pass", "failed": "fail"}.get(row.status, row.status)
    shown = f"❌ {status}" if row.required else f"{status}, reported only"
    return f"{'✅ pass' if status == 'pass' else shown}{_judge_trust(row)}"


def _judge_trust(row: CriterionRow | MetricResult) -> str:
    """Return how far the judge is trusted, and by which limits; empty if that plays no part."""
    if row.judge_trust is None:
        return ""
    limits = "" if row.judge_limits is None else f" ({row.judge_limits})"
    return f", judge {row.judge_trust}{limits}"


def _model_cost(who: str, cost: ModelCost) -> str:
    tokens = plural(cost.tokens.total_tokens, "token")
    cached = f", {plural(cost.kept, 'cached response')}" if cost.kept else ""
    calls = plural(cost.calls, "call")
    calls += f" ({cost.failed} not answered)" if cost.failed else ""
    return f"- **{who}:** {inline(cost.model or '–')}, {calls}{cached}, {tokens}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _runs_table(what: str, runs: list[TestResult]) -> Iterable[str]:
    rows = (
        (
            str(number),
            STATUS[run.outcome],
            inline("; ".join(run.reasons()), _LONG),
            _milliseconds(run.execution_time_ms),
        )
        for number, run in enumerate(runs, 1)
    )
    return table((what, "Status", "Reason", "Time"), rows)


def _turn_status(result: TestResult, turn: TurnResult) -> str:
    if turn.outcome is not None:
        return f" {STATUS[turn.outcome]}"
    return "" if result.ending is not None and not result.ending.broke else " not graded"


def _file_row(file: ProcessedFileInput) -> tuple[str, ...]:
    status = "✅ processed" if file.error is None else f"❌ {inline(file.error)}"
    took = _milliseconds(file.processing_time_ms)
    return inline(file.original.shown_path), inline(file.original.type), took, status


def _spans(part: Part) -> Iterator[str]:
    """Yield the checks of spans, and the spans that were seen."""
    yield from _checks_table([check for check in part.tool_checks if check.kind == "trace"])
    spans = [] if part.trace is None else part.trace.spans

    def row(_: int, span: RecordedSpan) -> Sequence[str]:
        took = f"{span.duration_ms:.4g}ms"
        return inline(span.name, _MAX_CELL), span.status, took, _cell(span.attributes)

    yield from _first_rows(("Span", "Status", "Time", "Attributes"), spans, row, "span")


def _first_rows(
    header: Sequence[str], items: Sequence[T], row: Callable[[int, T], Sequence[str]], what: str
) -> Iterator[str]:
    """Yield a table of the first items, by their number from 1, and how many more there are."""
    yield from table(header, starmap(row, enumerate(items[:_MAX_ROWS], 1)))
    if len(items) > _MAX_ROWS:
        yield from (f"*… and {plural(len(items) - _MAX_ROWS, f'more {what}')}.*", "")


def _called_tools(part: Part) -> str:
    if part.evidence.tool_calls == "tap":
        return f"{_listed(part.tool_calls)} (requested by the model, seen by the tap)"
    if part.evidence.tool_calls is not None:
        return _listed(part.tool_calls)
    return f"{_listed(part.tool_calls)}, others are unknown" if part.tool_calls else "unknown"


def _listed(names: list[str]) -> str:
    return shorten_list([inline(name) for name in names], _MAX_ROWS) or "none"


def _expectation(tool: ExpectedTool) -> str:
    args = f" with {json_text(tool.args)}" if tool.args else ""
    agent = f" by {tool.agent}" if tool.agent is not None else ""
    result = f", result {json_text(tool.result)}" if tool.result is not None else ""
    error = {None: "", True: ", failing", False: ", without error"}[tool.error]
    count = f", {plural(tool.count, 'time')}" if tool.count is not None else ""
    return f"{tool.name}{args}{agent}{result}{error}{count}"


def _checks_table(checks: Sequence[ToolCheck]) -> Iterable[str]:
    rows = (
        (
            inline(check.expectation),
            _verdict(check.passed) if check.error is None else "⚠️ error",
            inline(check.error or check.reason or ""),
        )
        for check in checks
    )
    return table(("Expectation", "Status", "Reason"), rows)


def _cell(value: object) -> str:
    return inline(json_text(value), _MAX_CELL)


def _metric_row(row: MetricResult) -> tuple[str, ...]:
    has_judge = bool(row.judge_calls)
    tokens = "–" if row.judge_tokens is None else str(row.judge_tokens.total_tokens)
    unanswered = f" ({row.judge_failed} not answered)" if row.judge_failed else ""
    return (
        inline(row.metric_name),
        _score(row),
        _figure(row.threshold),
        _metric_status(row),
        "; ".join(
            inline(text)
            for text in (row.reasoning, row.error, row.note)
            if text and _is_short(text)
        ),
        str(row.retry_count or "–"),
        inline(row.model_used or "–"),
        _milliseconds(row.evaluation_time_ms),
        f"{row.judge_calls}{unanswered}" if has_judge else "–",
        tokens,
        _milliseconds(row.judge_ms),
    )


def _score(row: MetricResult) -> str:
    if row.score is None:
        return "not computed"
    if row.raw_score is None:
        return f"{row.score:.4g}"
    return f"{row.score:.4g} ({row.raw_score:g} of {inline(row.raw_scale or '?')})"


def _metric_status(row: MetricResult) -> str:
    note = "" if row.required or row.passed is None else ", reported only"
    note += _judge_trust(row)
    if row.error is not None:
        return f"⚠️ error{note}"
    if row.inconclusive:
        return f"⚠️ inconclusive{note}"
    verdict = "reported only" if row.passed is None else _verdict(row.passed)
    return f"{verdict}{note}"


def _handled_table(result: TestResult) -> Iterator[str]:
    """Yield the requests that a scripted model answered, or that have faults."""

    def row(number: int, request: HandledRequest) -> Sequence[str]:
        return str(number), str(request) or "–"

    yield from _first_rows(("Request", "Answer"), result.handled_requests, row, "request")


def _requests_table(result: TestResult) -> Iterator[str]:
    """Yield the requests that a tap saw."""

    def row(number: int, request: ModelRequest) -> Sequence[str]:
        return (
            str(number),
            inline(request.model or "–"),
            "no response" if request.status is None else str(request.status),
            "–" if request.token_usage is None else str(request.token_usage.total_tokens),
            _milliseconds(request.elapsed_ms),
        )

    header = ("Model Request", "Model", "Status", "Tokens", "Time")
    yield from _first_rows(header, result.model_requests, row, "request")


def _verdict(passed: bool | None) -> str:
    return {True: "✅ pass", False: "❌ fail", None: "⚠️ unknown"}[passed]


def _milliseconds(elapsed: int | None) -> str:
    return "–" if elapsed is None else f"{elapsed}ms"
