"""One HTML page about results: without scripts and other files, and any text shown as it is."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.markdown import BLOCK_LIMIT, json_text
from holodeck.lib.reports.summary import unknown_usage_note
from holodeck.lib.text import one_line, percent, plural, printable
from holodeck.models.spans import RecordedSpan
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestReport,
    TestResult,
    ToolInvocation,
    TurnResult,
)

_MAX_NAME = 200
_MAX_REASON = 500

_SYMBOLS = {"passed": "✓", "failed": "✗", "error": "⚠", "other": "–"}
"""Kind of status → its symbol, so that color is never the only difference."""


@dataclass(frozen=True)
class CasePart:
    """A text about a case, under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class CaseRow:
    """One case of a page."""

    name: str
    status: str
    """As shown, for example "PASS"."""
    kind: str
    """"passed", "failed", "error" or "other"."""
    score: float | None
    """Mean of its scores; None without any."""
    elapsed_ms: float
    reasons: Sequence[str] = ()
    """Why it did not pass, or what its checks say."""
    parts: Sequence[CasePart] = ()


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    title: str
    facts: Sequence[tuple[str, str]]
    """Label → value, under the title."""
    figures: Sequence[tuple[str, str]]
    """Label → number, of the whole run."""
    thing: str
    """What a row is: "Test case" or "Scenario"."""
    cases: Sequence[CaseRow]
    notes: Sequence[str] = field(default=())
    """What readers must know to judge the results."""


def generate_html_report(report: TestReport) -> str:
    """Return the report as an HTML page."""
    summary = report.summary
    environment = [f"{name}: {value}" for name, value in report.environment.items()]
    facts = [
        ("Configuration", report.agent_config_path),
        ("Generated", report.timestamp),
        ("HoloDeck version", report.holodeck_version),
        *([("Environment", ", ".join(environment))] if environment else []),
        *([("Prompts", ", ".join(map(str, report.prompts)))] if report.prompts else []),
        *([("Selected", str(report.selection))] if report.selection is not None else []),
    ]
    figures = [
        ("Pass rate", percent(summary.pass_rate, 1)),
        ("Passed", str(summary.passed)),
        ("Failed", str(summary.failed)),
        *([("Skipped", str(summary.skipped))] if summary.skipped else []),
        *([("Flaky", str(summary.flaky))] if summary.flaky else []),
        ("Wall time", f"{summary.wall_time_ms / 1000:.1f} s"),
    ]
    usage = summary.token_usage
    if usage.total_tokens:
        figures.append(("Tokens", f"{usage.total_tokens:,}{unknown_usage_note(summary)}"))
    if summary.cost is not None:
        figures.append(("Cost", describe_cost(summary.cost)))
    notes = list(report.notes)
    if report.stopped is not None:
        notes.insert(0, f"Stopped: {report.stopped}")
    if report.interrupted:
        notes.insert(0, f"Interrupted: {plural(report.ran, 'test')} ran.")
    return render_page(
        Page(
            title=f"Test Report: {report.agent_name}",
            facts=facts,
            figures=figures,
            thing="Test case",
            cases=list(map(_case_row, report.results)),
            notes=notes,
        )
    )


_KINDS = {
    Outcome.PASSED: "passed",
    Outcome.FLAKY: "passed",
    Outcome.FAILED: "failed",
    Outcome.AGENT_ERROR: "error",
    Outcome.METRIC_ERROR: "error",
}


def _case_row(result: TestResult) -> CaseRow:
    scores = [row.score for row in result.rows if row.score is not None]
    name = result.test_name or "Unnamed test"
    return CaseRow(
        name=f"{result.group} › {name}" if result.group else name,
        status=result.outcome.value.replace("_", " ").upper(),
        kind=_KINDS.get(result.outcome, "other"),
        score=sum(scores) / len(scores) if scores else None,
        elapsed_ms=result.execution_time_ms,
        reasons=result.reasons(),
        parts=list(_parts(result)),
    )


