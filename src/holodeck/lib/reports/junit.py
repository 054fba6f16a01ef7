"""The reports that CI services read: JUnit XML, and the code quality report of GitLab.

JUnit has no standard. What is written here is what Surefire writes and GitHub, GitLab, Jenkins and
Buildkite read: flaky cases pass and hold a `flakyFailure` for each run that did not, `file` and
`line` are attributes of a `testcase`, and `type` of a `failure` is the check that failed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from holodeck.lib.reports.failures import explain, explained_lines
from holodeck.lib.reports.locations import path_in_checkout, place_of
from holodeck.lib.reports.markdown import json_text
from holodeck.lib.reports.summary import count_ran
from holodeck.lib.support.text import one_line, printable, shorten_middle
from holodeck.models.test_result import (
    Outcome,
    PartResult,
    TestReport,
    TestResult,
    ToolInvocation,
)

_MAX_NAME = 200
_MAX_MESSAGE = 500
_MAX_TEXT = 20_000
_MAX_VALUE = 2_000
_ERRORS = frozenset({Outcome.AGENT_ERROR, Outcome.METRIC_ERROR, Outcome.UNCHECKED})
_COUNTS = ("tests", "failures", "errors", "skipped")
_COUNTED = {Outcome.FAILED: "failures", Outcome.SKIPPED: "skipped"} | dict.fromkeys(
    _ERRORS, "errors"
)


def generate_junit_report(report: TestReport) -> str:
    """Return the report as JUnit XML.

    A run that ended early, or in which no test ran, has an error of its own, so that it cannot be
    taken for a run that passed.
    """
    suites: dict[tuple[str, str | None], list[TestResult]] = {}
    for result in report.results:
        suites.setdefault((result.agent_name or report.agent_name, result.suite), []).append(result)
    incomplete = why_incomplete(report)
    counts = _counts(report.results)
    if incomplete is not None:
        counts.update(("tests", "errors"))
    wall_time_ms = report.summary.wall_time_ms
    root = Element("testsuites", _totals(report.agent_name, counts, wall_time_ms))
    for (agent, name), results in suites.items():
        _add_suite(root, report, agent, name, results)
    if incomplete is not None:
        _add_run_suite(root, report, incomplete)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def _totals(name: str, counts: Counter[str], elapsed_ms: int) -> dict[str, str]:
    totals = {count: str(counts[count]) for count in _COUNTS}
    return {"name": _name(name), **totals, "time": _seconds(elapsed_ms)}


def _counts(results: Sequence[TestResult]) -> Counter[str]:
    counts = Counter(_COUNTED[row.outcome] for row in results if row.outcome in _COUNTED)
    counts["tests"] = len(results)
    return counts


def case_title(result: TestResult) -> str:
    """Return the name of a case, or the beginning of its input."""
    return _name(result.written_name or result.test_input)


def why_incomplete(report: TestReport) -> str | None:
    """Return why the run as a whole did not pass although its tests may have; None if it did."""
    if report.stopped is not None:
        return report.stopped
    if report.interrupted:
        return f"interrupted: {count_ran(report)} ran"
    return None if report.ran else "no test ran"


def _add_run_suite(root: Element, report: TestReport, reason: str) -> None:
    error = {"type": "incomplete", "message": _message([reason])}
    case = {"name": "the run is complete", "time": "0.000", "classname": _name(report.agent_name)}
    suite = {"name": "run", "tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    _add(_add(_add(root, "testsuite", suite), "testcase", case), "error", error, reason)


def _add_suite(
    root: Element, report: TestReport, agent: str, name: str | None, results: list[TestResult]
) -> None:
    """Add the cases of an agent and a suite."""
    first, elapsed_ms = results[0], sum(result.execution_time_ms for result in results)
    facts = {
        "agent": agent,
        "configuration": report.config_path_of(first),
        "holodeck_version": report.holodeck_version,
        **report.environment,
    }
    if report.selection is not None:
        facts["selection"] = str(report.selection)
    named = [(_name(key), value) for key, value in facts.items()]
    named += [(f"note {number}", note) for number, note in enumerate(report.notes, 1)]
    totals = _totals(first.group or agent, _counts(results), elapsed_ms)
    suite = _add(root, "testsuite", {**totals, "timestamp": report.timestamp})
    properties = _add(suite, "properties", {})
    for key, value in named:
        _add(properties, "property", {"name": key, "value": _message([value])})
    class_name = ".".join(dict.fromkeys((_name(agent), _name(name or agent))))
    for result in results:
        _add_case(suite, report, result, class_name)


def _add_case(suite: Element, report: TestReport, result: TestResult, class_name: str) -> None:
    attributes = {"name": case_title(result), "classname": class_name}
    file, line, _ = place_of(report, result)
    if result.location is not None:
        attributes["file"] = printable(file, keep_newlines=False)
    if line is not None:
        attributes["line"] = str(line)
    attributes["time"] = _seconds(result.execution_time_ms)
    case = _add(suite, "testcase", attributes)
    if result.outcome is Outcome.SKIPPED:
        _add(case, "skipped", {"message": _message([result.skip_reason or ""])})
        return
    is_flaky = result.outcome is Outcome.FLAKY
    if result.outcome is not Outcome.PASSED:
        if not is_flaky:
            tag = "error" if result.outcome in _ERRORS else "failure"
            _add(case, tag, _problem(result), "\n".join(_details(result)))
        for run in result.single_runs:
            if run is not result and run.outcome is not Outcome.PASSED:
                _add_earlier(case, "flaky" if is_flaky else "rerun", run)
    _add(case, "system-out", {}, "\n".join(_transcript(result)))


def _add_earlier(case: Element, prefix: str, run: TestResult) -> None:
    """Add a run of a case before the last, which did not pass."""
    tag = prefix + ("Error" if run.outcome in _ERRORS else "Failure")
    earlier = _add(case, tag, _problem(run))
    _add(earlier, "stackTrace", {}, "\n".join(_details(run)))
    _add(earlier, "system-out", {}, "\n".join(_transcript(run)))


def _problem(result: TestResult) -> dict[str, str]:
    """Return why a run did not pass: the check that decided, such as a metric, and the reasons."""
    kind = "agent_error"
    if result.outcome is not Outcome.AGENT_ERROR:
        checks = (reason.check for reason in result.detailed_reasons())
        kind = next(filter(None, checks), result.outcome.value)
    return {"type": _name(kind), "message": _message(result.reasons())}


def _add(parent: Element, tag: str, attributes: Mapping[str, str], text: str = "") -> Element:
    """Add an element without control characters, and not with megabytes of text; return it."""
    element = SubElement(
        parent, tag, {name: printable(value) for name, value in attributes.items()}
    )
    element.text = printable(shorten_middle(text, _MAX_TEXT)) or None
    return element


def _details(result: TestResult) -> Iterator[str]:
    """Yield where the case is, and why it did not pass, with what was expected and found there."""
    if result.location is not None:
        yield result.location
    for failure in explain(result):
        for reason in failure.reasons:
            yield str(reason)
            if reason.raised is not None:
                yield from (f"  {line}" for line in reason.raised.details[:-1])
        for title, text in failure.texts:
            yield f"{title}: {shorten_middle(text, _MAX_VALUE)}"
    missed = dict.fromkeys(row.metric_name for row in result.rows if row.is_missed)
    if missed:
        yield f"failing metrics: {', '.join(missed)}"


def _transcript(result: TestResult) -> Iterator[str]:
    """Yield what was said and called, in order."""
    for part in result.parts:
        yield f"user: {part.input}"
        yield from map(_call, part.tool_invocations)
        if part.agent_response is not None:
            yield f"agent: {part.agent_response}"
        yield from _metric_lines(part)


def _metric_lines(part: PartResult) -> Iterator[str]:
    for row in part.metric_results:
        score = "no score" if row.score is None else f"{row.score:.2f}"
        verdict = "error" if row.error else {True: "pass", False: "fail"}.get(bool(row.passed))
        reason = row.error or row.reasoning
        yield f"{row.metric_name}: {verdict}, {score}" + (f": {reason}" if reason else "")


def _call(call: ToolInvocation) -> str:
    end = f"error: {call.error}" if call.error else json_text(call.result)
    stub = f" ({call.stub})" if call.stub else ""
    return f"tool: {call.name}({json_text(call.args)}){stub} -> {end}"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}"


def _name(text: str) -> str:
    return one_line(text, _MAX_NAME) or "–"


def _message(lines: Iterable[str]) -> str:
    return one_line("; ".join(lines), _MAX_MESSAGE)


_SEVERITY = {
    Outcome.FAILED: "critical",
    Outcome.AGENT_ERROR: "critical",
    Outcome.METRIC_ERROR: "major",
    Outcome.UNCHECKED: "major",
    Outcome.FLAKY: "minor",
}
_MAX_DESCRIPTION = 500


def generate_code_quality_report(report: TestReport) -> str:
    """Return the problems of a run as JSON; an empty list if every test passed each time."""
    results = (result for result in report.results if result.outcome in _SEVERITY)
    problems = [_problem_of_case(report, result) for result in results]
    incomplete = why_incomplete(report)
    if incomplete is not None:
        problems.append(_problem_of_run(report, incomplete))
    return json.dumps(problems, indent=2, ensure_ascii=False) + "\n"


def _problem_of_run(report: TestReport, reason: str) -> dict[str, Any]:
    """Return the problem that results are missing, which must not look like no problem."""
    path, origin = report.agent_config_path, report.origin
    if report.merged:
        path, origin = report.merged[0].agent_config_path, report.merged[0].origin
    return {
        "description": one_line(f"the run is not complete: {reason}", _MAX_DESCRIPTION),
        "check_name": "holodeck/incomplete",
        "fingerprint": hashlib.sha256(report.agent_name.encode(errors="replace")).hexdigest(),
        "severity": "blocker",
        "location": {"path": path_in_checkout(path, origin), "lines": {"begin": 1}},
    }


def _problem_of_case(report: TestReport, result: TestResult) -> dict[str, Any]:
    file, line, _ = place_of(report, result)
    name = case_title(result)
    agent = result.agent_name or report.agent_name
    identity = "\0".join((agent, result.suite or "", result.test_id or name))
    description = f"{name}: {'; '.join(explained_lines(result, _MAX_DESCRIPTION))}"
    return {
        "description": one_line(description, _MAX_DESCRIPTION),
        "check_name": f"holodeck/{result.outcome.value}",
        "fingerprint": hashlib.sha256(identity.encode(errors="replace")).hexdigest(),
        "severity": _SEVERITY[result.outcome],
        "location": {"path": file, "lines": {"begin": line or 1}},
    }
