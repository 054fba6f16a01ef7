"""The report as JUnit XML, which GitHub, GitLab, Jenkins and Buildkite read.

JUnit has no standard. What is written here is what Surefire writes and these services read: flaky
cases pass and hold a `flakyFailure` for each run that did not, `file` and `line` are attributes of
a `testcase`, and `type` of a `failure` is the check that failed.
"""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from holodeck.lib.reports.locations import place_of
from holodeck.lib.reports.markdown import json_text
from holodeck.lib.text import one_line, plural, printable, shorten_middle
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestReport,
    TestResult,
    ToolInvocation,
    TurnResult,
)

_MAX_NAME = 200
_MAX_MESSAGE = 500
_MAX_TEXT = 20_000
_MAX_VALUE = 2_000
_ERRORS = frozenset({Outcome.AGENT_ERROR, Outcome.METRIC_ERROR, Outcome.UNCHECKED})


def generate_junit_report(report: TestReport) -> str:
    """Return the report as JUnit XML.

    A run that ended early, or in which no test ran, has an error of its own, so that it cannot be
    taken for one that passed.
    """
    suites: dict[tuple[str, str | None], list[TestResult]] = {}
    for result in report.results:
        key = result.agent_name or report.agent_name, result.suite
        suites.setdefault(key, []).append(result)
    root = ET.Element("testsuites", name=_name(report.agent_name))
    root.extend(_suite(report, *key, results) for key, results in suites.items())
    incomplete = why_incomplete(report)
    if incomplete is not None:
        root.append(_run_suite(report, incomplete))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    root.set("time", _seconds(report.summary.wall_time_ms))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def case_title(result: TestResult) -> str:
    """Return the name of a case, or the beginning of its input."""
    return _name(result.test_name or result.test_input)


def why_incomplete(report: TestReport) -> str | None:
    """Return why the run as a whole did not pass although its tests may have; None if it did."""
    if report.stopped is not None:
        return report.stopped
    if report.interrupted:
        ran = report.ran if report.planned_tests is None else f"{report.ran} of"
        return f"interrupted: {ran} {plural(report.planned_tests or 0, 'test')} ran"
    return None if report.ran else "no test ran"


def _run_suite(report: TestReport, reason: str) -> ET.Element:
    suite = ET.Element("testsuite", name="run", tests="1", failures="0", errors="1", skipped="0")
    case = ET.SubElement(suite, "testcase", name="the run is complete", time="0.000")
    case.set("classname", _name(report.agent_name))
    error = ET.SubElement(case, "error", type="incomplete", message=_message([reason]))
    error.text = _text(reason)
    return suite


def _suite(
    report: TestReport, agent: str, name: str | None, results: Sequence[TestResult]
) -> ET.Element:
    outcomes = [one.outcome for one in results]
    title = _name(results[0].group or agent)
    suite = ET.Element("testsuite", name=title, tests=str(len(results)))
    suite.set("failures", str(outcomes.count(Outcome.FAILED)))
    suite.set("errors", str(sum(one in _ERRORS for one in outcomes)))
    suite.set("skipped", str(outcomes.count(Outcome.SKIPPED)))
    suite.set("time", _seconds(sum(one.execution_time_ms for one in results)))
    suite.set("timestamp", report.timestamp)
    facts = {
        "agent": agent,
        "configuration": report.config_path_of(results[0]),
        "holodeck_version": report.holodeck_version,
        **report.environment,
    }
    if report.selection is not None:
        facts["selection"] = str(report.selection)
    properties = ET.SubElement(suite, "properties")
    for key, value in facts.items():
        ET.SubElement(properties, "property", name=_name(key), value=_message([value]))
    for number, note in enumerate(report.notes, 1):
        ET.SubElement(properties, "property", name=f"note {number}", value=_message([note]))
    class_name = ".".join(dict.fromkeys((_name(agent), _name(name or agent))))
    suite.extend(_case(report, one, class_name) for one in results)
    return suite


