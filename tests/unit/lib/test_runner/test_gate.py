"""What a run says beside its baseline: regressions, known failures, and what else is different."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.compare.gate import (
    Failures,
    Suspect,
    decide,
    describe_gate,
    failures_of,
    require_later,
)
from holodeck.lib.compare.run_comparison import ComparedRun
from holodeck.models.records.record import case_keys
from holodeck.models.results.origin import RunOrigin, Selection
from holodeck.models.test_result import MetricResult, Outcome
from support.results import a_report, a_result

PASSED, FAILED, FLAKY, ERROR, SKIPPED = (
    Outcome.PASSED,
    Outcome.FAILED,
    Outcome.FLAKY,
    Outcome.AGENT_ERROR,
    Outcome.SKIPPED,
)
NOTHING = Failures([], [], [])
GREETS = ("name", "", "greets")


def run_of(outcomes, *, timestamp="2026-01-01T00:00:00Z", agent_name="helper", **fields):
    """A run of cases by their names, and the outcome of each."""
    results = [a_result(outcome, test_name=name) for name, outcome in outcomes.items()]
    return side_of(*results, timestamp=timestamp, agent_name=agent_name, **fields)


def side_of(*results, **fields):
    of_report = {
        key: fields.pop(key) for key in ("timestamp", "agent_name", "selection") if key in fields
    }
    origin = {key: fields.pop(key) for key in ("run", "hashes") if key in fields}
    of_report["origin"] = RunOrigin(**origin)
    return ComparedRun(a_report(*results, **of_report), **({"source": "baseline.json"} | fields))


def described(base, now, failures=NOTHING, decisions=()):
    """The lines below the first one."""
    return list(describe_gate(base, now, failures, decisions))[1:]


@pytest.mark.parametrize(
    ("blessed", "passed", "ran", "said"),
    [
        (PASSED, 0, 0, "suspect"),
        (PASSED, 2, 2, "suspect"),
        (PASSED, 1, 3, "flaky suspect"),
        (FLAKY, 0, 0, "flaky suspect"),
        (FLAKY, 1, 1, "flaky suspect"),
        (FAILED, 0, 0, "known"),
        (FAILED, 0, 1, "known"),
        (FAILED, 1, 2, "known"),
        (FAILED, 2, 3, "flaky suspect"),
        (ERROR, 0, 0, "new"),
        (ERROR, 2, 2, "suspect"),
        (ERROR, 2, 3, "flaky suspect"),
        (ERROR, 0, 2, "known"),
        (SKIPPED, 0, 0, "new"),
        (SKIPPED, 1, 1, "suspect"),
    ],
)
def test_a_failure_is_judged_by_the_blessed_run_and_the_runs_that_the_baseline_counts(
    blessed, passed, ran, said
):
    history = {("name", "", "first"): (1, 1), GREETS: (passed, ran)}
    base = run_of({"first": PASSED, "greets": blessed}, history=history)
    now = run_of({"first": PASSED, "greets": FAILED})

    failures = failures_of(base, now)

    assert failures == Failures(
        [Suspect(1, "greets", said == "flaky suspect")] if "suspect" in said else [],
        ["greets"] if said == "known" else [],
        ["greets"] if said == "new" else [],
    )


def test_a_case_that_the_baseline_does_not_have_is_new_and_only_failures_are_looked_at():
    base = run_of({"a": PASSED, "b": PASSED, "c": PASSED, "undecided": ERROR})
    now = run_of({"a": ERROR, "new": FAILED, "b": FLAKY, "c": FAILED, "undecided": FAILED})

    assert failures_of(base, now) == Failures([Suspect(3, "c")], [], ["new", "undecided"])


@pytest.mark.parametrize(
    ("outcomes", "planned", "was_flaky", "state"),
    [
        ([FAILED, FAILED, FAILED], 3, False, "regression"),
        ([PASSED, FAILED, FAILED], 3, False, "regression"),
        ([PASSED, FAILED], 2, False, "regression"),
        ([PASSED, PASSED, FAILED], 3, False, "flaky"),
        ([PASSED, FLAKY], 3, False, "flaky"),
        ([PASSED], 3, False, "not confirmed"),
        ([FAILED, FAILED], 3, False, "not confirmed"),
        ([ERROR, ERROR, PASSED], 3, False, "regression"),
        ([], 0, False, "not confirmed"),
        ([PASSED, FAILED, FAILED], 3, True, "flaky"),
        ([FAILED, FAILED, FAILED], 3, True, "regression"),
        ([FAILED], 1, True, "regression"),
    ],
)
def test_further_runs_decide_whether_a_failure_is_a_regression(outcomes, planned, was_flaky, state):
    decision = decide(
        Suspect(0, "greets", was_flaky), [a_result(outcome) for outcome in outcomes], planned
    )

    passes = sum(outcome.is_pass for outcome in outcomes)
    assert (decision.state, decision.passed, decision.ran) == (state, passes, len(outcomes))


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "greets: not confirmed"),
        ([FAILED], "greets: regression, failed in 1 of 1 further run"),
        ([PASSED, FAILED, FAILED], "greets: regression, failed in 2 of 3 further runs"),
    ],
)
def test_a_decision_says_in_how_many_runs_the_case_failed(outcomes, said):
    results = [a_result(outcome) for outcome in outcomes]

    assert str(decide(Suspect(0, "greets"), results, len(outcomes))) == said


def test_only_what_was_cleared_is_no_regression_in_the_count():
    runs = ([PASSED], [FAILED], [])
    decisions = [decide(Suspect(0, "a"), [a_result(one) for one in run], 1) for run in runs]
    same = run_of({"a": FAILED})

    lines = list(describe_gate(same, same, NOTHING, decisions))

    assert lines == [
        "Compared with baseline.json: 2 regressions",
        "  a: flaky, failed in 0 of 1 further run",
        "  a: regression, failed in 1 of 1 further run",
        "  a: not confirmed",
    ]


@pytest.mark.parametrize(
    ("new", "known", "lines"),
    [
        (["a"], [], ["  a new case fails: a"]),
        (["a", "b"], [], ["  2 new cases fail: a, b"]),
        ([], ["a"], ["  a case failed in the baseline, too: a"]),
        ([], ["a", "b"], ["  2 cases failed in the baseline, too: a, b"]),
    ],
)
def test_new_and_known_failures_are_counted_and_named(new, known, lines):
    same = run_of({"a": FAILED, "b": FAILED})

    assert described(same, same, Failures([], known, new)) == lines


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (FAILED, PASSED, "a case passes that failed in the baseline: greets"),
        (ERROR, PASSED, None),
        (FLAKY, PASSED, None),
        (PASSED, PASSED, None),
        (FAILED, FLAKY, None),
        (None, PASSED, "a new case passes, which is not in the baseline: greets"),
        (None, FAILED, None),
        (None, SKIPPED, None),
        (PASSED, SKIPPED, "a case is skipped that passed in the baseline: greets"),
        (FLAKY, SKIPPED, "a case is skipped that passed in the baseline: greets"),
        (FAILED, SKIPPED, None),
        (PASSED, FAILED, None),
        (PASSED, None, "a case is gone that passed in the baseline: greets"),
        (FLAKY, None, "a case is gone that passed in the baseline: greets"),
        (FAILED, None, "a case is gone that did not pass in the baseline: greets"),
    ],
)
def test_a_case_that_changed_without_failing_is_named(before, after, line):
    sides = [{"other": FAILED} | ({"greets": one} if one else {}) for one in (before, after)]

    assert described(*map(run_of, sides)) == ([f"  {line}"] if line else [])


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (FAILED, PASSED, "2 cases pass that failed in the baseline: a, b"),
        (None, PASSED, "2 new cases pass, which are not in the baseline: a, b"),
        (PASSED, SKIPPED, "2 cases are skipped that passed in the baseline: a, b"),
        (PASSED, None, "2 cases are gone that passed in the baseline: a, b"),
        (FAILED, None, "2 are gone that did not pass in the baseline: a, b"),
    ],
)
def test_several_cases_that_changed_are_counted(before, after, line):
    sides = [{} if one is None else {"a": one, "b": one} for one in (before, after)]

    assert described(*map(run_of, sides)) == [f"  {line}"]


def test_a_case_that_was_not_selected_is_not_gone():
    selection = Selection(total=2, selected=1, deselected=1, how="--tag x")
    base = run_of({"a": PASSED, "b": PASSED, "c": FAILED})

    assert described(base, run_of({"a": PASSED}, selection=selection)) == []


def test_a_baseline_of_another_agent_is_named():
    base, now = run_of({"a": PASSED}, agent_name="other"), run_of({"a": PASSED})

    assert described(base, now) == ["  the baseline is of the agent other"]


def with_check(threshold, **fields):
    """A run of a case with one check that passed, and the score that it must reach."""
    row = MetricResult(metric_name="f1", score=1.0, threshold=threshold, passed=True)
    return side_of(a_result(metric_results=[row]), **fields)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"f1": 0.8}, 0.5, "'f1' from 0.5 on, not 0.8"),
        ({"f1": 0.8}, None, "'f1' without a threshold, not 0.8"),
        ({"f1": 0.8}, 0.8, None),
        ({"f1": 0.8}, 0.9, None),
        ({"f1": None}, 0.8, None),
        ({"f1": None}, None, None),
        ({"f1": 0.0}, None, "'f1' without a threshold, not 0"),
        ({"rouge": None, "f1": 0.5}, 0.5, "without 'rouge'"),
        ({"rouge": 0.1, "f1": 0.5}, 0.4, "without 'rouge', 'f1' from 0.4 on, not 0.5"),
    ],
)
def test_a_case_that_passes_with_weaker_checks_is_named_with_them(before, after, said):
    base = run_of({"greets": PASSED}, checks={GREETS: before})
    line = f"  greets: passes with weaker checks than in the baseline: {said}"

    assert described(base, with_check(after)) == ([line] if said else [])


def test_weaker_checks_of_a_case_that_does_not_pass_are_not_named():
    base = run_of({"greets": PASSED}, checks={GREETS: {"f1": 0.8}}, case_hashes={GREETS: "1"})
    now = run_of({"greets": FAILED}, case_hashes={GREETS: "2"})

    assert described(base, now) == []


@pytest.mark.parametrize(
    ("before", "after", "is_named"),
    [("1", "2", True), ("1", "1", False), (None, "2", False), ("1", None, False)],
)
def test_a_case_that_passes_after_it_was_rewritten_is_named_if_both_sides_know_it(
    before, after, is_named
):
    base, now = (
        run_of({"greets": PASSED}, case_hashes={} if digest is None else {GREETS: digest})
        for digest in (before, after)
    )
    line = "  a case passes that is not written as in the baseline: greets"

    assert described(base, now) == ([line] if is_named else [])


def test_several_rewritten_cases_are_counted_without_those_whose_checks_are_weaker():
    outcomes = {"greets": PASSED, "a": PASSED, "b": PASSED}
    keys = case_keys(run_of(outcomes).report.results)
    base = run_of(outcomes, checks={GREETS: {"f1": 0.8}}, case_hashes=dict.fromkeys(keys, "1"))
    now = run_of(outcomes, case_hashes=dict.fromkeys(keys, "2"))

    assert described(base, now) == [
        "  greets: passes with weaker checks than in the baseline: without 'f1'",
        "  2 cases pass that are not written as in the baseline: a, b",
    ]


@pytest.mark.parametrize(
    ("before", "after", "checks", "is_named"),
    [
        ({"metrics": "1"}, {"metrics": "2"}, {}, True),
        ({"metrics": "1"}, {"metrics": "1"}, {}, False),
        ({"metrics": "1"}, {}, {}, False),
        ({}, {"metrics": "2"}, {}, False),
        ({"agent": "1"}, {"agent": "2"}, {}, False),
        ({"metrics": "1"}, {"metrics": "2"}, {GREETS: {"f1": 0.8}}, False),
    ],
)
def test_changed_evaluations_of_all_cases_are_named_unless_a_weaker_check_is(
    before, after, checks, is_named
):
    base = run_of({"greets": PASSED}, hashes=before, checks=checks)
    now = run_of({"greets": PASSED}, hashes=after)

    lines = described(base, now)

    assert ("  'evaluations' is not written as in the baseline" in lines) is is_named
    assert len(lines) == int(is_named) + len(checks)


@pytest.mark.parametrize(
    ("base", "head", "is_refused"),
    [
        ({"run": "1"}, {"run": "1", "source": "last"}, True),
        ({"run": "1, 2"}, {"run": "2"}, True),
        ({"run": "1"}, {"run": "1, 2"}, False),
        ({"run": "1"}, {"run": "2"}, False),
        ({"run": "1"}, {}, True),
        ({}, {}, True),
        ({}, {"source": "head.json"}, False),
    ],
)
def test_a_run_that_is_part_of_the_baseline_is_not_compared_with_it(base, head, is_refused):
    sides = run_of({}, **base), run_of({}, **head)
    if not is_refused:
        require_later(*sides)
        return
    with pytest.raises(ConfigError, match="is the run that BASE is, too"):
        require_later(*sides)


@pytest.mark.parametrize(
    ("base", "head", "is_refused"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", False),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", False),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", True),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z", False),
        ("2026-01-01T01:00:00+02:00", "2025-12-31T23:30:00", False),
        ("2026-01-01T01:00:00-02:00", "2026-01-01T02:00:00", True),
    ],
)
def test_a_run_older_than_the_baseline_is_refused_whatever_its_time_zone(base, head, is_refused):
    sides = run_of({}, timestamp=base), run_of({}, timestamp=head, source="head.json")
    if not is_refused:
        require_later(*sides)
        return
    with pytest.raises(ConfigError, match="is older than BASE"):
        require_later(*sides)


def test_ids_say_which_run_is_older_whatever_the_clock_said():
    late, early = "2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z"
    first = run_of({}, timestamp=late, run="20260101-000001-000000-ffffff")
    second = run_of({}, timestamp=early, run="20260101-000001-000001-000000")

    require_later(first, second)
    with pytest.raises(ConfigError, match="is older than BASE"):
        require_later(second, first)


def test_the_name_of_a_file_in_a_baseline_is_no_id():
    first = run_of({}, run="report.json")
    second = run_of({}, timestamp="2026-01-02T00:00:00Z", run="20260102-000000-000000-000000")

    require_later(first, second)


def test_a_time_that_is_none_is_an_error_with_the_name_of_the_report():
    base = run_of({}, timestamp="yesterday", run="1")

    with pytest.raises(ConfigError, match=r"baseline\.json: its timestamp 'yesterday'"):
        require_later(base, run_of({}, run="2"))
