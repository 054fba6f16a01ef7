"""What GitHub Actions shows of a run: annotations on lines of YAML, and a step summary."""

from collections.abc import Iterator
from pathlib import Path

from holodeck.lib.reports.case_section import STATUS
from holodeck.lib.reports.failure_groups import NOT_PASSED, group_failures
from holodeck.lib.reports.junit import case_title, place_of
from holodeck.lib.reports.markdown import inline, table
from holodeck.lib.text import one_line, plural
from holodeck.models.test_result import Outcome, TestReport, TestResult

MOST_ANNOTATIONS = 10
"""GitHub shows no more of a kind for one step."""
_MOST_ROWS = 50
_MAX_MESSAGE = 1_000
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotations(report: TestReport, workspace: Path) -> str:
    """Return a workflow command for each of the most telling tests that did not pass.

    Failed tests come before errors, and of the same reason only the first is annotated.

    Args:
        report: The results.
        workspace: The folder of the checkout, to which paths must be relative, unless the report
            knows it better.
    """
    telling = _most_telling(report)
    lines = [_command(one, report, workspace) for one in telling[:MOST_ANNOTATIONS]]
    return "".join(f"{line}\n" for line in lines)


def step_summary(report: TestReport) -> str:
    """Return the counts and the tests that did not pass, as Markdown."""
    return "\n".join(_summary_lines(report)) + "\n"


def _most_telling(report: TestReport) -> list[TestResult]:
    groups = sorted(group_failures(report.results), key=lambda one: NOT_PASSED.index(one.outcome))
    others = (one for group in groups for one in group.results[1:])
    return [*(group.first for group in groups), *others]


def _command(result: TestResult, report: TestReport, workspace: Path) -> str:
    file, line, column = place_of(report, result, str(workspace))
    properties = {"file": file, "line": line, "col": column}
    properties["title"] = one_line(case_title(result), 100)
    written = ",".join(
        f"{key}={str(value).translate(_PROPERTY)}"
        for key, value in properties.items()
        if value is not None
    )
    message = "\n".join(one_line(reason, _MAX_MESSAGE) for reason in result.reasons()[:20])
    return f"::error {written}::{message.translate(_DATA)}"


def _summary_lines(report: TestReport) -> Iterator[str]:
    summary = report.summary
    mark = "✅" if report.passed else "❌"
    counts = [plural(summary.passed, "test passed", "tests passed")]
    counts += [f"{summary.failed} failed"] if summary.failed else []
    counts += [f"{summary.flaky} flaky"] if summary.flaky else []
    counts += [f"{summary.skipped} skipped"] if summary.skipped else []
    yield from (f"### {mark} {inline(report.agent_name)}: {', '.join(counts)}", "")
    if report.stopped is not None:
        yield from (f"**Stopped: {inline(report.stopped)}**", "")
    elif report.interrupted:
        yield from ("**Interrupted before every test had run.**", "")
    listed = [one for one in report.results if one.outcome in {*NOT_PASSED, Outcome.FLAKY}]
    if listed:
        cells = [
            (
                STATUS[one.outcome],
                inline(case_title(one)),
                inline(one.location or "–"),
                inline("; ".join(one.reasons()), 500),
            )
            for one in listed[:_MOST_ROWS]
        ]
        yield from (*table(("Result", "Test", "Where", "Why"), cells), "")
    if len(listed) > _MOST_ROWS:
        yield from (f"and {len(listed) - _MOST_ROWS} more", "")
    for note in report.notes:
        yield from (f"Note: {inline(note, 1_000)}", "")