def _case(report: TestReport, result: TestResult, class_name: str) -> ET.Element:
    case = ET.Element("testcase", name=case_title(result), classname=class_name)
    file, line, _ = place_of(report, result)
    if result.location is not None:
        case.set("file", printable(file, keep_newlines=False))
    if line is not None:
        case.set("line", str(line))
    case.set("time", _seconds(result.execution_time_ms))
    runs = [one for one in result.single_runs if one is not result]
    if result.outcome is Outcome.SKIPPED:
        ET.SubElement(case, "skipped", message=_message([result.skip_reason or ""]))
    elif result.outcome is Outcome.FLAKY:
        case.extend(_earlier("flaky", one) for one in runs if one.outcome is not Outcome.PASSED)
    elif result.outcome is not Outcome.PASSED:
        case.append(_problem(result))
        case.extend(_earlier("rerun", one) for one in runs if one.outcome is not Outcome.PASSED)
    if result.outcome is not Outcome.SKIPPED:
        ET.SubElement(case, "system-out").text = _text("\n".join(_transcript(result)))
    return case


def _problem(result: TestResult) -> ET.Element:
    """Return the `failure` or `error` of a case, with everything needed to understand it."""
    tag = "error" if result.outcome in _ERRORS else "failure"
    problem = ET.Element(tag, type=_name(_kind(result)), message=_message(result.reasons()))
    problem.text = _text("\n".join(_details(result)))
    return problem


def _earlier(prefix: str, result: TestResult) -> ET.Element:
    """Return a run of a case that is not the last one and did not pass."""
    tag = prefix + ("Error" if result.outcome in _ERRORS else "Failure")
    problem = ET.Element(tag, type=_name(_kind(result)), message=_message(result.reasons()))
    ET.SubElement(problem, "stackTrace").text = _text("\n".join(_details(result)))
    ET.SubElement(problem, "system-out").text = _text("\n".join(_transcript(result)))
    return problem


def _kind(result: TestResult) -> str:
    """Return the check that decided, such as the metric that failed."""
    if result.outcome is Outcome.AGENT_ERROR:
        return "agent_error"
    parts: list[TestResult | TurnResult] = [*result.turns, result]
    if result.repeats is not None:
        parts = [*result.repeats.runs]
    for part in parts:
        if any(not one.passed for one in part.tool_checks):
            return "expected_tools"
        for row in part.metric_results:
            if _is_missed(row):
                return row.metric_name
        if isinstance(part, TestResult) and any(row.is_missed for row in part.criteria):
            return "criteria"
    return result.outcome.value


def _is_missed(row: MetricResult) -> bool:
    return row.required and bool(row.error or row.inconclusive or row.passed is False)


def _details(result: TestResult) -> Iterator[str]:
    """Yield where the case is, why it did not pass, and for metrics what was expected and found."""
    if result.location is not None:
        yield result.location
    for reason in result.detailed_reasons():
        yield str(reason)
        if reason.raised is not None:
            yield from (f"  {line}" for line in reason.raised.details[:-1])
    missed = [row for row in result.rows if _is_missed(row)]
    if missed:
        names = ", ".join(dict.fromkeys(row.metric_name for row in missed))
        yield f"failing metrics: {names}"
    if result.ground_truth is not None:
        yield f"expected: {shorten_middle(result.ground_truth, _MAX_VALUE)}"
    if result.agent_response is not None:
        yield f"found: {shorten_middle(result.agent_response, _MAX_VALUE)}"


def _transcript(result: TestResult) -> Iterator[str]:
    """Yield what was said and called, in order."""
    parts: Sequence[TestResult | TurnResult] = result.turns or [result]
    for part in parts:
        said = part.test_input if isinstance(part, TestResult) else part.input
        yield f"user: {said}"
        yield from map(_call, part.tool_invocations)
        if part.agent_response is not None:
            yield f"agent: {part.agent_response}"
        yield from _metric_lines(part)


def _metric_lines(part: TestResult | TurnResult) -> Iterator[str]:
    for row in part.metric_results:
        score = "no score" if row.score is None else f"{row.score:.2f}"
        verdict = "error" if row.error else {True: "pass", False: "fail"}.get(bool(row.passed))
        reason = row.error or row.reasoning
        yield f"{row.metric_name}: {verdict}, {score}" + (f": {reason}" if reason else "")


def _call(call: ToolInvocation) -> str:
    end = f"error: {call.error}" if call.error else json_text(call.result)
    return f"tool: {call.name}({json_text(call.args)}) -> {end}"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}"


def _name(text: str) -> str:
    return one_line(text, _MAX_NAME) or "–"


def _message(lines: Iterable[str]) -> str:
    return one_line("; ".join(lines), _MAX_MESSAGE)


def _text(text: str) -> str:
    """Return text that XML can hold: no control characters, and not megabytes of it."""
    return printable(shorten_middle(text, _MAX_TEXT))
