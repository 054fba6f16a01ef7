"""What a run becomes as a baseline, and how a baseline and a record are read."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.compare.run_comparison import (
    MOST_HISTORY,
    ComparedRun,
    baseline_of,
    read_side,
    side_of_run,
    side_to_bless,
)
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.reports.summary import summarize
from holodeck.models.records.record import (
    CaseFinished,
    CaseSkipped,
    ComparedWith,
    PlannedCase,
    RunEnd,
    RunHead,
)
from holodeck.models.results.origin import RunOrigin
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.models.token_usage import TokenUsage
from support.results import a_report, a_result

PASSED, FAILED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.AGENT_ERROR
SAME = {"metrics": "1"}


def run_id(number):
    return f"202601{number:02}-000000-000000-aaaaaa"


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


@pytest.fixture
def record(tmp_path):
    """Writes the record of a run of one case, and returns its id."""

    def record(number, outcome=PASSED, *, stamp=None, hashes=SAME, is_whole=True, **fields):
        name = run_id(number)
        path = tmp_path / ".holodeck" / "runs" / name / "run.jsonl"
        path.parent.mkdir(parents=True)
        result = a_result(outcome, timestamp=stamp or f"2026-01-{number:02}T00:00:00Z")
        ended = {"timestamp": result.timestamp, "exit_code": 0, "interrupted": not is_whole}
        head = {"agent_name": "helper", "agent_config_path": "agent.yaml", "hashes": hashes}
        lines = [
            RunHead(id=name, started=result.timestamp, cases=[PlannedCase(hash="h")], **head)
            .model_copy(update=fields),
            CaseFinished(index=0, hash="h", result=result),
            RunEnd(summary=summarize([result], 1), **ended),
        ]  # fmt: skip
        path.write_bytes(b"".join(map(json_line, lines)))
        return name

    return record


def counted(side, store):
    """In how many runs the only case passed, and in how many it was decided."""
    [case] = baseline_of(side, store).cases
    return case.passed, case.ran


def test_runs_count_that_are_older_than_each_run_of_a_merged_report(store, record):
    names = [record(number) for number in (1, 2, 3, 4)]
    origin = RunOrigin(run=f"{names[1]}, {names[3]}", hashes=SAME)
    report = a_report(a_result(FAILED, timestamp="2026-01-04T00:00:00Z"), origin=origin)
    side = ComparedRun(report, "all.json")

    assert counted(side, store) == (1, 2)


def test_a_record_that_was_copied_is_still_that_of_its_run(store, record, tmp_path):
    name = record(1)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(store.path(name).read_bytes())

    assert read_side(str(copy), store, tmp_path).ids == [name]


def test_the_runs_before_count_with_the_same_configuration_only(store, record):
    record(1, FAILED)
    record(2, hashes={"metrics": "2"})
    record(3, ERROR)
    record(4)
    record(5, FAILED)

    assert counted(side_to_bless(run_id(4), store), store) == (1, 2)


def test_a_result_that_a_resumed_run_took_over_counts_once(store, record):
    record(1, FAILED, stamp="2026-01-01T00:00:00Z")
    record(2, FAILED, stamp="2026-01-01T00:00:00Z")

    assert counted(side_to_bless(run_id(2), store), store) == (0, 1)


def test_a_run_that_cannot_be_read_is_no_part_of_a_history(store, record, tmp_path):
    record(1, FAILED)
    record(3)
    unreadable = tmp_path / ".holodeck" / "runs" / run_id(2) / "run.jsonl"
    unreadable.parent.mkdir()
    unreadable.write_bytes(b"\xff\n")

    assert counted(side_to_bless("last", store), store) == (1, 2)


def test_a_baseline_counts_its_run_and_the_latest_before_it_up_to_a_limit(store, record):
    for number in range(1, 4):
        record(number, FAILED)
    for number in range(4, MOST_HISTORY + 4):
        record(number)

    side = side_to_bless("last", store)

    assert counted(side, store) == (MOST_HISTORY, MOST_HISTORY)


def test_a_case_that_only_earlier_runs_have_is_not_in_the_history(store, record):
    record(1)
    origin = RunOrigin(run=run_id(2), hashes=SAME)
    side = ComparedRun(a_report(a_result(test_name="new"), origin=origin), "x")

    assert counted(side, store) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"interrupted": True}, "it was interrupted"),
        ({"stopped": "the budget is used up"}, "the budget is used up"),
        ({"results": [], "summary": summarize([], 1)}, "no test ran"),
    ],
)
def test_a_run_that_is_not_whole_is_no_baseline(store, fields, said):
    side = ComparedRun(a_report(a_result()).model_copy(update=fields), "out.json")

    with pytest.raises(ConfigError, match=f"out.json: cannot be the baseline: {said}; finish it"):
        baseline_of(side, store)


def test_the_run_of_a_second_agent_and_a_damaged_record_are_not_blessed(store, record, tmp_path):
    first = ComparedWith(run="x", is_second=False)
    record(1, compared_with=first)
    record(2, compared_with=first.model_copy(update={"is_second": True}))
    damaged = record(3)
    path = tmp_path / ".holodeck" / "runs" / damaged / "run.jsonl"
    path.write_bytes(b"{\n" + path.read_bytes().partition(b"\n")[2])

    assert side_to_bless(run_id(1), store).run == run_id(1)
    with pytest.raises(ConfigError, match="is that of a second agent"):
        side_to_bless(run_id(2), store)
    with pytest.raises(ConfigError, match="the first line of its record is damaged"):
        side_to_bless(run_id(3), store)
    unknown = side_of_run(store.read(run_id(3)))
    assert (unknown.commit, unknown.hashes, unknown.versions, unknown.case_hashes) == (
        None, {}, {}, {},
    )  # fmt: skip


def test_what_a_baseline_holds_of_a_case_is_read_from_its_file(store, tmp_path):
    rows = [
        MetricResult(metric_name="f1", score=0.123456, threshold=0.1, passed=True),
        MetricResult(metric_name="broken", score=None, error="no", required=False),
    ]
    usage = TokenUsage(prompt_tokens=4, completion_tokens=3, total_tokens=7)
    result = a_result(metric_results=rows, token_usage=usage, agent_time_ms=21)
    other = a_result(FAILED, test_name="other", agent_time_ms=None)
    keys = [("name", "", "greets"), ("name", "", "other")]
    side = ComparedRun(
        a_report(result, other, origin=RunOrigin(commit="abc", hashes=SAME)),
        "out.json",
        versions={"holodeck": "1.2.3"},
        case_hashes={keys[0]: "h"},
    )

    baseline = baseline_of(side, store)

    first, second = baseline.cases
    assert (first.scores, first.tokens, first.latency_ms) == ({"f1": 0.1235}, 7, 21)
    assert (first.checks, first.hash) == ({"f1": 0.1}, "h")
    assert (second.scores, second.tokens, second.latency_ms, second.hash) == ({}, None, None, None)
    assert (baseline.run, baseline.commit) == ("out.json", "abc")
    (tmp_path / "baseline.json").write_text(baseline.model_dump_json(), encoding="utf-8")
    read = read_side("baseline", store, tmp_path)
    assert read.keys == keys
    assert (read.commit, read.hashes, read.versions) == ("abc", SAME, {"holodeck": "1.2.3"})
    assert read.history == {keys[0]: (1, 1), keys[1]: (0, 1)}
    assert read.checks == {keys[0]: {"f1": 0.1}, keys[1]: {}}
    assert read.case_hashes == {keys[0]: "h"}
    assert [one.outcome for one in read.report.results] == [PASSED, FAILED]
    assert read.report.holodeck_version == "1.2.3"


def test_what_a_file_of_an_older_version_does_not_say_is_unknown(store, tmp_path):
    baseline = baseline_of(ComparedRun(a_report(a_result()), "out.json"), store)
    [case] = baseline.cases
    older = baseline.model_copy(
        update={"cases": [case.model_copy(update={"checks": None, "hash": None})]}
    )
    (tmp_path / "old.json").write_text(older.model_dump_json(), encoding="utf-8")

    side = read_side(str(tmp_path / "old.json"), store, tmp_path)

    assert (side.checks, side.case_hashes, side.report.holodeck_version) == ({}, {}, "")


def test_the_hashes_of_cases_are_those_of_the_results_also_where_some_were_skipped(tmp_path):
    path = tmp_path / ".holodeck" / "runs" / run_id(1) / "run.jsonl"
    path.parent.mkdir(parents=True)
    cases = [PlannedCase(hash=digest) for digest in ("0", "1", "2")]
    head = {"agent_name": "a", "agent_config_path": "agent.yaml", "commit": "abc"}
    result, skipped = a_result(test_name="last"), a_result(Outcome.SKIPPED, test_name="skipped")
    lines = [
        RunHead(
            id=run_id(1), started=result.timestamp, cases=cases, versions={"python": "3"}, **head
        ),
        CaseFinished(index=2, hash="2", result=result),
        CaseSkipped(index=0, result=skipped),
    ]
    path.write_bytes(b"".join(map(json_line, lines)))

    side = read_side("last", RunStore(tmp_path), tmp_path)

    assert side.case_hashes == {("name", "", "skipped"): "0", ("name", "", "last"): "2"}
    assert (side.commit, side.versions) == ("abc", {"python": "3"})
    assert (side.source, side.run) == (f"run {run_id(1)}", run_id(1))
