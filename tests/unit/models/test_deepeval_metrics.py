import pytest
from pydantic import TypeAdapter, ValidationError

from holodeck.models.evaluation import Metric

METRIC = TypeAdapter(Metric)
GEVAL = {"type": "geval", "name": "polite"}


def band(first, last):
    return {"score": [first, last], "expected_outcome": "such an answer"}


WRONG = [
    ({"type": "deepeval", "metric": "bias", "schema": {}}, "schema"),
    ({"type": "deepeval", "metric": "prompt_alignment"}, "prompt_instructions"),
    ({"type": "deepeval", "metric": "role_adherence"}, "chatbot_role"),
    ({"type": "deepeval", "metric": "conversational_geval"}, "'criteria' is missing"),
    ({"type": "deepeval", "metric": "bias", "threshold": 2}, "less than or equal to 1"),
    (GEVAL, "'criteria' is missing"),
    ({**GEVAL, "criteria": "kind", "evaluation_params": ["output"]}, "Input should be 'input'"),
    ({**GEVAL, "criteria": "kind", "rubric": [band(5, 3)]}, r"write \[3, 5\]"),
    ({**GEVAL, "criteria": "kind", "rubric": [band(3, 5), band(5, 7)]}, "5 is in two bands"),
    ({**GEVAL, "criteria": "kind", "rubric": [band(4, 4)]}, "one score only"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG)
def test_a_key_that_is_wrong_says_so(keys, message):
    with pytest.raises(ValidationError, match=message):
        METRIC.validate_python(keys)


def test_a_metric_has_the_keys_that_it_makes_use_of():
    bias = METRIC.validate_python({"type": "deepeval", "metric": "bias", "strict_mode": True})
    adherence = METRIC.validate_python(
        {"type": "deepeval", "metric": "role_adherence", "chatbot_role": "a librarian"}
    )

    assert (bias.include_reason, bias.strict_mode) == (True, True)
    assert adherence.chatbot_role == "a librarian"