def _parts(result: TestResult) -> Iterator[CasePart]:
    if not result.turns:
        yield from _exchange(result.test_input, result)
    for number, turn in enumerate(result.turns, 1):
        yield from _exchange(turn.input, turn, f"Turn {number}: ")
    if result.turns and result.metric_results:
        yield CasePart("Checks of the conversation", _checks(result))
    if result.criteria:
        lines = [f"{one.status}: {one.criterion} {one.reasoning or ''}" for one in result.criteria]
        yield CasePart("Criteria", "\n".join(map(str.rstrip, lines)))
    for raised in result.raised:
        yield CasePart("Raised", "\n".join([*raised.traceback, raised.error]))
    if result.cost is not None:
        yield CasePart("Cost", describe_cost(result.cost))
    for number, one in enumerate(result.repeats.runs if result.repeats else (), 1):
        verdict = "; ".join([one.outcome.value, *one.reasons()])
        yield CasePart(f"Repetition {number}", f"{verdict}\n\n{one.agent_response or ''}".rstrip())


def _exchange(message: str, seen: TestResult | TurnResult, prefix: str = "") -> Iterator[CasePart]:
    yield CasePart(f"{prefix}Input", message)
    if isinstance(seen, TestResult) and seen.repeats is not None:
        return
    yield CasePart(f"{prefix}Response", seen.agent_response or "(no response)")
    if seen.ground_truth is not None:
        yield CasePart(f"{prefix}Expected", seen.ground_truth)
    if seen.tool_invocations:
        yield CasePart(f"{prefix}Tool calls", "\n".join(map(_call, seen.tool_invocations)))
    elif seen.tool_calls:
        yield CasePart(f"{prefix}Tool calls", "\n".join(seen.tool_calls))
    if seen.trace is not None:
        yield CasePart(f"{prefix}Spans", "\n".join(map(_span, seen.trace.spans)) or "(none)")
    checks = _checks(seen)
    if checks:
        yield CasePart(f"{prefix}Checks", checks)


def _call(call: ToolInvocation) -> str:
    end = f"error: {call.error}" if call.error else json_text(call.result)
    return f"{call.name}({json_text(call.args)}) → {end}"


def _span(span: RecordedSpan) -> str:
    facts = f"{span.name} ({span.status}, {span.duration_ms:.4g}ms)"
    return f"{facts} {json_text(span.attributes)}" if span.attributes else facts


def _checks(seen: TestResult | TurnResult) -> str:
    """Return a line for each metric and each check of tools."""
    lines = [_metric(row) for row in seen.metric_results]
    for check in seen.tool_checks:
        verdict = "error" if check.error else _verdict(check.passed)
        lines.append(f"{verdict}: {check.expectation} {check.error or check.reason or ''}".rstrip())
    return "\n".join(lines)


def _metric(row: MetricResult) -> str:
    score = "" if row.score is None else f" {row.score:.4g}"
    least = "" if row.threshold is None else f" (threshold {row.threshold:.4g})"
    verdict = "error" if row.error else _verdict(row.passed)
    why = " ".join(filter(None, [row.error, row.reasoning]))
    return f"{verdict}: {row.metric_name}{score}{least} {why}".rstrip()


def _verdict(passed: bool | None) -> str:
    return {True: "pass", False: "fail", None: "reported only"}[passed]


def render_page(page: Page) -> str:
    """Return the page as one HTML document."""
    return "\n".join(_document(page)) + "\n"


def _document(page: Page) -> Iterator[str]:
    title = _text(page.title, _MAX_NAME)
    yield _HEAD.format(title=title, style=_STYLE)
    yield f"<header><h1>{title}</h1>"
    yield from _pairs(page.facts, "facts")
    yield "</header>"
    yield "<main>"
    for note in page.notes:
        yield f'<p class="note"><strong>Note:</strong> {_text(note, 2_000)}</p>'
    yield '<section aria-labelledby="summary"><h2 id="summary">Summary</h2>'
    yield from _pairs(page.figures, "figures")
    yield "</section>"
    yield '<section aria-labelledby="results"><h2 id="results">Results</h2>'
    if page.cases:
        yield from _table(page)
    else:
        yield "<p>Nothing was run.</p>"
    yield "</section>"
    yield '<section aria-labelledby="details"><h2 id="details">Details</h2>'
    for number, case in enumerate(page.cases, 1):
        yield from _details(number, case)
    yield "</section></main></body></html>"


