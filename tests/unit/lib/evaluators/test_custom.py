import asyncio
import dataclasses
import threading
import time
from collections.abc import Awaitable
from fractions import Fraction

import pytest

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation, RetryConfig, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.models.test_result import ToolInvocation

SEEN = Observation(
    response="in 30 days",
    input="When?",
    ground_truth="30 days",
    retrieval_context=("passage",),
    tool_calls=(ToolInvocation(name="clock", args={"zone": "UTC"}, result="noon"),),
    case_name="returns",
    latency_ms=12.5,
)


async def evaluate(call, threshold=None, **how):
    evaluator = CustomEvaluator(call, threshold, **how)
    return await evaluator.evaluate(response=SEEN.response, observation=SEEN)


@pytest.mark.parametrize(
    ("returned", "score", "passed", "reason"),
    [
        (True, 1.0, True, ""),
        (False, 0.0, False, ""),
        (1, 1.0, True, ""),
        (0.5, 0.5, True, ""),
        (0.49, 0.49, False, ""),
        (Fraction(3, 4), 0.75, True, ""),
        (Score(0.3, True, "fine"), 0.3, True, "fine"),
        ({"score": 0.9}, 0.9, True, ""),
        ({"score": 0.9, "passed": False, "reason": "rude"}, 0.9, False, "rude"),
        ({"passed": True}, 1.0, True, ""),
        ({"score": 0.2, "passed": True, "reason": None}, 0.2, True, ""),
    ],
)
async def test_what_the_callable_returns_becomes_the_grade(returned, score, passed, reason):
    result = await evaluate(lambda _: returned)

    assert (result["score"], result["passed"], result["reasoning"]) == (score, passed, reason)


@pytest.mark.parametrize(
    ("returned", "score", "passed"),
    [
        (lambda np: np.bool_(True), 1.0, True),
        (lambda np: np.bool_(False), 0.0, False),
        (lambda np: np.float64(0.75), 0.75, True),
        (lambda np: np.float32(0.25), 0.25, False),
        (lambda np: np.int64(1), 1.0, True),
        (lambda np: np.array(0.75), 0.75, True),
        (lambda np: {"score": np.float32(0.75), "passed": np.bool_(False)}, 0.75, False),
        (lambda np: {"passed": np.bool_(True)}, 1.0, True),
        (lambda np: Score(np.float32(0.75), np.bool_(False)), 0.75, False),
    ],
    ids=["true", "false", "float", "float32", "int", "array", "dict", "passed", "Score"],
)
async def test_numbers_and_truths_of_numpy_are_read_as_those_of_python(returned, score, passed):
    import numpy as np  # here, as importing it takes long

    result = await evaluate(lambda _: returned(np), 0.5)

    assert (result["score"], result["passed"]) == (score, passed)
    assert (type(result["score"]), type(result["passed"])) == (float, bool)


async def test_an_evaluator_of_ones_own_may_say_no_with_a_truth_of_numpy(tmp_path):
    import numpy as np

    class Own(BaseEvaluator):
        metric = "own"

        async def _evaluate_impl(self, **kwargs):
            return {"score": np.float64(0.9), "passed": np.bool_(False)}

    result = await Own().evaluate(response="x")

    assert result["passed"] is False


@pytest.mark.parametrize("passed", ["no", 0, [], 0.0], ids=repr)
async def test_a_verdict_that_is_neither_true_nor_false_is_an_error(passed):
    with pytest.raises(EvaluationError, match="it must be true or false"):
        await evaluate(lambda _: Score(0.9, passed), 0.5)


@pytest.mark.parametrize(
    ("returned", "threshold", "passed"),
    [
        (0.3, 0.3, True),
        (0.6, 0.7, False),
        (0.0, 0.0, True),
        ({"score": 0.9, "passed": False}, 0.5, False),
        ({"score": 0.4, "passed": True}, 0.5, False),
        ({"score": 0.6, "passed": True}, 0.5, True),
    ],
)
async def test_threshold_and_own_verdict_must_both_be_satisfied(returned, threshold, passed):
    assert (await evaluate(lambda _: returned, threshold))["passed"] is passed


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "returned a NoneType"),
        ("0.5", "returned a str"),
        (float("nan"), "must be from 0 to 1"),
        (1.01, "must be from 0 to 1"),
        (-1, "must be from 0 to 1"),
        ({"score": 1, "pass": True}, "unknown key 'pass'"),
        ({}, "score=None"),
        ({"score": "1"}, "score='1'"),
        ({"score": True}, "score=True"),
        ({"score": 1, "passed": "yes"}, "passed='yes'"),
        (Score(7.0), "must be from 0 to 1"),
    ],
)
async def test_anything_else_that_is_returned_is_an_error(returned, complaint):
    with pytest.raises(EvaluationError, match=complaint):
        await evaluate(lambda _: returned)


async def test_the_callable_gets_everything_that_was_seen_and_cannot_change_it():
    def check(seen: Observation) -> bool:
        with pytest.raises(dataclasses.FrozenInstanceError):
            seen.response = "other"  # type: ignore[misc]
        return seen is SEEN and seen.tool_calls[0].args == {"zone": "UTC"}

    assert (await evaluate(check))["passed"]


async def test_a_plain_function_runs_in_a_thread():
    threads = []

    await evaluate(lambda _: threads.append(threading.current_thread()) or True)

    assert threads != [threading.main_thread()]


async def test_an_async_function_runs_on_the_loop():
    async def check(seen: Observation) -> float:
        await asyncio.sleep(0)
        return 0.7

    class Check:
        async def __call__(self, seen: Observation) -> float:
            return await check(seen)

    def hand_over(seen: Observation) -> Awaitable[float]:
        return check(seen)

    for call in (check, Check(), hand_over):
        assert (await evaluate(call))["score"] == 0.7


async def test_what_the_callable_raises_is_an_error_with_its_reason():
    def check(seen: Observation) -> bool:
        raise KeyError("price")

    with pytest.raises(EvaluationError, match="check failed: KeyError: 'price'"):
        await evaluate(check)


async def test_a_callable_that_exits_does_not_end_the_program():
    async def leave(_: Observation) -> bool:
        raise SystemExit(3)

    def leave_plainly(_: Observation) -> bool:
        raise SystemExit(3)

    for call in (leave, leave_plainly):
        with pytest.raises(EvaluationError, match="3"):
            await evaluate(call)


async def test_a_callable_that_hangs_is_an_error_within_the_limit():
    async def hang(_: Observation) -> bool:
        await asyncio.Event().wait()
        return True

    for call in (hang, lambda _: time.sleep(3)):
        with pytest.raises(EvaluationError, match=r"timed out after 0\.05 s"):
            await evaluate(call, timeout=0.05)


async def test_a_callable_that_fails_is_tried_again_where_that_is_asked_for():
    answers = [ValueError("first"), 0.9]

    def check(_: Observation) -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    config = RetryConfig(max_retries=1, base_delay=0.001, every_error=True)

    assert (await evaluate(check, retry_config=config))["retry_count"] == 1


async def test_a_callable_is_named_by_its_module_and_found_beside_the_agent(tmp_path):
    (tmp_path / "graders.py").write_text("def short(seen):\n    return len(seen.response) < 20\n")

    result = await evaluate("graders:short", base_dir=tmp_path)

    assert result["passed"]
    with pytest.raises(ConfigError, match="did you mean 'short'"):
        CustomEvaluator("graders:shrt", base_dir=tmp_path)


async def test_without_an_observation_it_is_an_error():
    with pytest.raises(EvaluationError, match="needs response and observation"):
        await CustomEvaluator(lambda _: True).evaluate()
