import pytest

from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec


def test_the_inputs_have_the_documented_names():
    assert {param.name.lower() for param in EvalParam} == {param.value for param in EvalParam}
    assert len(EvalParam) == 14


@pytest.mark.parametrize(
    ("required", "optional", "deepeval"),
    [
        ({EvalParam.RESPONSE}, {EvalParam.QUERY}, False),
        ({EvalParam.ACTUAL_OUTPUT}, set(), True),
        ({EvalParam.RESPONSE}, {EvalParam.INPUT}, True),
        ({EvalParam.EXPECTED_OUTPUT}, set(), True),
        ({EvalParam.CONTEXT, EvalParam.RETRIEVAL_CONTEXT}, set(), False),
    ],
)
def test_the_family_is_known_by_its_words(required, optional, deepeval):
    spec = ParamSpec(frozenset(required), frozenset(optional))

    assert spec.uses_deepeval_params() is deepeval


def test_nothing_but_the_required_inputs_has_to_be_said():
    assert ParamSpec(frozenset()) == (frozenset(), frozenset(), False, False)
