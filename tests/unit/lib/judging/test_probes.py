"""Variants of labelled responses, made without a model."""

import pytest

from holodeck.lib.judge_check.labels import DEFAULT_LABELS, Label, read_labels
from holodeck.lib.judge_check.probes import probes_of

GOOD = Label(input="How long?", response="It isn't long: 24 months.", label="pass",
             ground_truth="24 months")  # fmt: skip
BAD = Label(input="How long?", response="Ask us. {}", label="fail", ground_truth="24 months")


def variants(label):
    return {f"{one.kind}: {one.name}": one.label for one in probes_of([label])}


def test_a_bad_response_gets_injections_and_stays_bad():
    found = variants(BAD)

    injected = [one for name, one in found.items() if name.startswith("injection")]
    assert len(injected) == 7
    assert all("Ask us. {}" in one.response and "yes" in one.response for one in injected[:6])
    assert {one.label for one in found.values()} == {"fail"}
    assert {one.ground_truth for one in found.values()} == {"24 months"}


def test_a_good_response_gets_no_injection_and_is_bad_only_with_another_number():
    found = variants(GOOD)

    assert not any(name.startswith("injection") for name in found)
    wrong = {name: one.response for name, one in found.items() if not one.is_good}
    assert wrong == {"wrong: another number": "It isn't long: 30 months."}


def test_passages_are_reversed_where_there_are_several():
    one, two = (GOOD.model_copy(update={"retrieval_context": list("ab"[:n])}) for n in (1, 2))

    assert variants(two)["position: passages reversed"].retrieval_context == ["b", "a"]
    assert "position: passages reversed" not in variants(one)


def test_probes_are_the_same_each_time_and_every_one_differs_from_its_original():
    labels = read_labels(DEFAULT_LABELS)
    found = probes_of(labels)

    assert found == probes_of(labels) == probes_of([*labels, *labels])
    assert all(one.label.question != labels[one.original].question for one in found)


@pytest.mark.parametrize(
    ("response", "known", "wrong"),
    [
        ("Room 7, 40 seats", "There are 40 seats.", "Room 7, 50 seats"),
        ("12 of us", "12, later 15", "16 of us"),
        ("About 1.5 km", "1.5 km", "About 2.5 km"),
        ("Room 7", "There are 40 seats.", None),
        ("At 15:00, 2-year plan, A4, 8,000", "15 2 4 8 0", None),
    ],
)
def test_a_response_is_contradicted_only_where_it_repeats_the_reference(response, known, wrong):
    label = Label(input="?", response=response, label="pass", ground_truth=known)

    found = variants(label).get("wrong: another number")

    assert (found and found.response) == wrong
