"""What is said of names that fit no case, and how cases are dealt out to shards."""

import pytest

from holodeck.errors import NothingSelected
from holodeck.lib.selection.request import CaseHistory, SelectionRequest, Shard, parse_expression
from holodeck.lib.selection.select_cases import select, split_into_shards
from holodeck.models.test_case import TestCaseModel


def cases(count, **fields):
    return [
        TestCaseModel(name=f"case {n:02}", input="x", tags=[f"t{n:02}"], **fields)
        for n in range(count)
    ]


def refused(made, past=None, **request):
    with pytest.raises(NothingSelected) as caught:
        select(made, SelectionRequest(**request), past)
    return str(caught.value)


@pytest.mark.parametrize(
    ("count", "more"), [(20, "t19"), (21, "t19 and 1 more"), (23, "t19 and 3 more")]
)
def test_twenty_tags_are_named_and_more_are_counted(count, more):
    said = refused(cases(count), tags=("nothing like it",))

    assert said.endswith(more)


def test_where_no_case_has_a_tag_that_is_said():
    plain = [TestCaseModel(name="a", input="x")]

    assert refused(plain, tags=("a",)) == "--tag: no case has the tag 'a'; no case has one"


@pytest.mark.parametrize(("count", "end"), [(3, "'case 02'"), (4, "'case 02', …")])
def test_three_names_show_what_a_keyword_could_be(count, end):
    said = refused(cases(count), keyword=parse_expression("gift"))

    assert said == ("-k: no name, id or suite contains 'gift'; known: 'case 00', 'case 01', " + end)


@pytest.mark.parametrize(
    ("passed", "request_", "said"),
    [
        ([True, None], {"last_failed": True}, "--last-failed: every case with a recorded result"),
        ([None, None], {"last_failed": True}, "--last-failed: no recorded run has a result"),
        ([True, False], {"new": True}, "--new: every case has a result in a recorded run"),
    ],
)
def test_a_past_that_leaves_nothing_is_told(passed, request_, said):
    past = [CaseHistory(passed=one) for one in passed]

    assert refused(cases(2), past, **request_).startswith(said)


def test_a_past_that_leaves_something_is_no_warning():
    past = [CaseHistory(passed=False), CaseHistory()]

    for request, places in (({"last_failed": True}, [0]), ({"new": True}, [1])):
        choice = select(cases(2), SelectionRequest(**request), past)
        assert (choice.indexes, choice.warnings) == (places, ())


def test_a_name_in_another_case_finds_the_right_one_and_a_far_one_finds_none():
    made = [TestCaseModel(id="Refund", input="x"), TestCaseModel(id="greets", input="x")]

    assert "'refund'; did you mean 'Refund'? known: Refund, greets" in refused(
        made, ids=("refund",)
    )
    assert "'zzz'; known: Refund, greets" in refused(made, ids=("zzz",))


def test_one_unknown_id_is_one_too_many_and_one_unknown_tag_is_not():
    made = [TestCaseModel(id="a", tags=["t"], input="x")]

    assert "no case has the id 'b'" in refused(made, ids=("a", "b"))
    assert select(made, SelectionRequest(tags=("t", "u"))).warnings == (
        "--tag: no case has the tag 'u'; known: t",
    )
    assert select(made, SelectionRequest(ids=("a", "b"), allow_empty=True)).indexes == [0]


def test_the_longest_cases_go_to_the_shard_that_has_least_to_do():
    times = {0: 5.0, 1: 1.0, 2: 9.0, 3: 1.0, 4: 3.0}

    assert split_into_shards(times, 2) == [[2, 3], [0, 4, 1]]


def test_a_case_that_was_never_timed_takes_as_long_as_cases_usually_do():
    assert split_into_shards({0: 2.0, 1: None, 2: 4.0, 3: 6.0}, 2) == [[3, 0], [1, 2]]
    assert split_into_shards(dict.fromkeys(range(5)), 2) == [[0, 2, 4], [1, 3]]


def test_only_shards_ask_for_more_than_the_last_result_of_a_case():
    assert (
        SelectionRequest(shard=Shard(1, 2)).results_needed
        > SelectionRequest(last_failed=True).results_needed
        == 1
    )
    asks = [
        SelectionRequest(last_failed=True), SelectionRequest(new=True),
        SelectionRequest(failed_first=True),
        SelectionRequest(shard=Shard(1, 2)),
    ]  # fmt: skip
    assert all(one.needs_history for one in asks)
    assert not SelectionRequest(seed=1, limit=2, tags=("a",)).needs_history


def plan_of(made, number):
    return select(made, SelectionRequest(shard=Shard(number, 2))).selection.plan


def test_all_shards_of_a_run_have_the_same_plan_and_other_cases_have_another():
    plan = plan_of(cases(4), 1)

    assert len(plan) == 8
    assert plan_of(cases(4), 2) == plan
    assert plan_of(cases(5), 1) != plan
    assert plan_of([*cases(3), TestCaseModel(name="other", input="x")], 1) != plan
    assert select(cases(4), SelectionRequest()).selection.plan is None


def tagged(**tags):
    return [TestCaseModel(name=name, input="x", tags=[tag]) for name, tag in tags.items()]


@pytest.mark.parametrize("slip", ["moke", "smoek", "Smoke", "smok", "smoke_"])
def test_a_case_whose_tag_is_nearly_the_selected_one_is_named(slip):
    selected = select(tagged(a="smoke", pays=slip), SelectionRequest(tags=("smoke",)))

    assert selected.indexes == [0]
    assert selected.warnings == (
        f"--tag smoke: leaves out 'pays' with the tag {slip!r}; did you mean 'smoke' there?",
    )


@pytest.mark.parametrize(("wanted", "other"), [("v1", "v2"), ("smoke", "slow"), ("api", "ui")])
def test_a_case_with_another_tag_is_left_out_without_a_word(wanted, other):
    selected = select(tagged(a=wanted, b=other), SelectionRequest(tags=(wanted,)))

    assert (selected.indexes, selected.warnings) == ([0], ())


def test_a_case_with_the_selected_tag_and_a_similar_one_is_no_slip():
    both = TestCaseModel(name="a", input="x", tags=["smoke", "smokes"])

    assert select([both], SelectionRequest(tags=("smoke",))).warnings == ()