def _pairs(pairs: Iterable[tuple[str, str]], kind: str) -> Iterator[str]:
    yield f'<dl class="{kind}">'
    for label, value in pairs:
        yield f"<div><dt>{_text(label, 100)}</dt><dd>{_text(value, 1_000)}</dd></div>"
    yield "</dl>"


def _table(page: Page) -> Iterator[str]:
    columns = (page.thing, "Status", "Score", "Duration", "Details")
    yield "<table><thead><tr>"
    yield "".join(f'<th scope="col">{_text(one, 100)}</th>' for one in columns)
    yield "</tr></thead><tbody>"
    for number, case in enumerate(page.cases, 1):
        name = f'<a href="#case-{number}">{_text(case.name, _MAX_NAME)}</a>'
        cells = (
            _status(case),
            "–" if case.score is None else f"{case.score:.2f}",
            f"{case.elapsed_ms:.0f} ms",
            _text("; ".join(case.reasons), _MAX_REASON),
        )
        row = "".join(
            f'<td data-label="{label}">{cell}</td>'
            for label, cell in zip(columns[1:], cells, strict=True)
        )
        yield f'<tr><th scope="row">{name}</th>{row}</tr>'
    yield "</tbody></table>"


def _details(number: int, case: CaseRow) -> Iterator[str]:
    is_open = "" if case.kind == "passed" else " open"
    name = _text(case.name, _MAX_NAME)
    yield f'<details id="case-{number}"{is_open}>'
    yield f"<summary>{_status(case)} {name}</summary>"
    if case.reasons:
        reasons = "".join(f"<li>{_text(one, 2_000)}</li>" for one in case.reasons)
        yield f"<ul>{reasons}</ul>"
    for part in case.parts:
        yield f"<h3>{_text(part.title, 100)}</h3>"
        yield f'<pre tabindex="0">{_block(part.text)}</pre>'
    yield "</details>"


def _status(case: CaseRow) -> str:
    symbol = f'<span aria-hidden="true">{_SYMBOLS[case.kind]}</span>'
    return f'<span class="status {case.kind}">{symbol} {_text(case.status, 40)}</span>'


def _text(text: str, limit: int) -> str:
    """Return a text on one line, without markup."""
    return escape(one_line(text, limit))


def _block(text: str) -> str:
    """Return a text of several lines, without markup, shortened to BLOCK_LIMIT characters."""
    shown = escape(printable(text[:BLOCK_LIMIT]))
    hidden = len(text) - BLOCK_LIMIT
    return (
        shown if hidden <= 0 else f"{shown}\n… {hidden:,} of {len(text):,} characters are omitted"
    )


_HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>"""
_STYLE = """\
:root { --ink: #1c2024; --dim: #545b64; --paper: #fff; --line: #cfd4da; --soft: #f2f4f6;
  --passed: #0b6b34; --failed: #b3141d; --error: #7a4a00; --other: #4a5159; --link: #0a4fa3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --dim: #a9b0b8; --paper: #16191d; --line: #3c434b; --soft: #21262c;
    --passed: #5fd38d; --failed: #ff8f8f; --error: #f2b95c; --other: #b8bfc7; --link: #8ab8ff; } }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
a { color: var(--link); }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0; }
dt { color: var(--dim); font-size: .875rem; }
dd { margin: 0; }
.figures { padding: .75rem 1rem; background: var(--soft); }
.figures dd { font-size: 1.5rem; }
.note { padding: .5rem 1rem; border-left: .3rem solid var(--error); background: var(--soft); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .5rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
thead th { white-space: nowrap; }
tbody th { font-weight: 600; }
.status { font-weight: 600; white-space: nowrap; }
.passed { color: var(--passed); } .failed { color: var(--failed); }
.error { color: var(--error); } .other { color: var(--other); }
details { border-bottom: 1px solid var(--line); padding: .5rem 0; }
summary { cursor: pointer; }
pre { margin: 0; padding: .5rem; background: var(--soft); white-space: pre-wrap;
  max-height: 30rem; overflow: auto; }
@media (max-width: 40rem) {
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr, tbody th, tbody td { display: block; }
  tbody tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  tbody th, tbody td { padding: .15rem 0; border: 0; }
  td:empty { display: none; }
  td[data-label]::before { content: attr(data-label) ": "; color: var(--dim); } }
@media print { pre { max-height: none; } }"""
