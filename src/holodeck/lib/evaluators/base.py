"""The base classes of all evaluators: they check inputs, limit time, retry, and yield scores."""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import ValidationError

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.inputs import EvalKwargsBuilder, Observation, OfferedTool, Turn
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec, takes
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, retry
from holodeck.lib.support.text import describe, instance_of
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import JudgedMetric, MetricSettings, class_of_metric
from holodeck.models.metrics.text import ComparingMetric
from holodeck.models.results.outcome import Vote

__all__ = [
    "BaseEvaluator",
    "EvaluationError",
    "Observation",
    "OfferedTool",
    "RetryConfig",
    "Score",
    "Turn",
]

logger = logging.getLogger(__name__)

DEFAULT_THRESHOLD = 0.5
METRIC_S = 60.0
"""How long the evaluation of a response may take by default."""
ONE_IS_GOOD = "0-1, 1 is good"
"""The scale of metrics that are named after something bad."""
PREPARE_S = 1800.0
"""How long an evaluator may load what it loads once; that may be a download."""
_PERMANENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of the operating system that a retry does not solve."""
_EMPTY_ERRORS = frozenset({"too_short", "string_pattern_mismatch"})
"""What pydantic calls an empty list, and a text of white space."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a metric yields for a response."""

    score: float
    """From 0 (worst) to 1 (best)."""
    passed: bool | None = None
    """The metric's own verdict; None if only a threshold can decide."""
    reason: str = ""
    raw_score: float | None = None
    """The score on the metric's own scale, `raw_scale`; None if that is 0 to 1."""
    raw_scale: str | None = None
    scale: str = "0-1"
    """The scale of `score` as reports show it."""
    inconclusive: bool = False
    """Whether the score is no verdict, whatever the threshold."""
    retry_count: int = 0
    votes: Sequence[Vote] = ()
    """What a judge answered."""
    note: str | None = None
    """What to know about how the score came about."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Further figures, which only `evaluate` returns."""

    @classmethod
    def from_result(cls, result: Mapping[str, Any], name: str) -> "Score":
        """Return the score of a result of `evaluate`, which is under `score` or the metric's name.

        Raises EvaluationError.
        """
        score = result.get("score", result.get(name))
        if isinstance(score, bool) or not isinstance(score, int | float):
            keys = ", ".join(result) or "nothing"
            raise EvaluationError(f"returned no score; its result has {keys}")
        # An evaluator of the user may mean something else by votes and notes.
        votes, note = result.get("votes"), result.get("note")
        return cls(
            float(score),
            result.get("passed"),
            str(result.get("reasoning") or ""),
            raw_score=result.get("raw_score"),
            raw_scale=result.get("raw_scale"),
            scale=result.get("scale", "0-1"),
            inconclusive=bool(result.get("inconclusive")),
            retry_count=result.get("retry_count", 0),
            votes=[vote for vote in votes if isinstance(vote, Vote)]
            if isinstance(votes, list)
            else (),
            note=note if isinstance(note, str) else None,
        )

    def to_result(self, metric: str) -> dict[str, Any]:
        """Return the result of `evaluate` for the score of a metric."""
        result = {
            "retry_count": self.retry_count,
            **self.figures,
            metric: self.score,
            "score": self.score,
            "passed": self.passed,
            "reasoning": self.reason,
            "scale": self.scale,
            "inconclusive": self.inconclusive,
        }
        optional = {
            "raw_score": self.raw_score,
            "raw_scale": self.raw_scale,
            "votes": self.votes or None,
            "note": self.note,
        }
        return result | {key: value for key, value in optional.items() if value is not None}


