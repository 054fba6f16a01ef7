"""What every metric is: inputs checked, one time limit, tries, and a result that is a number."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.exceptions import describe
from holodeck.lib.judging.judge import Judge, Judges
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, retry
from holodeck.models.evidence import Evidence, Unknown, evidence
from holodeck.models.llm import LLMProvider
from holodeck.models.test_case import ExpectedTool
from holodeck.models.test_result import ToolInvocation

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

_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of the operating system that trying again does not mend."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side of a conversation said."""

    role: Literal["user", "assistant"]
    content: str
    tool_calls: tuple[ToolInvocation, ...] | None = ()
    """None if they are unknown."""
    earlier: bool = False
    """Whether it was said before the case: an answer that is not of this run."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the agent could call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""


_ALL_SEEN = evidence(tool_calls="backend", history="runner", tools="backend")


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that was seen of one test case; a custom metric is called with it."""

    response: str
    input: str | None = None
    ground_truth: str | None = None
    retrieval_context: tuple[str, ...] = ()
    tool_calls: tuple[ToolInvocation, ...] | Unknown = ()
    """What the agent called; unknown calls raise EvaluationError wherever they are used."""
    case_name: str | None = None
    latency_ms: float | None = None
    """How long the agent took; None where that was not measured."""
    file_content: str | None = None
    """The text of the case's files."""
    expected_tools: Sequence[str | ExpectedTool] | None = None
    """The tools that the case expects; None where it expects nothing."""
    turns: tuple[Turn, ...] = ()
    """The conversation until then, the case's `history` included; empty for a case of one input
    without history."""
    instructions: str | None = None
    """What the agent was told; None where its backend knows and we do not."""
    tools: tuple[OfferedTool, ...] | Unknown = ()
    """What the agent could call; raises EvaluationError where that is unknown."""
    evidence: Evidence = _ALL_SEEN
    """Who saw each of the facts; None where nobody did."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a metric says of one answer."""

    score: float
    """From 0 (worst) to 1 (best)."""
    passed: bool | None = None
    """The metric's own verdict; None if only a threshold can decide."""
    reason: str = ""


