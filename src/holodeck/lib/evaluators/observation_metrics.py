"""Metrics about more than the response's text: the user's own code, latency and passfail."""

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    METRIC_S,
    BaseEvaluator,
    Observation,
    RetryConfig,
    Score,
    ScoredEvaluator,
    to_python,
)
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import Judge
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, instance_of, is_blank, quote
from holodeck.lib.support.tool_names import did_you_mean_tool, find_tool
from holodeck.lib.user_code.asserts import count_asserts, describe_failed_assert
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_callable
from holodeck.models.metrics.text import LatencyMetric
from holodeck.models.results.evidence import unknown_reason

_KEYS = ("score", "passed", "reason")
_ALLOWED_RESULTS = (
    "return a number from 0 to 1, true or false, a Score, or a dict with score, passed, reason"
)


class CustomEvaluator(BaseEvaluator):
    """Calls the user's code with the Observation; a plain function runs in a thread.

    The code returns a number, a bool, a Score, or a dict with score, passed and reason; anything
    else is an error. Without `passed` and without a threshold, a score of at least 0.5 passes; with
    both, the response must satisfy both. With `asks_judge` it gets a GraderJudge as `judge`.
    """

    metric = "custom"
    uses_observation = True

    def __init__(
        self,
        target: str | Callable[[Observation], Any],
        threshold: float | None = None,
        *,
        base_dir: CodeFolders | None = None,
        asks_judge: bool = False,
        judge: Judge | None = None,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
    ) -> None:
        super().__init__(timeout, retry_config)
        self.threshold = threshold
        self._asks_judge = asks_judge
        self._judge = judge
        self._function = load_callable(target, base_dir) if isinstance(target, str) else target
        self._label = target if isinstance(target, str) else getattr(target, "__name__", "custom")

    @property
    def name(self) -> str:
        return self._label

    @property
    def asks_judge(self) -> bool:
        return self._asks_judge

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        return _to_score(await self._value(kwargs["observation"]), self.name)

    def _decide(self, score: Score) -> Score:
        threshold = self.threshold
        if score.passed is None and threshold is None:
            threshold = DEFAULT_THRESHOLD
        is_reached = threshold is None or score.score >= threshold
        return replace(score, passed=is_reached and score.passed is not False)

    async def _value(self, observation: Observation) -> Any:
        call = partial(self._function, observation)
        if not self._asks_judge:
            return await self._call(call)
        if self._judge is None:
            raise ConfigError("model", f"{self.name} needs a model that judges")
        judge = GraderJudge(self._judge)
        try:
            value = await self._call(partial(call, judge=judge))
        finally:
            judge.close()
        if judge.fault is not None:
            raise judge.fault
        return value

    async def _call(self, call: Callable[[], Any]) -> Any:
        """Return what the code returned; False if an assert of it failed.

        Code that returns nothing passes if it has asserts and one of them ran.
        """
        try:
            with count_asserts() as asserts:
                value = await call_user_function(call, self._function)
        except SystemExit as error:
            raise EvaluationError(f"{self.name} called sys.exit({error.code!r})") from error
        except AssertionError as error:
            failed = describe_failed_assert(error)
            if failed is None:
                raise
            return Score(0.0, False, failed)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # it would end the run
            raise EvaluationError(f"{self.name} raised {describe(error)}") from error
        if value is None and asserts:
            held = "1 assert holds" if len(asserts) == 1 else f"{len(asserts)} asserts hold"
            return Score(1.0, True, held)
        return value


VERDICT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "passed": {"type": "boolean"}},
    "required": ["reason", "passed"],
    "additionalProperties": False,
}
"""What the judge answers unless the grader says otherwise; a grader may return it as it is."""