def to_python(value: Any) -> Any:
    """Return the Python value of a NumPy scalar such as `np.bool_`; other values unchanged."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


class BaseEvaluator(ABC):
    """Computes a metric. Subclasses declare their inputs in PARAM_SPEC and implement
    `_evaluate_impl`.

    Args:
        timeout: Seconds for an evaluation including its retries, but not the wait for a free slot
            of the judge; None for no limit.
        retry_config: How an evaluation is retried; up to three times by default.
    """

    metric: ClassVar[str]
    """The metric's name in agent.yaml."""
    PARAM_SPEC: ClassVar[ParamSpec] = takes("response")
    uses_observation: ClassVar[bool] = False
    """Whether `evaluate` takes the whole Observation as `observation=`."""
    has_verdict: ClassVar[bool] = True
    """Whether it passes or fails a response by itself; otherwise only a threshold decides."""
    uses_judge: ClassVar[bool] = False
    """Whether it calls a judge model."""
    extra: ClassVar[str | None] = None
    """The optional dependency group of holodeck that installs its `libraries`."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """The modules that it cannot work without."""
    error_class: ClassVar[type[EvaluationError]] = EvaluationError
    """What it raises if the metric cannot be computed."""

    def __init__(
        self, timeout: float | None = METRIC_S, retry_config: RetryConfig | None = None
    ) -> None:
        self.timeout = timeout
        self.retry_config = retry_config or RetryConfig()

    @property
    def name(self) -> str:
        """The evaluator's name in messages."""
        return type(self).__name__

    @property
    def asks_judge(self) -> bool:
        """Whether it calls a judge model, given its settings."""
        return self.uses_judge

    @classmethod
    def get_param_spec(cls) -> ParamSpec:
        """Return the inputs that evaluators of this class take."""
        return cls.PARAM_SPEC

    def required_params(self) -> frozenset[EvalParam]:
        """Return the inputs that this evaluator requires, given its settings."""
        return self.PARAM_SPEC.required

    async def evaluate(self, **kwargs: Any) -> dict[str, Any]:
        """Return the scores of a response, with `retry_count`.

        Raises EvaluationError if an input is missing or None, or if the metric cannot be computed.
        An empty response is not missing: it is scored.
        """
        result = await self._evaluate(kwargs)
        return self._keys_of(result) if isinstance(result, Score) else result

    async def evaluate_observation(self, observation: Observation, name: str = "") -> Score:
        """Return the score of an observation; `name` is that of the metric.

        Raises EvaluationError.
        """
        builder = EvalKwargsBuilder(
            agent_response=observation.response,
            input_query=observation.input,
            ground_truth=observation.ground_truth,
            file_content=observation.file_content,
            retrieval_context=list(observation.known_passages) or None,
            observation=observation,
        )
        kwargs = builder.build_for(self)
        is_ours = type(self).evaluate is BaseEvaluator.evaluate
        result = await (self._evaluate(kwargs) if is_ours else self.evaluate(**kwargs))
        score = result if isinstance(result, Score) else Score.from_result(result, name)
        if not 0 <= score.score <= 1:
            raise EvaluationError(f"returned the score {score.score}, which is not between 0 and 1")
        return score

    async def _evaluate(self, kwargs: Mapping[str, Any]) -> Score | dict[str, Any]:
        """Return the result of an evaluation, with its retries and its verdict."""
        try:
            self._require_inputs(kwargs)
            await self._prepare()
            result = await self._run(kwargs)
            return self._decide(result) if isinstance(result, Score) else result
        except EvaluationError as error:
            if type(error) is not EvaluationError or self.error_class is EvaluationError:
                raise
            raise self.error_class(str(error)) from error

    async def _run(self, kwargs: Mapping[str, Any]) -> Score | dict[str, Any]:
        """Evaluate within the time limit, which the retries share."""
        retries, limit, config = 0, time_limit(self.timeout), self.retry_config

        def count(error: Exception, attempt: int, delay: float) -> None:
            nonlocal retries
            retries = attempt
            message = "%s: attempt %d failed (%s); retrying in %.1f s"
            logger.info(message, self.name, attempt, describe(error), delay)

        try:
            async with limit:
                result = await retry(
                    lambda: self._evaluate_impl(**kwargs),
                    attempts=config.max_retries + 1,
                    is_transient=self._is_transient,
                    delay_for=lambda _, attempt: backoff_delay(attempt, config),
                    on_retry=count,
                )
        except (EvaluationError, ConfigError):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise self._late() from error
            attempts = f" after {retries + 1} attempts" if retries else ""
            message = f"{self.name} failed{attempts}: {describe(error)}"
            raise EvaluationError(message) from error
        if isinstance(result, Score):
            return replace(result, retry_count=retries)
        return {"retry_count": retries, **self._validate_result(result)}

    def _late(self) -> EvaluationError:
        return EvaluationError(f"{self.name} timed out after {self.timeout:g} s")

    def _is_transient(self, error: Exception) -> bool:
        if isinstance(error, ConfigError):
            return False
        if self.retry_config.every_error:
            return True
        # ConnectionError and TimeoutError are OSErrors, too
        return isinstance(error, OSError) and not isinstance(error, _PERMANENT)

    def _decide(self, score: Score) -> Score:
        """Return the score with its verdict: that of the threshold, if there is one."""
        return score

    def _keys_of(self, score: Score) -> dict[str, Any]:
        """Return the result of `evaluate` for a score."""
        return score.to_result(self.metric)

    @abstractmethod
    async def _evaluate_impl(self, **kwargs: Any) -> Score | dict[str, Any]:
        """Return the score of a response, or a mapping with the keys that `evaluate` returns.

        Run blocking work with `run_in_thread`.
        """

    async def _prepare(self) -> None:
        scope = asyncio.timeout(PREPARE_S)
        try:
            async with scope:
                await self.prepare()
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise EvaluationError(f"{self.name} was not ready within {PREPARE_S:g} s") from error

    async def prepare(self) -> None:  # noqa: B027 - optional to override
        """Load what is loaded once; the time this takes is not part of the evaluation."""

    def _require_inputs(self, kwargs: Mapping[str, Any]) -> None:
        required = [param.value for param in sorted(self.required_params())]
        if self.uses_observation:
            required.append("observation")
        missing = [name for name in required if kwargs.get(name) is None]
        if missing:
            raise EvaluationError(f"{self.name} needs {' and '.join(missing)}, which is missing")

    def _validate_result(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        result = {key: to_python(value) for key, value in values.items()}
        passed = result.get("passed")
        if passed is not None and not isinstance(passed, bool):
            raise EvaluationError(
                f"{self.name} returned passed={passed!r}; it must be true or false"
            )
        score = result.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
            raise EvaluationError(f"{self.name} returned score={score!r}, which is not a number")
        for key, value in result.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise EvaluationError(f"{self.name} returned {key}={value}, which is not a number")
        return result


class ScoredEvaluator(BaseEvaluator):
    """Computes a built-in metric by its settings.

    Its name, which the argument `metric` of a subclass gives, is that of its settings. In Python,
    the settings may be keywords with the names of agent.yaml.

    The result has the score under `score` and under the metric's own name, `passed` and
    `reasoning`. With a threshold, `passed` is `score >= threshold` (0 counts). Without it, `passed`
    is the metric's own verdict, or None if the metric has no verdict and is only reported.

    Args:
        threshold: Score from 0 to 1 to reach; by default that of the settings.
        settings: The settings of an agent.yaml; by default they are made from the keywords.
        timeout: As for `BaseEvaluator`.
        retry_config: As for `BaseEvaluator`.

    Raises:
        ConfigError: A setting is missing or invalid.
    """

    settings: MetricSettings
    uses: ClassVar[tuple[str, ...]] = ()
    """What a run lends it as keywords: `judge`, `base_dir` of the user's modules, `embeddings`."""

    def __init__(
        self,
        threshold: float | None = None,
        *,
        settings: MetricSettings | None = None,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(timeout, retry_config)
        if settings is None:
            settings = self._settings_from({"threshold": threshold, **keywords})
        self.settings = settings
        self.threshold = settings.threshold
        self._configure()

    @classmethod
    def _settings_from(cls, keywords: Mapping[str, Any]) -> MetricSettings:
        model = class_of_metric(cls.metric)
        keys = {key: value for key, value in keywords.items() if value is not None}
        if model.names():
            keys["metric"] = cls.metric
        try:
            return model.model_validate(keys)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            message = problem["msg"].removeprefix("Value error, ")
            if problem["type"] in _EMPTY_ERRORS:
                message = "is empty, so every response would match; write the expected text"
            key = next(iter(problem["loc"]), message.partition("'")[2].partition("'")[0])
            raise ConfigError(str(key), message) from error

    @property
    def library_class(self) -> str:
        """The class of the library that computes it: that of the name which ours has."""
        return BUILT_IN[self.metric].__name__

    def _configure(self) -> None:
        """Check the settings, and derive what every evaluation needs. Raises ConfigError."""

    def __init_subclass__(cls, metric: str | None = None, **options: Any) -> None:
        """Register the class that computes a built-in metric; it cannot be replaced."""
        super().__init_subclass__(**options)
        if metric is None:
            return
        if metric in BUILT_IN:
            raise TypeError(f"{BUILT_IN[metric].__name__} computes the metric {metric!r}")
        cls.metric = metric
        BUILT_IN[metric] = cls

    @abstractmethod
    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        """Return the score of a response."""

    def _decide(self, score: Score) -> Score:
        if self.threshold is None:
            return score
        return replace(score, passed=score.score >= self.threshold)

    def _response(self, kwargs: Mapping[str, Any]) -> str:
        response = kwargs[EvalParam.RESPONSE]
        if not isinstance(response, str):
            raise EvaluationError(
                f"{self.name} compares text, and response is {instance_of(response)}"
            )
        return response


BUILT_IN: dict[str, type[ScoredEvaluator]] = {}
"""Name of a metric → the class that computes it, once its module is imported."""


class ComparingEvaluator(ScoredEvaluator):
    """Compares the response with `value` or `values`, or else with the case's `ground_truth`."""

    settings: ComparingMetric
    PARAM_SPEC: ClassVar[ParamSpec] = takes("response", "ground_truth")

    def required_params(self) -> frozenset[EvalParam]:
        if self.settings.expected_texts() is None:
            return self.PARAM_SPEC.required
        return self.PARAM_SPEC.required - {EvalParam.GROUND_TRUTH}

    def _references(self, kwargs: Mapping[str, Any]) -> Sequence[str]:
        """Return the expected texts, at least one."""
        return self.settings.expected_texts() or (kwargs[EvalParam.GROUND_TRUTH],)


class JudgedEvaluator(ScoredEvaluator):
    """Computes a metric that a judge scores.

    Args:
        model_config: The judge model; required if no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        judge: A judge that several metrics share.
        options: `timeout`, in seconds and without the wait for a free slot, `retry_config` and the
            settings. Requests to the judge have retries of their own, so `retry_config` is for what
            a library does with the answers.
    """

    settings: JudgedMetric
    uses: ClassVar[tuple[str, ...]] = ("judge",)
    uses_judge: ClassVar[bool] = True

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float | None = None,
        judge: Judge | None = None,
        **options: Any,
    ) -> None:
        self._judge = judge
        super().__init__(threshold, model=model_config, **options)

    @property
    def judge(self) -> Judge:
        """The judge. Raises ConfigError if there is no model for it."""
        if self._judge is None:
            if self.settings.model is None:
                raise ConfigError("model", f"{self.name} needs a model that judges")
            self._judge = Judges().of(self.settings.model)
        return self._judge
