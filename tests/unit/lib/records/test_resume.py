"""What of a recorded run still holds, and what is said of the rest."""

from pathlib import Path

from holodeck.lib.records.fingerprint import Fingerprint
from holodeck.lib.records.resume import describe_changes, find_cases, reusable_results
from holodeck.lib.records.run_store import Run
from holodeck.models.records.record import CaseFinished, PlannedCase, RunHead
from holodeck.models.test_result import Outcome
from support.results import a_result


def planned(*names, **fields):
    return tuple(PlannedCase(name=name, hash=f"{name}!", **fields) for name in names)


def present(cases, parts=None):
    return Fingerprint(parts or {}, tuple(cases), tuple(one.hash for one in cases), {})


def a_run(cases=(), parts=None, finished=()):
    started = RunHead(
        id="x", started="", agent_name="a", agent_config_path="a", cases=cases, hashes=parts or {}
    )
    done = {one.index: one for one in finished}
    return Run(path=Path("run.jsonl"), started=started, finished=done, ended=None)


def test_ten_cases_that_changed_are_named_and_more_are_counted():
    cases = [PlannedCase(name=f"c{number}", hash="1") for number in range(12)]
    names = ", ".join(f"c{number}" for number in range(10))

    def told(many):
        now = [one.model_copy(update={"hash": "2"}) for one in cases[:many]]
        return describe_changes(a_run(cases[:many]), present(now), "1")

    assert told(10) == [f"test cases changed: {names}"]
    assert told(11) == [f"test cases changed: {names} and 1 more"]
    assert told(12) == [f"test cases changed: {names} and 2 more"]


def test_cases_that_came_and_went_are_told_apart_and_those_without_a_name_are_numbered():
    before = [*planned("a", "gone"), PlannedCase(hash="x")]
    now = [*planned("a", "come"), PlannedCase(hash="y")]

    assert describe_changes(a_run(before), present(now), "1") == [
        "test cases changed: #3",
        "test cases added: come",
        "test cases removed: gone",
    ]


def test_a_part_of_the_configuration_that_came_changed_or_went_is_named():
    run = a_run(planned("a"), {"model": "1", "tools": "1", "instructions": "1"})
    now = present(planned("a"), {"model": "2", "instructions": "1", "backend": "1"})

    assert sorted(describe_changes(run, now, "1")) == [
        "backend: changed",
        "model: changed",
        "tools: changed",
    ]
    assert describe_changes(run, present(planned("a"), run.started.hashes), "1") == []


def test_results_hold_wherever_their_case_stands_now_and_each_for_one_case():
    first, second = a_result(test_name="first"), a_result(Outcome.FAILED, test_name="second")
    run = a_run(
        finished=[
            CaseFinished(index=0, hash="same!", result=first),
            CaseFinished(index=1, hash="same!", result=second),
            CaseFinished(index=2, hash="gone!", result=first),
        ]
    )

    kept = reusable_results(run, present(planned("new", "same", "same", "same")))

    assert kept == {1: first, 2: second}


def test_only_what_decided_nothing_is_run_again_where_errors_are_to_be_tried_again():
    outcomes = [Outcome.AGENT_ERROR, Outcome.METRIC_ERROR, Outcome.FAILED, Outcome.PASSED]
    run = a_run(
        finished=[
            CaseFinished(index=at, hash=f"{at}!", result=a_result(outcome))
            for at, outcome in enumerate(outcomes)
        ]
    )
    now = present(planned("0", "1", "2", "3"))

    assert list(reusable_results(run, now)) == [0, 1, 2, 3]
    assert list(reusable_results(run, now, retry_errors=True)) == [2, 3]


def test_the_order_of_a_plan_stays_where_cases_moved_changed_or_went():
    plan = planned("c", "a", "gone", "b")
    now = [*planned("a", "new"), PlannedCase(name="b", hash="other"), *planned("c")]

    assert find_cases(plan, now) == [3, 0, 2]


def test_two_cases_that_are_the_same_keep_a_place_each():
    assert find_cases(planned("a", "a"), planned("a", "b", "a")) == [0, 2]
