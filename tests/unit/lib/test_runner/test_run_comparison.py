"""Runs and baselines as the two sides of a comparison, and what a run becomes as a baseline."""

from pathlib import Path

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.reports.summary import summarize
from holodeck.lib.test_runner.run_comparison import (
    MOST_HISTORY,
    ComparedRun,
    baseline_of,
    case_name,
    compare_runs,
    of_one_agent,
    read_side,
    side_of_report,
    side_of_run,
    side_to_bless,
)
from holodeck.models.price import Cost
from holodeck.models.record import (
    CaseFinished,
    CaseSkipped,
    ComparedWith,
    PlannedCase,
    RunFinished,
    RunStarted,
)
from holodeck.models.reported_run import MergedRun, RunOrigin
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
            RunStarted(id=name, started=result.timestamp, cases=[PlannedCase(hash="h")], **head)
            .model_copy(update=fields),
            CaseFinished(index=0, hash="h", result=result),
            RunFinished(summary=summarize([result], 1), **ended),
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
    report = a_report(a_result(FAILED, timestamp="2026-01-04T00:00:00Z"))
    side = ComparedRun(report, "all.json", run=f"{names[1]}, {names[3]}", hashes=SAME)

    assert counted(side, store) == (1, 2)


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
    side = ComparedRun(a_report(a_result(test_name="new")), "x", run=run_id(2), hashes=SAME)

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


