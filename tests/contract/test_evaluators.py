"""One suite over every metric: each row of the table keeps the same promises."""

import asyncio
from typing import Any

import pytest
from pydantic import TypeAdapter

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.test_runner.eval_kwargs_builder import EvalKwargsBuilder
from holodeck.models.evaluation import Metric
from holodeck.models.metrics.azure import AzureSafetyMetric
from support.evaluators import EVALUATORS
from support.similarity import SharedWords

TEXT = "Dogs are allowed in the library"

# metric → its keys, a right answer, a wrong one
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "f1_score": ({"threshold": 0.9}, TEXT, "No"),
    "bleu": ({"threshold": 0.9}, TEXT, "No"),
    "rouge": ({"threshold": 0.9}, TEXT, "No"),
    "meteor": ({"threshold": 0.9}, TEXT, "No"),
    "semantic_similarity": ({}, f"Yes, {TEXT}", "No"),
    "exact_match": ({}, TEXT, TEXT + "!"),
    "equality": ({}, TEXT, TEXT + "!"),
    "contains": ({}, f"Yes. {TEXT}.", "No"),
    "not_contains": ({}, "No", f"Yes. {TEXT}."),
    "passfail": ({}, f"Yes. {TEXT}.", "No"),
    "regex": ({"pattern": "[Dd]ogs"}, TEXT, "No"),
    "json_schema": ({"schema": {"type": "object"}}, "{}", "[]"),
    "numeric": ({"value": 9}, "At 9.", "At 10."),
    "latency": ({"max_ms": 1000}, "quick", "slow"),
    "graders:polite": ({}, "Yes, please", "No"),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path) -> tuple[BaseEvaluator, str, str]:
    (tmp_path / "graders.py").write_text("def polite(seen): return 'please' in seen.response")
    keys, right, wrong = CASES[request.param]
    metric = TypeAdapter(Metric).validate_python({"metric": request.param} | keys)
    return build_evaluator(metric, tmp_path, embeddings=SharedWords), right, wrong


def inputs(evaluator: BaseEvaluator, response: str) -> dict[str, Any]:
    latency = 5000 if response == "slow" else 5
    seen = Observation(response, ground_truth=TEXT, latency_ms=latency)
    return EvalKwargsBuilder(response, ground_truth=TEXT, observation=seen).build_for(evaluator)


def test_every_metric_of_the_table_is_in_this_suite():
    """Those that ask a judge or a project in Azure have suites of their own, with one to ask."""
    asking = {name for name, one in EVALUATORS.items() if one.uses_judge} | set(
        AzureSafetyMetric.names()
    )
    asking.add("tool_correctness")  # in the suite of DeepEval's metrics
    assert EVALUATORS.keys() - asking <= set(CASES)


async def test_a_right_answer_passes_and_a_wrong_one_does_not(case):
    evaluator, right, wrong = case

    for response, passed in ((right, True), (wrong, False)):
        result = await evaluator.evaluate(**inputs(evaluator, response))

        assert result["passed"] is passed
        assert 0 <= result["score"] <= 1
        assert isinstance(result["reasoning"], str)
        assert result["retry_count"] == 0


async def test_the_score_also_stands_under_the_metrics_own_name(case):
    evaluator, right, _ = case

    result = await evaluator.evaluate(**inputs(evaluator, right))

    assert result[evaluator.metric] == result["score"]


async def test_an_empty_answer_is_graded(case):
    evaluator, _, _ = case

    result = await evaluator.evaluate(**inputs(evaluator, ""))

    assert isinstance(result["passed"], bool)


@pytest.mark.parametrize("absent", [{}, {"response": None}])
async def test_a_missing_answer_is_an_error(case, absent):
    evaluator, _, _ = case

    with pytest.raises(EvaluationError, match="response"):
        await evaluator.evaluate(**absent)


async def test_each_required_input_is_missed(case):
    evaluator, right, _ = case
    needed = {param.value for param in evaluator.required_params()}
    needed |= {"observation"} if evaluator.uses_observation else set()

    for name in needed:
        kwargs = inputs(evaluator, right)
        kwargs.pop(name)
        with pytest.raises(EvaluationError, match=name):
            await evaluator.evaluate(**kwargs)


async def test_a_megabyte_of_hostile_text_is_a_verdict_or_an_error_and_never_a_hang(case):
    evaluator, _, _ = case
    evaluator.timeout = 5
    response = "\x00\x1b[2J\ud800'; <script> 1,2 {[" * 30_000

    try:
        said = (await evaluator.evaluate(**inputs(evaluator, response)))["reasoning"]
    except EvaluationError as error:
        said = str(error)

    assert len(said) < 1000


async def test_cancellation_passes_through(case):
    evaluator, right, _ = case
    task = asyncio.create_task(evaluator.evaluate(**inputs(evaluator, right * 1000)))
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
