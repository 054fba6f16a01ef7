import asyncio
from typing import Any, ClassVar

import pytest

from holodeck.errors import ConfigError, EvaluationError, MissingExtra
from holodeck.lib.evaluators import base
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.inputs import Observation
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.processes.threads import gather_all, run_in_thread

QUICK = RetryConfig(base_delay=0.001)


class Scripted(BaseEvaluator):
    """Raises or returns what it is told to, one after the other."""

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        frozenset({EvalParam.RESPONSE, EvalParam.GROUND_TRUTH})
    )

    def __init__(self, *steps: Any, **how: Any) -> None:
        super().__init__(**({"retry_config": QUICK} | how))
        self.steps = list(steps)

    async def _evaluate_impl(self, **_: Any) -> dict[str, Any]:
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return await step() if callable(step) else step


def evaluate(evaluator: BaseEvaluator) -> Any:
    return evaluator.evaluate(response="a", ground_truth="b")


def test_there_is_one_evaluation_error_in_the_program():
    assert base.EvaluationError is EvaluationError


def test_a_metric_is_called_by_its_class_unless_it_says_otherwise():
    assert Scripted().name == "Scripted"


def test_the_inputs_of_a_metric_can_be_asked_of_class_and_object():
    assert Scripted.get_param_spec() is Scripted().get_param_spec() is Scripted.PARAM_SPEC


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"response": "a"}, "ground_truth"),
        ({"response": "a", "ground_truth": None}, "ground_truth"),
        ({}, "ground_truth and response"),
    ],
)
async def test_a_missing_input_is_an_error_that_names_input_and_metric(given, missing):
    with pytest.raises(EvaluationError, match=f"Scripted needs {missing}, which is missing"):
        await Scripted({"score": 1.0}).evaluate(**given)


async def test_an_empty_answer_is_present():
    result = await Scripted({"score": 0.0}).evaluate(response="", ground_truth="b")

    assert result == {"score": 0.0, "retry_count": 0}


@pytest.mark.parametrize("error", [ConnectionError(), TimeoutError(), OSError()])
async def test_an_error_that_may_pass_is_tried_again(error):
    result = await evaluate(Scripted(error, error, {"score": 0.5}))

    assert result == {"score": 0.5, "retry_count": 2}


@pytest.mark.parametrize("kind", [ConnectionError, TimeoutError])
async def test_an_error_that_stays_is_reported_with_the_number_of_tries(kind):
    evaluator = Scripted(*[kind("no answer")] * 4)

    with pytest.raises(EvaluationError, match=f"after 4 attempts: {kind.__name__}: no") as caught:
        await evaluate(evaluator)

    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("error", [ValueError("bad"), FileNotFoundError("gone")])
async def test_an_error_that_will_not_pass_is_not_tried_again(error):
    evaluator = Scripted(error, {"score": 1.0})

    with pytest.raises(EvaluationError, match="Scripted failed: ") as caught:
        await evaluate(evaluator)

    assert caught.value.__cause__ is error
    assert len(evaluator.steps) == 1


async def test_every_error_is_tried_again_where_that_is_asked_for():
    config = RetryConfig(max_retries=2, base_delay=0.001, every_error=True)
    evaluator = Scripted(
        ValueError("bad"), EvaluationError("odd"), {"score": 1.0}, retry_config=config
    )

    assert (await evaluate(evaluator))["retry_count"] == 2


async def test_a_configuration_error_stays_one_and_is_never_tried_again():
    config = RetryConfig(base_delay=0.001, every_error=True)
    evaluator = Scripted(MissingExtra("nlp", "metric x"), {"score": 1.0}, retry_config=config)

    with pytest.raises(ConfigError, match="metric x: needs an optional library"):
        await evaluate(evaluator)


async def test_a_metric_that_takes_too_long_is_an_error_with_its_limit():
    async def hang() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(EvaluationError, match=r"Scripted timed out after 0\.05 s"):
        await evaluate(Scripted(hang, timeout=0.05))


async def test_a_blocked_thread_does_not_hold_up_the_limit(hang):
    async def block() -> dict[str, Any]:
        return await run_in_thread(lambda: hang() or {})

    with pytest.raises(EvaluationError, match="timed out"):
        await evaluate(Scripted(block, timeout=0.1))


async def test_the_limit_covers_all_tries():
    config = RetryConfig(max_retries=50, base_delay=30, max_delay=60)
    evaluator = Scripted(*[ConnectionError()] * 50, timeout=0.05, retry_config=config)

    with pytest.raises(EvaluationError, match="timed out after"):
        await evaluate(evaluator)


async def test_no_limit_means_no_limit():
    assert (await evaluate(Scripted({"score": 1.0}, timeout=None)))["score"] == 1.0


async def test_a_timeout_of_the_evaluator_itself_is_not_that_of_a_limit_it_does_not_have():
    never_again = RetryConfig(max_retries=0)
    evaluator = Scripted(TimeoutError("no answer"), timeout=None, retry_config=never_again)

    with pytest.raises(EvaluationError, match="Scripted failed: TimeoutError: no answer"):
        await evaluate(evaluator)


async def test_cancellation_passes_through():
    started = asyncio.Event()

    async def hang() -> dict[str, Any]:
        started.set()
        await asyncio.Event().wait()
        return {}

    task = asyncio.create_task(evaluate(Scripted(hang)))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "result",
    [
        {"score": float("nan")},
        {"score": 1.0, "bleu": float("inf")},
        {"score": "0.5"},
        {"score": True},
    ],
)
async def test_a_score_that_is_not_a_number_is_an_error(result):
    with pytest.raises(EvaluationError, match="not a number"):
        await evaluate(Scripted(result))


async def test_a_metric_that_never_gets_ready_is_an_error_with_the_limit(monkeypatch):
    monkeypatch.setattr(base, "PREPARE_S", 0.05)

    class Loading(Scripted):
        async def prepare(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(EvaluationError, match=r"Loading was not ready within 0\.05 s"):
        await evaluate(Loading({"score": 1.0}))


class Whole(Scripted):
    """Overrides the method that counts the retries."""

    async def evaluate(self, **_: Any) -> dict[str, Any]:
        result: dict[str, Any] = await self._evaluate_impl()
        return result


async def test_a_result_without_retries_and_a_note_has_neither():
    score = await Whole({"score": 0.5}).evaluate_observation(Observation("a", ground_truth="b"))

    assert (score.score, score.retry_count, score.note) == (0.5, 0, None)


@pytest.mark.parametrize(("note", "kept"), [("of 2 votes", "of 2 votes"), (7, None), ("", "")])
async def test_only_a_text_is_a_note_about_a_score(note, kept):
    evaluator = Scripted({"score": 0.5, "note": note})

    score = await evaluator.evaluate_observation(Observation("a", ground_truth="b"))

    assert score.note == kept


async def test_the_first_error_of_several_cancels_the_others_and_is_raised_itself():
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def fail() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad") as caught:
        await gather_all([hang(), fail()])

    assert cancelled.is_set()
    assert caught.value.__suppress_context__
