"""What a row says besides the score."""

from types import SimpleNamespace

from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.text_metrics import ContainsEvaluator
from holodeck.lib.test_runner.grading import scoring
from holodeck.lib.test_runner.grading.checks import Check
from holodeck.lib.test_runner.grading.scoring import compute_metrics


async def test_a_row_says_how_many_milliseconds_a_metric_took(monkeypatch):
    """The time before `prepare` has ended is not the metric's."""
    clock = iter([0.0, 10.0, 12.0])
    monkeypatch.setattr(scoring, "time", SimpleNamespace(perf_counter=clock.__next__))
    rows = []

    check = Check("contains", ContainsEvaluator(value="euros"))
    await compute_metrics([check], Observation("Nine euros."), rows)

    assert [(row.passed, row.evaluation_time_ms) for row in rows] == [(True, 2000)]
