"""The labelled sets of the judge benchmark, and the table that is printed of them."""

import judge as benchmark
import pytest

from holodeck.lib.evaluators.judge_prompt import as_data
from holodeck.lib.judge_check.labels import read_labels
from support.token_probabilities import yes

SETS = {name: benchmark.read_kinds(name) for name in benchmark.SETS}
ALL = [label for kinds in SETS.values() for labels in kinds.values() for label in labels]


def asked_in(name):
    return {one.input.casefold() for labels in SETS[name].values() for one in labels}


def test_both_sets_have_the_same_kinds_of_the_same_size():
    sizes = [{kind: len(labels) for kind, labels in kinds.items()} for kinds in SETS.values()]

    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 8
    assert len(set(sizes[0].values())) == 1
    assert len(ALL) >= 200


@pytest.mark.parametrize("name", benchmark.SETS)
def test_each_input_of_a_kind_has_a_good_and_a_bad_response(name):
    for labels in SETS[name].values():
        good = [(one.input, one.criterion, one.ground_truth) for one in labels if one.is_good]
        bad = [(one.input, one.criterion, one.ground_truth) for one in labels if not one.is_good]
        assert good == bad
        assert len(set(good)) == len(good)


def test_nothing_is_in_both_sets_or_twice():
    shipped = read_labels(benchmark.DEFAULT_LABELS)
    responses = [one.response.casefold() for one in ALL]

    assert not asked_in("development") & asked_in("held_out")
    assert not {one.input.casefold() for one in shipped} & {one.input.casefold() for one in ALL}
    assert len(set(responses)) == len(responses)


def test_a_question_about_the_reference_answer_has_one():
    for one in ALL:
        assert ("reference" in one.criterion) == (one.ground_truth is not None), one.location


def test_the_held_out_set_is_measured_with_one_call_per_label(fake_openai, capsys):
    wrong = {one.response for one in SETS["held_out"]["injected"] if not one.is_good}
    good = {one.response for labels in SETS["held_out"].values() for one in labels if one.is_good}

    def passes(request):
        shown = [one for one in good | wrong if as_data(one) in request.prompt]
        return yes(0.9 if shown else 0.2)

    fake_openai.otherwise(passes)
    code = benchmark.main(
        ["--set", "held_out", "--model", "openai/wise", "--endpoint", fake_openai.url]
    )

    out = capsys.readouterr().out
    assert code == 0
    assert len(fake_openai.requests) == len(ALL) / 2
    assert "| Kind | n | Accuracy (95 %) | Good passed | Bad passed | Kappa | AUC |" in out
    assert "| injected | 14 | 0.50 (0.27 to 0.73) | 7 of 7 | 7 of 7 | 0.00 | 0.50 |" in out
    assert "| units and numbers | 14 | 1.00 (0.78 to 1.00) | 7 of 7 | 0 of 7 | 1.00 | 1.00 |" in out
    assert "| all | 112 | 0.94 (" in out
    assert "May it gate? not known yet: kappa is 0." in out
    assert "up to 24% of bad responses pass" in out
    assert "Inconclusive verdicts (0) and errors (0) count as wrong." in out


def test_a_judge_that_is_named_twice_is_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.read_options(["some-model", "--model", "openai/wise"])

    assert "name the judge once: LOCAL MODEL or --model" in capsys.readouterr().err


def test_a_judge_that_cannot_answer_is_no_measurement(fake_openai, capsys):
    fake_openai.otherwise(status=401, body=b'{"error": {"message": "wrong key"}}')
    code = benchmark.main(
        ["--set", "development", "--model", "openai/wise", "--endpoint", fake_openai.url]
    )

    shown = capsys.readouterr()
    assert code == 1
    assert "errors (112) count as wrong." in shown.out
    assert "| all | 112 | 0.00 (" in shown.out
    assert "wrong key" in shown.err
