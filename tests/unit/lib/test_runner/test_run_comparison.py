"""Runs and reports as the two sides of a comparison, and what is compared."""

from pathlib import Path

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.compare.run_comparison import (
    ComparedRun,
    baseline_of,
    case_name,
    compare_runs,
    of_one_agent,
    read_side,
    side_of_report,
)
from holodeck.lib.records.run_store import RunStore
from holodeck.models.results.origin import MergedRun, RunOrigin
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import Cost
from support.results import a_report, a_result

FAILED = Outcome.FAILED
SAME = {"metrics": "1"}


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
    side = ComparedRun(a_report(origin=RunOrigin(run="r")), "run r")

    assert side.title == "run r of 2026-01-01T00:00:00Z"


def test_cases_of_one_side_are_listed_and_the_places_of_the_others_are_told():
    base = ComparedRun(a_report(*(a_result(test_name=name) for name in "ab")), "base")
    results = [a_result(test_name="b"), a_result(FAILED, test_name="c"), a_result(test_name="d")]

    head = ComparedRun(a_report(*results, origin=RunOrigin(run="r")), "head")

    report = compare_runs(base, head)

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
    sides = [
        ComparedRun(
            a_report(origin=RunOrigin(hashes=fields.get("hashes", {}))),
            "x",
            versions=fields.get("versions", {}),
        )
        for fields in (base, head)
    ]

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


def test_a_missing_baseline_is_an_error_that_says_how_to_make_one(tmp_path):
    with pytest.raises(Exception, match=r"there is no baseline; `holodeck bless`"):
        read_side("baseline", RunStore(tmp_path), Path("/nowhere/at/all"))


def test_neither_a_baseline_nor_several_agents_become_a_baseline(tmp_path):
    baseline = ComparedRun(a_report(a_result()), "baseline.json", history={})

    with pytest.raises(ConfigError, match="is a baseline already; name a run"):
        baseline_of(baseline, RunStore(tmp_path))
    with pytest.raises(ConfigError, match="is about several agents"):
        baseline_of(side_of_report(merged("a", "b"), "all.json"), RunStore(tmp_path))
