"""Variants of labelled responses, made without a model."""

import pytest

from holodeck.lib.judging.labels import DEFAULT_LABELS, Label, read_labels
from holodeck.lib.judging.probes import probes_of
from holodeck.lib.judging.quantities import (
    in_another_unit,
    in_words_or_digits,
    with_another_number,
    with_another_unit,
)

GOOD = Label(input="How long?", response="It isn't long: two years.", label="pass",
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


def test_a_good_response_gets_no_injection_and_is_bad_only_with_another_quantity():
    found = variants(GOOD)

    assert not any(name.startswith("injection") for name in found)
    wrong = {name: one.response for name, one in found.items() if not one.is_good}
    assert wrong == {
        "wrong: another number": "It isn't long: 3 years.",
        "wrong: another unit": "It isn't long: 2 months.",
    }
    assert found["paraphrase: long forms"].response == "It is not long: two years."
    assert found["paraphrase: numbers as words"].response == "It isn't long: 2 years."
    assert found["paraphrase: other unit"].response == "It isn't long: 24 months."
    assert found["formatting: Markdown list"].response.endswith("- It isn't long: two years.")


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
    ("text", "converted"),
    [
        ("Up to 8,000 grams.", "Up to 8 kilograms."),
        ("About 1.5 km.", "About 1500 m."),
        ("In 90 minutes", "In 1.5 hours"),
        ("One day, or 8 GB", "One day, or 8000 MB"),
        ("At 15:00, 3 months' notice, version 2.3", "At 15:00, 3 months' notice, version 2.3"),
        ("a two-year plan with 8 seats", "a two-year plan with 8 seats"),
    ],
)
def test_a_unit_is_converted_only_if_the_amount_stays_the_same(text, converted):
    assert (in_another_unit(text) or text) == converted


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("Nine of 12 seats", "9 of 12 seats"),
        ("8 to 12 seats.", "eight to twelve seats."),
        ("$20, 20%, 15:00, 2.5, 31, A4, 7-8", None),
    ],
)
def test_numbers_are_written_as_words_or_digits(text, rewritten):
    assert in_words_or_digits(text) == rewritten


def test_a_response_is_contradicted_only_where_it_repeats_the_reference():
    assert with_another_number("Room 7, 40 seats", "There are 40 seats.") == "Room 7, 50 seats"
    assert with_another_number("12 of us", "12, later 15") == "16 of us"
    assert with_another_number("Room 7", "There are forty seats.") is None
    assert with_another_unit("two hours", "120 minutes") == "2 days"
    assert with_another_unit("2 hours", "2 hours or 2 days") == "2 minutes"
    assert with_another_unit("40 seats", "There are 40 seats.") is None