def plain(value: Any) -> Any:
    """Return the Python value of a NumPy scalar, such as `np.bool_`; other values as they are."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


class BaseEvaluator(ABC):
    """A metric. Subclasses say what they need in PARAM_SPEC and compute in `_evaluate_impl`.

    Args:
        timeout: Seconds for one evaluation, all its tries included but not the wait for a slot of
            the judge; None for no limit.
        retry_config: How often an evaluation is tried again; three times if not given.
    """

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(required=frozenset({EvalParam.RESPONSE}))
    uses_observation: ClassVar[bool] = False
    """Whether `evaluate` wants the whole Observation as `observation=`."""

    def __init__(
        self, timeout: float | None = 60.0, retry_config: RetryConfig | None = None
    ) -> None:
        self.timeout = timeout
        self.retry_config = retry_config or RetryConfig()

    @property
    def name(self) -> str:
        """What messages call this metric."""
        return type(self).__name__

    @classmethod
    def get_param_spec(cls) -> ParamSpec:
        """The inputs that metrics of this class take."""
        return cls.PARAM_SPEC

    def required_params(self) -> frozenset[EvalParam]:
        """The inputs that this very metric cannot do without."""
        return self.PARAM_SPEC.required

    async def evaluate(self, **kwargs: Any) -> dict[str, Any]:
        """The scores of one answer, with `retry_count`. Raises EvaluationError, never a score.

        An empty answer is an answer and is graded; an input that is missing or None is an error.
        """
        self._refuse_missing(kwargs)
        await self.prepare()
        tried = _Tries(self)
        limit = None
        try:
            async with time_limit(self.timeout) as limit:
                result = await tried.run(kwargs)
        except (EvaluationError, ConfigError):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                raise EvaluationError(f"{self.name} timed out after {self.timeout:g} s") from error
            reason = describe(error)
            raise EvaluationError(f"{self.name} failed{tried.as_text()}: {reason}") from error
        return {"retry_count": tried.retries, **self._checked(result)}

    @abstractmethod
    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        """The scores of one answer. What blocks belongs in a thread (`in_thread`)."""

    async def prepare(self) -> None:  # noqa: B027 - an offer, not a duty
        """Load what is loaded once; the time it takes is not the metric's."""

    def _refuse_missing(self, kwargs: Mapping[str, Any]) -> None:
        wanted = [param.value for param in sorted(self.required_params())]
        if self.uses_observation:
            wanted.append("observation")
        missing = [name for name in wanted if kwargs.get(name) is None]
        if missing:
            raise EvaluationError(f"{self.name} needs {' and '.join(missing)}, which is missing")

    def _checked(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        result = {key: plain(value) for key, value in found.items()}
        passed = result.get("passed")
        if passed is not None and not isinstance(passed, bool):
            raise EvaluationError(f"{self.name} gave passed={passed!r}; it must be true or false")
        score = result.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
            raise EvaluationError(f"{self.name} gave the score {score!r}, which is not a number")
        for key, value in result.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise EvaluationError(f"{self.name} gave {key} = {value}, which is not a number")
        return result


class _Tries:
    """The tries of one evaluation, counted."""

    def __init__(self, evaluator: BaseEvaluator) -> None:
        self._evaluator = evaluator
        self._config = evaluator.retry_config
        self.retries = 0

    async def run(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return await retry(
            lambda: self._evaluator._evaluate_impl(**kwargs),  # noqa: SLF001 - one class in two parts
            attempts=self._config.max_retries + 1,
            is_transient=self._is_transient,
            delay_for=lambda _, attempt: backoff_delay(attempt, self._config),
            on_retry=self._note,
        )

    def as_text(self) -> str:
        return f" after {self.retries + 1} tries" if self.retries else ""

    def _is_transient(self, error: Exception) -> bool:
        if isinstance(error, ConfigError):
            return False
        if self._config.every_error:
            return True
        passing = isinstance(error, OSError)  # ConnectionError and TimeoutError are among them
        return passing and not isinstance(error, _LASTING)

    def _note(self, error: Exception, attempt: int, delay: float) -> None:
        self.retries = attempt
        logger.info(
            "%s: try %d failed (%s); next in %.1f s",
            self._evaluator.name,
            attempt,
            describe(error),
            delay,
        )


class EvaluatorOptions(TypedDict, total=False):
    """How every metric is run."""

    timeout: float | None
    retry_config: RetryConfig | None


class ComparisonOptions(EvaluatorOptions, total=False):
    """How every metric that compares is run, and what it compares with."""

    value: str | None
    values: Sequence[str] | None


class ScoredEvaluator(BaseEvaluator):
    """A metric that gives one Grade.

    Its result has the score under `score` and under the metric's own name, `passed` and
    `reasoning`. With a threshold, passed is `score >= threshold` (0 counts); without one it is the
    metric's own verdict, or None for a metric that has none and is reported only.
    """

    metric: ClassVar[str]

    def __init__(self, threshold: float | None = None, **how: Unpack[EvaluatorOptions]) -> None:
        super().__init__(**how)
        self.threshold = threshold

    def _row(self, grade: Score, **more: float) -> dict[str, Any]:
        passed = grade.passed if self.threshold is None else grade.score >= self.threshold
        return {
            **more,
            self.metric: grade.score,
            "score": grade.score,
            "passed": passed,
            "reasoning": grade.reason,
        }

    def _response(self, kwargs: Mapping[str, Any]) -> str:
        response = kwargs[EvalParam.RESPONSE]
        if not isinstance(response, str):
            raise EvaluationError(
                f"{self.name} compares text, and response is a {type(response).__name__}"
            )
        return response


class ComparingEvaluator(ScoredEvaluator):
    """Compares the answer with `value` or any of `values`, else with the case's `ground_truth`."""

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({EvalParam.RESPONSE, EvalParam.GROUND_TRUTH})
    )

    def __init__(
        self,
        threshold: float | None = None,
        *,
        value: str | None = None,
        values: Sequence[str] | None = None,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        self._values = one_or_many(value, values)

    def required_params(self) -> frozenset[EvalParam]:
        if self._values is None:
            return self.PARAM_SPEC.required
        return self.PARAM_SPEC.required - {EvalParam.GROUND_TRUTH}

    def _references(self, kwargs: Mapping[str, Any]) -> Sequence[str]:
        """The texts to compare with, at least one."""
        return self._values or (kwargs[EvalParam.GROUND_TRUTH],)


def one_or_many(value: str | None, values: Sequence[str] | None) -> tuple[str, ...] | None:
    """What was configured to compare with; None if nothing was. Raises ConfigError."""
    if value is not None and values is not None:
        raise ConfigError("value", "write either 'value' or 'values', not both")
    if value is None and values is None:
        return None
    key = "values" if value is None else "value"
    wanted = tuple(values) if values is not None else (str(value),)
    if not wanted or any(not text.strip() for text in wanted):
        raise ConfigError(key, "is empty, and every answer would do; write what to compare with")
    return wanted


def quote(text: str, limit: int = 80) -> str:
    """The text in quotes on one line, cut to about `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


DEFAULT_THRESHOLD = 0.5


class JudgedEvaluator(BaseEvaluator):
    """A metric whose score a model gives.

    Args:
        model_config: The model that judges; needed where no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        timeout: Seconds for one evaluation, waiting for a slot not counted; None for no limit.
        retry_config: How often an evaluation is tried again. The judge's requests are retried by
            themselves, so this is for what a library makes of them.
        judge: The judge, where several metrics share one.
    """

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        timeout: float | None = 60.0,
        retry_config: RetryConfig | None = None,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(timeout, retry_config)
        self.model_config = model_config
        self.threshold = threshold
        self._judge = judge

    @property
    def judge(self) -> Judge:
        """Who is asked. Raises ConfigError if nobody was named."""
        if self._judge is None:
            if self.model_config is None:
                raise ConfigError("model", f"{self.name} needs a model that judges")
            self._judge = Judges().of(self.model_config)
        return self._judge
