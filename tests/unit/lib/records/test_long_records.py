"""Records of many cases in no order."""

from pathlib import Path

from holodeck.lib.compare.run_comparison import compare_runs, side_of_run
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import Run, read_run
from holodeck.lib.reports.html import generate_html_comparison
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.test_runner.grading.recorded import report_of
from holodeck.models.records.record import CaseFinished, CaseSkipped, RunHead
from holodeck.models.test_result import Outcome, TestResult
from support.results import a_result

COUNT = 1_300
STARTED = RunHead(
    id="a", started="2026-01-01T10:00:00+00:00", agent_name="a", agent_config_path="agent.yaml"
)


def result(at: int, outcome: Outcome = Outcome.PASSED) -> TestResult:
    return a_result(outcome, test_name=f"case {at}", test_input="\N{SNOWMAN} " * (at % 7))


def a_record(path: Path) -> Run:
    """A record in no order, where cases were skipped and ran later, or ran twice."""
    lines = [CaseFinished(index=at, hash=f"{at}", result=result(at)) for at in range(COUNT)]
    lines.reverse()
    failed = CaseFinished(index=7, hash="again", result=result(7, Outcome.FAILED))
    skipped = [
        CaseSkipped(index=at, result=result(at, Outcome.SKIPPED)) for at in (3, COUNT, COUNT + 5)
    ]
    events = [STARTED, skipped[0], *lines, failed, *skipped[1:]]
    path.write_bytes(b"".join(map(json_line, events)) + b'{"event":"case_fin')
    return read_run(path)


def test_the_index_of_a_case_says_nothing_about_the_size_of_the_record(tmp_path: Path) -> None:
    far = CaseFinished(index=10**30, hash="far", result=result(0))
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(json_line, [STARTED, far])))
    assert read_run(path).finished[10**30] == far


def test_a_comparison_names_the_cases_that_one_record_lacks(tmp_path: Path) -> None:
    outcomes = {5: Outcome.FAILED, COUNT + 3: Outcome.FAILED}
    later = [result(at, outcomes.get(at, Outcome.PASSED)) for at in range(2, COUNT + 10)]
    paths = [tmp_path / name / "run.jsonl" for name in ("base", "head")]
    for path in paths:
        path.parent.mkdir()
    a_record(paths[0])
    events = [CaseFinished(index=at, hash="h", result=one) for at, one in enumerate(later)]
    paths[1].write_bytes(b"".join(map(json_line, [STARTED, *events])))

    found = compare_runs(*(side_of_run(read_run(path)) for path in paths))

    assert found.only_in_first == ["case 0", "case 1"]
    assert found.new_failures == [f"case {COUNT + 3}"]
    assert found.significance.only_first == 1
    assert f"case {COUNT + 3}" in generate_html_comparison(found)


def test_the_lines_of_cases_are_what_was_written(tmp_path: Path) -> None:
    run = a_record(tmp_path / "run.jsonl")
    assert list(run.finished) == list(range(COUNT))
    assert list(run.skipped) == [3, COUNT, COUNT + 5]
    assert run.finished[7].hash == "again"
    assert run.finished[7].result == result(7, Outcome.FAILED)
    assert run.finished[8] == CaseFinished(index=8, hash="8", result=result(8))
    assert run.skipped[3].result.outcome is Outcome.SKIPPED
    assert COUNT not in run.finished
    assert len(run.warnings) == 1
    assert "truncated" in run.warnings[0]


def test_the_results_are_in_the_order_of_the_cases(tmp_path: Path) -> None:
    run = a_record(tmp_path / "run.jsonl")

    assert [one.test_name for one in run.results][-3:] == [
        f"case {at}" for at in (COUNT - 1, COUNT, COUNT + 5)
    ]
    assert run.results[3].outcome is Outcome.PASSED


def test_secrets_are_found_in_all_results(tmp_path: Path) -> None:
    report = report_of(a_record(tmp_path / "run.jsonl"))

    assert Redactor(["not-in-any-result"]).redact_report(report) is report
    hidden = Redactor(["case 1000"]).redact_report(report).results[1000].test_name
    assert hidden not in {None, "case 1000"}