class GraderJudge:
    """Asks the judge of the run: `ask` in a plain function, `await aask` in a coroutine.

    Made in the event loop of the run, to which the judge's connections belong, for an evaluation.
    The first fault is kept, so that code that hides the exception passes nothing.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._loop = asyncio.get_running_loop()
        self._requests: set[Future[Any]] = set()
        self._is_closed = False
        self.fault: EvaluationError | ConfigError | None = None

    @property
    def name(self) -> str:
        """The provider and name of the model."""
        return self._judge.name

    def ask(self, prompt: str, schema: Mapping[str, Any] = VERDICT) -> Any:
        """Return the judge's answer, JSON that is valid by the schema. Raises EvaluationError.

        By default, the answer is a mapping with `passed` and `reason`.
        """
        if self._is_in_run():
            self.fault = EvaluationError(
                "judge.ask() would block the run; write 'await judge.aask(…)' in a coroutine"
            )
            raise self.fault
        return self._submit(prompt, schema).result()

    async def aask(self, prompt: str, schema: Mapping[str, Any] = VERDICT) -> Any:
        """Return the judge's answer as `ask` does."""
        if self._is_in_run():
            return await self._ask(prompt, schema)
        return await asyncio.wrap_future(self._submit(prompt, schema))

    def close(self) -> None:
        """Withdraw what is still asked, for example after a time limit."""
        self._is_closed = True
        for request in tuple(self._requests):  # a canceled request removes itself
            request.cancel()

    def _is_in_run(self) -> bool:
        """Whether the calling thread runs the event loop of the run."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _submit(self, prompt: str, schema: Mapping[str, Any]) -> Future[Any]:
        if self._is_closed:
            raise EvaluationError("the time of the metric is over; the judge is not asked any more")
        request = asyncio.run_coroutine_threadsafe(self._ask(prompt, schema), self._loop)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return request

    async def _ask(self, prompt: str, schema: Mapping[str, Any]) -> Any:
        form = json.dumps(schema, ensure_ascii=False)
        text = f"{prompt}\n\nAnswer with nothing but JSON that is valid by this schema:\n{form}"
        try:
            return await self._judge.ask([{"role": "user", "content": text}], schema)
        except (EvaluationError, ConfigError) as error:
            self.fault = self.fault or error
            raise


def _to_score(value: Any, name: str) -> Score:
    value = to_python(value)
    match value:
        case Score():
            checked = _score_from_mapping({key: getattr(value, key) for key in _KEYS}, name)
            score = replace(
                checked,
                raw_score=value.raw_score,
                raw_scale=value.raw_scale,
                scale=value.scale,
                inconclusive=value.inconclusive,
            )
        case bool():
            score = Score(float(value), value)
        case Real():
            score = Score(float(value))
        case Mapping():
            score = _score_from_mapping(value, name)
        case _:
            raise EvaluationError(f"{name} returned {instance_of(value)}; {_ALLOWED_RESULTS}")
    if not math.isfinite(score.score) or not 0 <= score.score <= 1:
        raise EvaluationError(f"{name} returned the score {score.score}; it must be from 0 to 1")
    return score


def _score_from_mapping(value: Mapping[Any, Any], name: str) -> Score:
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise EvaluationError(f"{name} returned the unknown key {unknown[0]!r}; {_ALLOWED_RESULTS}")
    score, passed, reason = (to_python(value.get(key)) for key in _KEYS)
    if passed is not None and not isinstance(passed, bool):
        raise EvaluationError(f"{name} returned passed={passed!r}; it must be true or false")
    if score is None and passed is not None:
        score = float(passed)
    if isinstance(score, bool) or not isinstance(score, Real):
        raise EvaluationError(f"{name} returned score={score!r}; it must be a number")
    return Score(float(score), passed, "" if reason is None else str(reason))


class LatencyEvaluator(ScoredEvaluator, metric="latency"):
    """The agent took at most `max_ms`. The score is 1 within the limit, and `max_ms` divided by the
    time taken above it."""

    settings: LatencyMetric
    uses_observation = True

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        observation: Observation = kwargs["observation"]
        taken_ms, max_ms = observation.latency_ms, self.settings.max_ms
        if taken_ms is None:
            raise EvaluationError(unknown_reason("latency", observation.evidence))
        passed = taken_ms <= max_ms
        score = 1.0 if passed else max_ms / taken_ms
        return Score(score, passed, f"{taken_ms:.0f} ms of {max_ms} ms allowed")


NOTHING_TO_COMPARE = "nothing to compare: the case has neither ground_truth nor expected_tools"


class PassFailEvaluator(ScoredEvaluator, metric="passfail"):
    """The response is not blank and contains the case's `ground_truth`, ignoring case, and the
    agent called every expected tool that is given by name only. A name may lack the prefix of a
    framework, such as `OrderPlugin-`, if it means a single tool.

    Without a ground truth and expected tools there is no verdict.
    """

    uses_observation = True
    PARAM_SPEC = takes("response", optional=("ground_truth",))

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        observation: Observation | None = kwargs.get("observation")
        expected = kwargs.get(EvalParam.GROUND_TRUTH)
        if expected is None and (observation is None or observation.expected_tools is None):
            return Score(0.0, None, NOTHING_TO_COMPARE)
        faults = list(_faults(self._response(kwargs), expected))
        tool_faults, notes = _compare_tools(observation) if observation else ([], [])
        faults += tool_faults
        reason = "; ".join(faults or ["response and tool calls are as expected", *notes])
        return Score(float(not faults), not faults, reason)


def _faults(response: str, expected: str | None) -> Iterator[str]:
    if is_blank(response):
        yield "the response is empty"
    if expected is not None and expected.casefold() not in response.casefold():
        yield f"{quote(expected)} is not in {quote(response)}"


def _compare_tools(observation: Observation) -> tuple[list[str], list[str]]:
    """Return what is wrong with the called tools, and which names matched with a prefix.

    Raises EvaluationError if a name may mean several tools.
    """
    wanted = [name for name in observation.expected_tools or () if isinstance(name, str)]
    calls = observation.tool_calls if wanted else ()
    called = [call.name for call in calls if not call.blocked]
    offered = [tool.name for tool in observation.tools] if observation.evidence.tools else []
    faults, notes = [], []
    for name in wanted:
        called_name = find_tool(name, [*called, *offered])
        if called_name not in called:
            hint = did_you_mean_tool(name, [*called, *offered])
            faults.append(f"no call of {name!r}; called: {', '.join(called) or 'nothing'}{hint}")
        elif called_name != name:
            notes.append(f"{name!r} matches {called_name!r}")
    return faults, notes
