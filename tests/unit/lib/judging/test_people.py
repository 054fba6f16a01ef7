"""Several people who label the same responses, and two judges on the same labels.

The expected numbers are those of statsmodels 0.15, scikit-learn 1.9 and krippendorff 0.9.
"""

import json

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.judge_check.check_report import CEILING, describe_people, list_disagreements
from holodeck.lib.judge_check.labels import (
    Label,
    PeopleAgreement,
    agreement_of_people,
    count_kinds,
    read_labels,
    with_verdict,
)
from holodeck.lib.judging.agreement import Proportion, krippendorff_alpha, mcnemar_p_value
from holodeck.models.metrics.judge_trust import Limits

ROW = {"input": "What is it?", "criterion": "Does it name a price?"}


@pytest.fixture
def read(tmp_path):
    def reads(*rows):
        file = tmp_path / "labels.jsonl"
        file.write_text("".join(f"{json.dumps(ROW | row)}\n" for row in rows))
        return read_labels(file)

    return reads


def by(response="9 euros", **labels):
    return {"response": response, "labels": labels}


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ((0, 0), 1.0),
        ((1, 0), 1.0),
        ((3, 0), 0.25),
        ((8, 1), 0.0390625),
        ((0, 5), 0.0625),
        ((0, 6), 0.03125),
        ((1, 8), 0.0390625),
        ((12, 4), 0.076812744140625),
        ((10, 10), 1.0),
        ((3, 15), 0.007537841796875),
        ((200, 260), 0.0058839224731039984),
    ],
)
def test_mcnemars_exact_test_is_that_of_statsmodels(counts, p):
    assert mcnemar_p_value(*counts) == pytest.approx(p, rel=1e-12)


def test_krippendorffs_alpha_takes_missing_labels():
    t, f = True, False
    units = [[t, t], [t, f, t], [f, f, f], [t, t], [f, f, t], [t, t], [t, t], [f, t, f]]

    assert krippendorff_alpha(units) == pytest.approx(0.40625)
    assert krippendorff_alpha([*units, [t], [f], []]) == krippendorff_alpha(units)
    assert krippendorff_alpha([[t, t], [t, t]]) is None
    assert krippendorff_alpha([[t], [f]]) is None


def test_the_majority_is_the_label_and_a_tie_is_none(read):
    labels = read(
        by("a", anna="pass", ben="fail", cleo="pass"),
        by("b", anna="fail", ben=None, cleo="fail"),
        by("c", anna="pass", ben="fail"),
    )

    assert [label.label for label in labels] == ["pass", "fail", None]
    assert count_kinds(labels) == (1, 1)
    assert [label.response for label in with_verdict(labels, "labels.jsonl")] == ["a", "b"]
    with pytest.raises(ConfigError, match="as many people say 'pass' as 'fail' of every response"):
        with_verdict(labels[2:], "labels.jsonl")


def test_lines_of_several_people_about_a_response_are_one_label(read):
    labels = read(
        by(anna="fail"),
        by("other", anna="pass"),
        by(anna=None, ben="pass"),
        by(cleo="pass", ben="pass"),
    )

    assert [label.labels for label in labels] == [
        {"anna": "fail", "ben": "pass", "cleo": "pass"},
        {"anna": "pass"},
    ]
    assert labels[0].label == "pass"
    assert labels[0].location.endswith("labels.jsonl:1")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([by(anna="pass"), by(anna="fail")], r":2.*'anna' says 'fail', and 'pass' in .*:1"),
        (
            [by(anna="pass"), {"response": "9 euros", "label": "pass"}],
            "only one of both says whose",
        ),
        (
            [{"response": "9 euros", "label": "pass"}, by(anna="pass")],
            "only one of both says whose",
        ),
        ([by() | {"labels": {}}], "labels"),
        ([by(anna=None)], "'label' is missing"),
        ([by(anna="good")], "the label is 'good'; write 'pass' or 'fail'"),
        ([by(anna="pass", ben="pass") | {"label": "fail"}], "remove 'label', which follows"),
        ([by(**{" ": "pass"})], "labels"),
    ],
)
def test_labels_of_people_that_contradict_each_other_are_refused(read, rows, message):
    with pytest.raises(ConfigError, match=message):
        read(*rows)


def test_a_person_twice_in_a_line_is_refused(tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text('{"input": "i", "response": "r", "labels": {"anna": "pass", "anna": "fail"}}')

    with pytest.raises(ConfigError, match="duplicate key 'anna'"):
        read_labels(file)


def test_cohens_kappa_of_two_people_counts_what_both_have_labelled(read):
    says = {"p": "pass", "f": "fail", "-": None}
    anna, ben = "pppppfffff-p", "ppppfffffpp-"
    labels = read(
        *(
            by(str(n), anna=says[a], ben=says[b])
            for n, (a, b) in enumerate(zip(anna, ben, strict=True))
        )
    )

    people = agreement_of_people(labels)

    assert (people.statistic, people.people) == ("Cohen's kappa", ["anna", "ben"])
    assert people.value == pytest.approx(0.6)  # 8 of 10, half by chance
    assert (people.same.count, people.same.of, people.ties) == (8, 10, 2)
    assert [label.response for label in people.disagreements] == ["4", "9"]


def test_of_three_people_it_is_krippendorffs_alpha(read):
    labels = read(
        by("a", anna="pass", ben="pass", cleo="fail"),
        by("b", anna="fail", ben="fail"),
        by("c", cleo="pass", ben="pass"),
    )

    people = agreement_of_people(labels)

    assert people.statistic == "Krippendorff's alpha"
    assert people.value == pytest.approx(0.5)
    assert [label.response for label in people.disagreements] == ["a"]
    assert people.ties == 0


def test_labels_without_names_say_nothing_about_people(read):
    assert agreement_of_people(read({"response": "r", "label": "pass"})) is None


def found(value, ties=0, people=("anna", "ben")):
    tie = Label.model_validate(
        {"input": "i", "response": "r", "labels": {"a": "pass", "b": "fail"}}
    )
    return PeopleAgreement(people, "Cohen's kappa", value, Proportion(4, 5), [tie] * ties)


@pytest.mark.parametrize(
    ("agreement", "shown", "not_shown"),
    [
        (found(0.59), "people themselves stay below the kappa of 0.60", "ties"),
        (found(0.6), "4 of 5 responses with several labels; Cohen's kappa 0.60", "themselves"),
        (found(None), "Cohen's kappa –", "themselves"),
        (found(0.9, ties=2), "2 responses without a majority, left out", "themselves"),
    ],
    ids=["below", "at the limit", "unknown", "ties"],
)
def test_the_ceiling_is_described_with_what_is_wrong_with_it(agreement, shown, not_shown):
    rows = describe_people(agreement, Limits())

    text = "\n".join(f"{name}: {line}" for name, line in rows)
    assert shown in text
    assert not_shown not in text
    assert "2: anna, ben" in text
    assert CEILING in text


def test_a_long_list_of_disagreements_is_cut():
    assert list_disagreements(found(0.5)) == []
    lines = list_disagreements(found(0.5, ties=20))
    assert (len(lines), lines[1], lines[2]) == (
        22,
        "People disagree on 20:",
        "  a pass, b fail: i r",
    )
    assert list_disagreements(found(0.5, ties=22))[-1] == "  and 2 more"
