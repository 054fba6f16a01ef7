"""Labels of people, and the figures that tell how far a judge agrees with them."""

import json
import re

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.judge_check.labels import (
    DEFAULT_LABELS,
    count_kinds,
    read_labels,
    require_enough_labels,
)
from holodeck.lib.judging.agreement import (
    Agreement,
    Proportion,
    area_under_curve,
    best_threshold,
    held_out_accuracy,
)
from holodeck.models.metrics.judge_trust import Limits

ROW = {"input": "Hi", "response": "Hello.", "criterion": "Is it polite?", "label": "pass"}


def written(tmp_path, *lines):
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    return path


def test_half_of_the_labels_that_come_with_holodeck_are_good():
    assert count_kinds(read_labels(DEFAULT_LABELS)) == (20, 20)


def test_labels_keep_the_order_of_the_file_and_empty_lines_are_none(tmp_path):
    path = written(tmp_path, ROW, "", ROW | {"label": "fail", "response": ""})

    assert [one.is_good for one in read_labels(path)] == [True, False]


def without(key):
    return {name: value for name, value in ROW.items() if name != key}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        (without("response"), "'response' is missing"),
        (without("label"), "'label' is missing; write 'pass' or 'fail'"),
        (ROW | {"label": None}, "'label' is missing; write 'pass' or 'fail'"),
        (ROW | {"tool_calls": [{"tool": "x"}]}, "'tool_calls.0.name' is missing"),
        (ROW | {"history": [{"role": "bot"}]}, "'history.0.role': Input should be"),
        (ROW | {"grounds": "x"}, "unknown key 'grounds'"),
        (ROW | {"respons": "x"}, "did you mean 'response'?"),
        (ROW | {"label": "good"}, "the label is 'good'; write 'pass' or 'fail'"),
        (ROW | {"input": " "}, "'input' is ' '"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_wrong_line_is_named_with_its_file(tmp_path, line, said):
    path = written(tmp_path, ROW, line)

    with pytest.raises(ConfigError, match=said.replace("?", r"\?")) as caught:
        read_labels(path)

    assert caught.value.field == f"{path}:2"


def test_a_file_without_labels_a_missing_one_and_one_of_bytes_are_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")

    for path, said in (
        (written(tmp_path, ""), "is empty"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "bytes", "not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_labels(path)


def test_kappa_is_that_of_the_textbook():
    found = Agreement(true_positives=20, false_positives=10, true_negatives=15, false_negatives=5)

    assert found.accuracy == Proportion(35, 50)
    assert found.kappa == pytest.approx(0.4)
    assert found.kappa_error == pytest.approx(0.1296, abs=1e-4)
    assert found.true_positive_rate == Proportion(20, 25)
    assert found.true_negative_rate == Proportion(15, 25)


def test_verdicts_are_counted_by_what_people_say():
    found = Agreement.of([(True, True), (True, False), (False, True), (False, False)])

    assert found == Agreement(1, 1, 1, 1)
    assert found.kappa == 0


@pytest.mark.parametrize("verdicts", [[], [(True, True)] * 3])
def test_there_is_no_kappa_where_chance_would_agree_as_well(verdicts):
    found = Agreement.of(verdicts)

    assert found.kappa is None
    assert found.kappa_error is None


def test_the_interval_is_wilsons():
    low, high = Proportion(8, 10).interval

    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert Proportion(10, 10).interval == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert Proportion(0, 0).interval is None
    assert Proportion(0, 0).value is None


def test_the_area_counts_how_often_good_is_above_bad():
    assert area_under_curve([(True, 0.9), (True, 0.4), (False, 0.4), (False, 0.1)]) == 0.875
    assert area_under_curve([(True, 0.9)]) is None


def test_the_best_threshold_lies_in_the_widest_gap_that_agrees_most():
    scores = [(True, 0.9), (True, 0.8), (False, 0.3), (False, 0.2)]

    assert best_threshold(scores) == pytest.approx(0.55)
    assert best_threshold(scores[:2]) is None


def test_the_accuracy_of_a_threshold_is_measured_on_labels_that_did_not_choose_it():
    clear = [(True, 0.8)] * 10 + [(False, 0.2)] * 10
    noise = [(at % 2 == 0, at / 20) for at in range(20)]
    own = max(sum((score >= at / 20) == good for good, score in noise) for at in range(21))

    assert held_out_accuracy(clear) == Proportion(20, 20)
    assert held_out_accuracy(noise).count < own
    assert held_out_accuracy([(True, 0.9), (False, 0.1), (False, 0.2)]) is None


def test_labels_that_contradict_each_other_are_refused_with_both_lines(tmp_path):
    path = written(tmp_path, ROW, ROW, ROW | {"label": "fail"})

    with pytest.raises(ConfigError, match="jsonl:1 gives the same response 'pass'") as caught:
        read_labels(path)

    assert caught.value.field == f"{path}:3"


@pytest.mark.parametrize(
    ("look", "reused", "why"),
    [
        (1, 0, "are too few: not even"),
        (2, 0, "are too few (this is look 2 at labels of this metric): not even"),
        (1, 3, "are too few (3 more do not count, as other settings"),
        (3, 3, "(this is look 3 at labels of this metric, and 3 more do not count"),
    ],
)
def test_too_few_labels_are_an_error_that_says_why_so_many_are_needed(look, reused, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        require_enough_labels([], Limits(), "labels.jsonl", look, reused)
