"""Which cases a request chooses, and what is said of one that chooses none."""

import pytest

from holodeck.errors import ConfigError, NothingSelected
from holodeck.lib.selection.request import CaseHistory, SelectionRequest, Shard, parse_expression
from holodeck.lib.selection.select_cases import select
from holodeck.models.test_case import TestCaseModel

CASES = [
    TestCaseModel(name="refund", id="r1", suite="billing", tags=["smoke", "money"], input="a"),
    TestCaseModel(name="refund twice", suite="billing", tags=["money", "slow"], input="b"),
    TestCaseModel(name="greets", id="g", tags=["smoke"], input="c"),
    TestCaseModel(input="what is the weather"),
]


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        ({"tags": ("smoke",)}, [0, 2]),
        ({"tags": ("smoke", "slow")}, [0, 1, 2]),
        ({"excluded_tags": ("slow",)}, [0, 2, 3]),
        ({"tags": ("money",), "excluded_tags": ("slow",)}, [0]),
        ({"suites": ("billing",)}, [0, 1]),
        ({"ids": ("g", "r1")}, [0, 2]),
        ({"keyword": parse_expression("refund")}, [0, 1]),
        ({"keyword": parse_expression("billing and not twice")}, [0]),
        ({"keyword": parse_expression("weather")}, [3]),
        ({"keyword": parse_expression("r1 or greets")}, [0, 2]),
        ({"tags": ("smoke",), "limit": 1}, [0]),
        ({"limit": 9}, [0, 1, 2, 3]),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, dict) else str(one),
)
def test_a_case_must_pass_every_filter(request_, places):
    choice = select(CASES, SelectionRequest(**request_))

    assert choice.indexes == places
    assert choice.warnings == ()
    assert choice.selection.selected + choice.selection.deselected == choice.selection.total == 4


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"tags": ("smok",)},
         "no case has the tag 'smok'; did you mean 'smoke'? known: money, slow, smoke"),
        ({"tags": ("SMOKE",)}, "did you mean 'smoke'?"),
        ({"ids": ("r1", "r2")}, "--id: no case has the id 'r2'; known: g, r1"),
        ({"suites": ("search",)}, "--suite: no case has the suite 'search'; known: billing"),
        (
            {"keyword": parse_expression("gift")},
            "-k: no name, id or suite contains 'gift'; known: 'refund',",
        ),
        ({"keyword": parse_expression("not (greets or refund or weather)")}, "-k matches no case"),
        ({"tags": ("smoke",), "keyword": parse_expression("twice")},
         "no case matches all of --tag (2 alone), -k (1 alone)"),
        ({"last_failed": True}, "--last-failed: no recorded run has a result of these cases"),
        ({"shard": Shard(5, 5)}, "--shard 5/5: fewer cases are selected than there are shards"),
    ],
    ids=["tag", "case", "id", "suite", "word", "not", "both", "last failed", "shard"],
)  # fmt: skip
def test_choosing_nothing_is_told_with_what_there_is(request_, said):
    with pytest.raises(NothingSelected) as caught:
        select(CASES, SelectionRequest(**request_))

    assert said in str(caught.value)
    assert select(CASES, SelectionRequest(**request_, allow_empty=True)).selection.total == 4


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"tags": ("smoke", "fats")}, "--tag: no case has the tag 'fats'"),
        ({"excluded_tags": ("slwo",)}, "--exclude-tag: no case has the tag 'slwo'; did you mean"),
        (
            {"keyword": parse_expression("greets and not gift")},
            "-k: no name, id or suite contains 'gift'",
        ),
    ],
    ids=["tag", "excluded tag", "word"],
)
def test_a_word_that_fits_nothing_beside_others_is_warned_of(request_, said):
    [warning] = select(CASES, SelectionRequest(**request_)).warnings

    assert said in warning


def test_the_past_chooses_and_orders():
    past = [
        CaseHistory(passed=True),
        CaseHistory(passed=False),
        CaseHistory(),
        CaseHistory(passed=False),
    ]

    assert select(CASES, SelectionRequest(last_failed=True), past).indexes == [1, 3]
    assert select(CASES, SelectionRequest(new=True), past).indexes == [2]
    assert select(CASES, SelectionRequest(failed_first=True), past).indexes == [1, 3, 0, 2]


def test_a_seed_gives_the_same_order_whatever_else_is_chosen():
    cases = [TestCaseModel(name=f"case {n}", input="x") for n in range(30)]

    whole = select(cases, SelectionRequest(seed=7)).indexes
    odd = select(cases, SelectionRequest(seed=7, keyword=parse_expression("1"))).indexes

    assert sorted(whole) == list(range(30))
    assert whole != list(range(30)) != select(cases, SelectionRequest(seed=8)).indexes
    assert odd == [at for at in whole if "1" in str(at)]


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "1/0", "-1/2", "1/2/3", "", "1 / 2"])
def test_an_impossible_shard_is_a_mistake(text):
    with pytest.raises(ConfigError, match="expected I/N with I from 1 to N"):
        Shard.parse(text)


def test_what_was_asked_for_can_be_typed_again():
    request = SelectionRequest(
        ids=("a b",),
        tags=("x",),
        keyword=parse_expression("a or b"),
        seed=0,
        limit=3,
        shard=Shard(1, 2),
    )

    assert str(request) == (
        "--id 'a b' --tag x -k 'a or b' --shuffle --seed 0 --limit 3 --shard 1/2"
    )


def test_a_keyword_is_not_looked_for_in_the_input_of_a_case_that_has_a_name_or_an_id():
    cases = [
        TestCaseModel(name="greets", input="where is my refund"),
        TestCaseModel(id="g", input="where is my refund"),
        TestCaseModel(suite="billing", input="where is my refund"),
    ]

    assert select(cases, SelectionRequest(keyword=parse_expression("refund"))).indexes == [2]
    assert select(cases, SelectionRequest(keyword=parse_expression("not refund"))).indexes == [0, 1]


def test_an_agent_without_cases_is_not_the_fault_of_a_filter():
    choice = select([], SelectionRequest(keyword=parse_expression("refund"), allow_empty=True))

    assert (choice.indexes, choice.selection.total) == ([], 0)
    assert select([], SelectionRequest()).indexes == []