def test_neither_a_baseline_nor_several_agents_become_a_baseline(store):
    baseline = ComparedRun(a_report(a_result()), "baseline.json", history={})

    with pytest.raises(ConfigError, match="is a baseline already; name a run"):
        baseline_of(baseline, store)
    with pytest.raises(ConfigError, match="is about several agents"):
        baseline_of(side_of_report(merged("a", "b"), "all.json"), store)


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
        a_report(result, other),
        "out.json",
        commit="abc",
        hashes=SAME,
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
        RunStarted(
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


def merged(*labels, shards=1, **fields):
    """The report of agents, each of which passed a case and failed one."""
    runs, results = [], []
    for label in labels:
        results += [
            a_result(test_name="greets", agent_name=label if len(labels) > 1 else None),
            a_result(FAILED, test_name="other", agent_name=label if len(labels) > 1 else None),
        ]
        runs += [
            MergedRun(
                label=label,
                agent_name=label,
                agent_config_path=f"{label}.yaml",
                holodeck_version="1.2.3",
                timestamp="2026-01-01T00:00:00Z",
                wall_time_ms=1,
                origin=RunOrigin(run=f"{label}{shard}", commit=f"of {label}", hashes=SAME),
                exit_code=0,
                tests=2,
            )
            for shard in range(shards)
        ]
    return a_report(*results, merged=runs, **fields)


def test_a_merged_report_of_one_agent_has_the_hashes_of_one_and_the_ids_of_all():
    side = side_of_report(merged("a", shards=2), "all.json")

    assert not side.is_of_several_agents
    assert (side.ids, side.run, side.commit, side.hashes) == (["a0", "a1"], None, "of a", SAME)


def test_a_merged_report_of_several_agents_names_the_agent_of_each_hash():
    side = side_of_report(merged("a", "b"), "all.json")

    assert side.is_of_several_agents
    assert side.hashes == {"a: metrics": "1", "b: metrics": "1"}
    assert (side.run, side.commit) == (None, None)


def test_one_agent_is_taken_out_of_a_report_of_several():
    side = of_one_agent(side_of_report(merged("a", "b"), "all.json"), "b")

    names = [(one.test_name, one.agent_name) for one in side.report.results]
    assert names == [("greets", None), ("other", None)]
    assert (side.report.agent_name, side.ids, side.hashes) == ("b", ["b0"], SAME)
    assert (side.report.summary.passed, side.report.summary.total_tests) == (1, 2)


@pytest.mark.parametrize("name", ["a", "c"])
def test_an_agent_that_two_reports_or_none_are_of_is_refused(name):
    report = merged("a", "b")
    runs = [report.merged[0], report.merged[1].model_copy(update={"agent_name": "a"})]
    side = side_of_report(report.model_copy(update={"merged": runs}), "all.json")

    with pytest.raises(ConfigError, match=f"'{name}' does not name one of its agents.* a, b"):
        of_one_agent(side, name)


def test_a_report_of_one_agent_stays_whatever_its_name_is():
    side = side_of_report(merged("a"), "all.json")

    assert of_one_agent(side, "other") is side


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_report_of_one_agent_is_compared_with_its_part_of_a_report_of_several(is_swapped):
    one = side_of_report(
        a_report(a_result(FAILED), a_result(test_name="other"), agent_name="b"), "one.json"
    )
    sides = [one, side_of_report(merged("a", "b"), "all.json")]

    report = compare_runs(*(reversed(sides) if is_swapped else sides))

    assert len(report.pairs) == 2
    assert [pair.name for pair in report.regressions] == ["greets" if is_swapped else "other"]


def test_reports_of_the_same_agents_are_compared_agent_by_agent():
    side = side_of_report(merged("a", "b"), "all.json")

    assert len(compare_runs(side, side).pairs) == 4


def test_a_report_without_a_run_has_neither_ids_nor_hashes():
    side = side_of_report(a_report(), "out.json")

    assert (side.ids, side.run, side.hashes, side.commit) == ([], None, {}, None)
    assert side.versions == {"holodeck": "1.2.3"}


def test_the_origin_of_a_report_is_that_of_its_side():
    origin = RunOrigin(run="r", commit="0123456789abcdef", hashes=SAME)

    side = side_of_report(a_report(origin=origin), "out.json")

    assert (side.ids, side.run, side.hashes) == (["r"], "r", SAME)
    assert side.title == "out.json, run r of 2026-01-01T00:00:00Z, commit 0123456789ab"


def test_a_title_does_not_repeat_the_run_that_the_user_wrote():
    side = ComparedRun(a_report(), "run r", run="r")

    assert side.title == "run r of 2026-01-01T00:00:00Z"


def test_cases_of_one_side_are_listed_and_the_places_of_the_others_are_told():
    base = ComparedRun(a_report(*(a_result(test_name=name) for name in "ab")), "base")
    results = [a_result(test_name="b"), a_result(FAILED, test_name="c"), a_result(test_name="d")]

    report = compare_runs(base, ComparedRun(a_report(*results), "head", run="r"))

    [pair] = report.pairs
    assert (pair.name, pair.first_at, pair.second_at, report.is_of_runs) == ("b", 1, 0, True)
    assert (report.only_in_first, report.only_in_second) == (["a"], ["c", "d"])
    assert report.new_failures == ["c"]
    assert [one.source for one in (report.first, report.second)] == [
        "base of 2026-01-01T00:00:00Z", "head, run r of 2026-01-01T00:00:00Z",
    ]  # fmt: skip
    assert [one.run for one in (report.first, report.second)] == [None, "r"]


@pytest.mark.parametrize(
    ("before", "after", "currency"),
    [
        ([("a", "USD")], [("a", "USD")], "USD"),
        ([("a", "USD")], [("a", "EUR")], None),
        ([("a", "USD"), ("b", "EUR")], [("a", "USD")], None),
        ([("a", "USD")], [("a", "USD"), ("b", "EUR")], None),
        ([("a", None)], [("a", "USD")], "USD"),
        ([("a", None)], [("a", None)], None),
    ],
)
def test_costs_have_a_currency_if_all_cases_have_the_same(before, after, currency):
    def side(cases):
        return ComparedRun(
            a_report(
                *(
                    a_result(
                        test_name=name,
                        cost=code and Cost(currency=code, total=1.0, agent=1.0, judges=0.0),
                    )
                    for name, code in cases
                )
            ),
            "x",
        )

    assert compare_runs(side(before), side(after)).currency == currency


@pytest.mark.parametrize(
    ("base", "head", "changes"),
    [
        ({}, {}, []),
        ({"hashes": {"a_b": "1", "c": "1"}}, {"hashes": {"a_b": "2", "c": "1"}}, ["a b: changed"]),
        (
            {"hashes": {"a": "1"}},
            {"hashes": {"b": "1"}},
            ["a: changed", "b: changed"],
        ),
        ({"hashes": SAME}, {}, ["the configuration of one side is unknown"]),
        ({}, {"hashes": SAME}, ["the configuration of one side is unknown"]),
        ({"versions": {"x": "1", "y": "1"}}, {"versions": {"x": "2", "y": "1"}}, ["x: 1 → 2"]),
        ({"versions": {"x": "1"}}, {"versions": {"y": "1"}}, []),
    ],
)
def test_what_else_differs_is_told_as_far_as_both_sides_say_it(base, head, changes):
    sides = [ComparedRun(a_report(), "x", **fields) for fields in (base, head)]

    assert compare_runs(*sides).changes == changes


def test_another_name_of_the_agent_is_a_change():
    sides = [ComparedRun(a_report(agent_name=name), "x") for name in ("a", "b")]

    assert compare_runs(*sides).changes == ["agent: a → b"]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"test_name": "n", "test_id": "i", "test_input": "x"}, "n"),
        ({"test_name": None, "test_id": "i", "test_input": "x"}, "i"),
        ({"test_name": None, "test_input": "x\ny"}, "x y"),
        ({"test_name": None, "test_input": ""}, "a case without a name"),
        ({"test_name": "n", "agent_name": "a"}, "a › n"),
    ],
)
def test_a_case_is_called_by_its_name_its_id_or_its_input(fields, name):
    assert case_name(a_result(**fields)) == name


def test_a_missing_baseline_is_an_error_that_says_how_to_make_one(store):
    with pytest.raises(Exception, match=r"there is no baseline; `holodeck bless`"):
        read_side("baseline", store, Path("/nowhere/at/all"))
