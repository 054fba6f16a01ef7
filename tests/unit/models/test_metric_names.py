"""Names of metrics, and the keys that libraries call otherwise."""

import pytest
from pydantic import TypeAdapter, ValidationError

from holodeck.models.evaluation import Metric

METRIC = TypeAdapter(Metric)
BANDS = [
    {"score_range": [0, 4], "expected_outcome": "rude"},
    {"score": [5, 10], "expected_outcome": "kind"},
]


@pytest.mark.parametrize(
    "settings",
    [
        {"metric": "contains", "value": "a"},
        {"metric": "equality", "value": "a"},
        {"metric": "groundedness"},
        {"metric": "violence", "azure_ai_project": "https://x"},
        {"type": "rag", "metric_type": "faithfulness"},
        {"type": "deepeval", "metric": "conversational_geval", "criteria": "is kind"},
        {"type": "deepeval", "class": "BiasMetric"},
        {"type": "code", "grader": "graders:check"},
        {"metric": "graders:check"},
        {"type": "geval", "criteria": "is kind"},
        {"type": "judge", "criteria": ["Is it kind?"]},
    ],
    ids=lambda settings: settings.get("type") or settings["metric"],
)
def test_every_metric_may_have_a_name_which_reports_show(settings):
    assert METRIC.validate_python({**settings, "name": "manners"}).label == "manners"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"type": "rag", "metric": "faithfulness"}, {"metric_type": "faithfulness"}),
        ({"type": "deepeval", "metric_type": "bias"}, {"metric": "bias"}),
    ],
    ids=["rag", "deepeval"],
)  # fmt: skip
def test_what_libraries_call_a_key_is_accepted(written, meant):
    settings = METRIC.validate_python(written).model_dump(by_alias=True)

    assert {key: settings[key] for key in meant} == meant


def test_the_bands_of_a_rubric_may_be_written_as_in_deepeval():
    metric = METRIC.validate_python(
        {"type": "geval", "name": "kind", "criteria": "is kind", "rubric": BANDS}
    )

    assert [band.score for band in metric.rubric] == [[0, 4], [5, 10]]


def test_a_key_and_its_other_name_are_one_too_many():
    band = {"score": [0, 1], "score_range": [0, 1], "expected_outcome": "x"}

    with pytest.raises(ValidationError, match="'score_range' is another name of 'score'"):
        METRIC.validate_python({"type": "geval", "name": "n", "criteria": "c", "rubric": [band]})
