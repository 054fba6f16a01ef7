"""Which labels count in a check of a judge, and which look at them it is."""

import pytest

from holodeck.lib.judge_check.check_result import JudgeCheckResult, Judgement, LookKeeper
from holodeck.lib.judge_check.labels import Label
from holodeck.lib.judging.agreement import Agreement
from holodeck.models.metrics.judge_trust import Limits, LookLog
from holodeck.models.token_usage import UsageMeter


def labels(start, stop):
    verdicts = ("pass", "fail")
    return [Label(input="?", response=f"{n}", label=verdicts[n % 2]) for n in range(start, stop)]


class Checks:
    """Checks of one judge, one after the other."""

    def __init__(self):
        self.log = LookLog(metric="price", judge="openai/wise")

    def look(self, labels, settings="a", fingerprint="f", wrong=0, errors=()):
        """The result of a check in which the judge is wrong about the first bad responses."""
        keeper = LookKeeper(self.log, settings, fingerprint, lambda _: settings)
        planned = keeper.plan(labels)
        bad = [label for label in labels if not label.is_good][:wrong]
        judged = [Judgement(label, 1.0, passed=label.is_good or label in bad) for label in labels]
        found = planned.result(JudgeCheckResult("j", 0.5, judged, errors, UsageMeter()))
        self.log = keeper.add(planned, found, Limits())
        return found


def test_each_look_at_other_labels_has_the_next_number():
    checks = Checks()

    numbers = [checks.look(labels(0, size)).look for size in (100, 160, 220)]

    assert numbers == [1, 2, 3]


def test_a_look_that_could_not_let_any_judge_gate_costs_nothing():
    checks = Checks()

    numbers = [checks.look(labels(0, size)).look for size in (20, 40, 60, 100, 110)]

    assert numbers == [1, 1, 1, 1, 2]


def test_the_same_look_keeps_its_number_and_its_first_result():
    checks = Checks()
    worse = checks.look(labels(0, 100), wrong=9)

    again = checks.look(labels(0, 100))
    elsewhere = checks.look(labels(0, 100), fingerprint="upgraded")

    assert (worse.look, again.look, elsewhere.look) == (1, 1, 1)
    assert again.counted_agreement == Agreement(50, 0, 50, 0)
    assert (worse.gate().verdict, again.gate().verdict) == ("not known yet", "not known yet")
    assert again.gate().is_repeated
    assert elsewhere.gate().verdict == "may gate"


def test_a_look_with_failed_requests_may_be_repeated():
    checks = Checks()
    checks.look(labels(0, 100), wrong=9, errors=["429"])

    again = checks.look(labels(0, 100))
    third = checks.look(labels(0, 100), wrong=9)

    assert (again.look, again.gate().verdict) == (1, "may gate")
    assert third.gate().verdict == "not known yet"


def test_a_corrected_label_makes_it_another_look():
    checks, first = Checks(), labels(0, 100)
    checks.look(first)

    corrected = [first[0].model_copy(update={"label": "fail"}), *first[1:]]

    assert checks.look(corrected).look == 2


def test_labels_on_which_other_settings_were_tried_do_not_count():
    checks = Checks()
    checks.look(labels(0, 100), settings="threshold 0.5", wrong=9)

    tuned = checks.look(labels(0, 100), settings="threshold 0.6")
    fresh = checks.look(labels(0, 220), settings="threshold 0.6")
    back = checks.look(labels(0, 100), settings="threshold 0.5")

    assert (tuned.counted_agreement.total, tuned.uncounted) == (0, 100)
    assert tuned.gate().verdict == "not known yet"
    assert (fresh.counted_agreement.total, fresh.uncounted, fresh.look) == (120, 100, 2)
    assert fresh.gate().verdict == "may gate"
    assert (back.uncounted, back.look, back.gate().verdict) == (0, 1, "not known yet")


@pytest.mark.parametrize(("look", "verdict"), [(1, "may gate"), (2, "not known yet")])
def test_a_later_look_needs_more_labels(look, verdict):
    counts = [Judgement(label, 1.0, label.is_good) for label in labels(0, 80)]

    found = JudgeCheckResult("j", 0.5, counts, [], UsageMeter(), look=look)

    assert found.gate().verdict == verdict
