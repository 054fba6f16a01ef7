from typing import Any, ClassVar

import pytest

from holodeck.lib.evaluators.base import BaseEvaluator, Observation
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec
from holodeck.lib.test_runner.eval_kwargs_builder import (
    EvalKwargsBuilder,
    build_retrieval_context_from_tools,
)


def evaluator(spec: ParamSpec, *, observes: bool = False) -> BaseEvaluator:
    class Echo(BaseEvaluator):
        PARAM_SPEC: ClassVar[ParamSpec] = spec
        uses_observation = observes

        async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
            return kwargs

    return Echo()


STANDARD = ParamSpec(frozenset({P.RESPONSE, P.QUERY}), frozenset({P.GROUND_TRUTH, P.CONTEXT}))
DEEPEVAL = ParamSpec(
    frozenset({P.ACTUAL_OUTPUT, P.INPUT}),
    frozenset({P.EXPECTED_OUTPUT, P.CONTEXT}),
    uses_retrieval_context=True,
)


def full(**changes: Any) -> EvalKwargsBuilder:
    case = {
        "agent_response": "30 days",
        "input_query": "How long?",
        "ground_truth": "30 days.",
        "file_content": "Returns: 30 days",
        "retrieval_context": ["a", "b"],
    }
    return EvalKwargsBuilder(**(case | changes))


def test_a_standard_metric_gets_standard_names_and_one_text_as_context():
    assert full().build_for(evaluator(STANDARD)) == {
        "response": "30 days",
        "query": "How long?",
        "ground_truth": "30 days.",
        "context": "Returns: 30 days",
    }


def test_a_deepeval_metric_gets_its_own_names_and_a_list_as_context():
    assert full().build_for(evaluator(DEEPEVAL)) == {
        "actual_output": "30 days",
        "input": "How long?",
        "expected_output": "30 days.",
        "context": ["Returns: 30 days"],
        "retrieval_context": ["a", "b"],
    }


def test_inputs_that_the_metric_does_not_take_are_left_out():
    spec = ParamSpec(frozenset({P.RESPONSE}))

    assert full().build_for(evaluator(spec)) == {"response": "30 days"}


def test_context_is_given_to_a_metric_that_only_says_it_uses_context():
    spec = ParamSpec(frozenset({P.RESPONSE}), uses_context=True)

    assert full().build_for(evaluator(spec))["context"] == "Returns: 30 days"


def test_inputs_that_the_case_does_not_have_are_left_out():
    builder = EvalKwargsBuilder("30 days")

    assert builder.build_for(evaluator(STANDARD)) == {"response": "30 days"}


def test_an_empty_answer_is_passed_on():
    assert full(agent_response="").build_for(evaluator(STANDARD))["response"] == ""


def test_only_a_metric_that_asks_for_the_whole_case_gets_it():
    observation = Observation("30 days")
    builder = full(observation=observation)
    spec = ParamSpec(frozenset({P.RESPONSE}))

    assert builder.build_for(evaluator(spec, observes=True))["observation"] is observation
    assert "observation" not in builder.build_for(evaluator(spec))


LOOP: list[Any] = []
LOOP.append({"self": LOOP})


@pytest.mark.parametrize(
    ("results", "passages"),
    [
        ([{"name": "kb", "result": "text"}, {"name": "user", "result": "Ann"}], ["text"]),
        ([{"name": "kb", "result": ["a", "", None, {"é": 1}]}], ["a", '{"é": 1}']),
        ([{"name": "kb", "result": {"hits": 2}}], ['{"hits": 2}']),
        ([{"name": "kb", "result": 0}, {"name": "kb", "result": False}], ["0", "false"]),
        ([{"name": "kb", "result": {(1, 2): "x"}}], ["{(1, 2): 'x'}"]),
        ([{"name": "kb", "result": LOOP}], ["{'self': [{...}]}"]),
        ([{"name": "kb", "result": None}, {"name": "kb"}, {"name": "kb", "result": ""}], None),
        ([{"name": "other", "result": "x"}, {}], None),
        ([], None),
    ],
)
def test_results_of_retrieval_tools_become_passages(results, passages):
    assert build_retrieval_context_from_tools(results, {"kb"}) == passages
