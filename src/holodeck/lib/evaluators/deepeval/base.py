"""The base class of DeepEval's metrics: converts inputs, checks the judge's answers and scores."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    METRIC_S,
    JudgedEvaluator,
    JudgedOptions,
    RetryConfig,
)
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.cases import to_texts, to_tool_calls
from holodeck.lib.evaluators.deepeval.errors import DeepEvalError
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.lib.support.text import is_blank
from holodeck.models.llm import LLMProvider

ONE_IS_GOOD = "0-1, 1 is good"
"""The scale of metrics that are named after something bad."""

_DEEPEVAL_NAMES = {
    "response": EvalParam.ACTUAL_OUTPUT.value,
    "query": EvalParam.INPUT.value,
    "ground_truth": EvalParam.EXPECTED_OUTPUT.value,
}


class DeepEvalOptions(JudgedOptions, total=False):
    """The options of every metric of DeepEval."""

    threshold: float


class ReasonOptions(DeepEvalOptions, total=False):
    """The options of a metric whose judge may give reasons."""

    include_reason: bool
    strict_mode: bool


class DeepEvalBaseEvaluator(JudgedEvaluator):
    """Computes a metric with DeepEval and our judge.

    Inputs have DeepEval's names; `response`, `query` and `ground_truth` are accepted, too. DeepEval
    scores the share of good verdicts in a list. A judge that returns too few or too many verdicts
    is asked once more, and then the metric is an error.

    Args:
        model_config: The judge model; required if no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        include_reason: Whether the judge gives a reason, with one extra call.
        timeout: Seconds for one evaluation, not counting the wait for a free slot; None for no
            limit.
        retry_config: How an evaluation is retried.
        strict_mode: Whether only a perfect score passes.
        judge: A judge that several metrics share.
    """

    error_class = DeepEvalError
    extra = "deepeval"
    libraries = ("deepeval",)
    deepeval_class: ClassVar[str]
    """The class in `deepeval.metrics`."""
    scale: ClassVar[str] = "0-1"
    takes_text: ClassVar[bool] = False
    """Whether DeepEval asks the judge for text, which is only shown."""
    empty_is_wrong: ClassVar[bool] = False
    """Whether an empty response scores 0 without a request; DeepEval would score it 1."""

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        include_reason: bool = True,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
        strict_mode: bool = False,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(
            model_config=model_config,
            threshold=threshold,
            timeout=timeout,
            retry_config=retry_config,
            judge=judge,
        )
        adapter.require_deepeval(f"metric {self.metric}")
        self.include_reason = include_reason
        self.strict_mode = strict_mode

    async def prepare(self) -> None:
        await adapter.load()

    async def evaluate(self, **kwargs: Any) -> dict[str, Any]:
        return await super().evaluate(
            **{_DEEPEVAL_NAMES.get(name, name): value for name, value in kwargs.items()}
        )

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        if self.empty_is_wrong and is_blank(kwargs[EvalParam.ACTUAL_OUTPUT]):
            return self._build_result(0.0, "the response is empty")
        return await self._measure(self._test_case(kwargs), self._options())

    async def _measure(self, case: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return DeepEval's result for the case."""
        judge = self.judge if self.uses_judge else None
        scale = self._weighted_scale()
        measurement = adapter.Measurement(
            self._metric_class(), judge, options, scale, takes_text=self.takes_text
        )
        metric = measurement.metric
        await measurement.run(case, lambda answer: self._check(answer, metric, case))
        return {**self._result(metric, case), "note": measurement.note}

    def _weighted_scale(self) -> tuple[int, int] | None:
        """Return the scores that are weighted by their probabilities; None if none are."""
        return None

    def _metric_class(self) -> type[Any]:
        """Return DeepEval's class."""
        found: type[Any] = getattr(adapter.library().metrics, self.deepeval_class)
        return found

    def _options(self) -> dict[str, Any]:
        """Return the arguments of DeepEval's class besides the judge."""
        return {
            "threshold": self.threshold,
            "include_reason": self.include_reason,
            "strict_mode": self.strict_mode,
            "async_mode": True,
            "verbose_mode": False,
            "eval_mode": "llm",  # an environment variable could select another mode
        }

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        """Return the test case in DeepEval's format, with only the inputs that the metric takes."""
        taken = self.required_params() | self.PARAM_SPEC.optional
        given = {name: kwargs.get(name) for name in taken}
        expected = given.get(EvalParam.EXPECTED_OUTPUT)
        return adapter.library().cases.LLMTestCase(
            input=adapter.clean_text(given.get(EvalParam.INPUT) or ""),
            actual_output=adapter.clean_text(given.get(EvalParam.ACTUAL_OUTPUT) or ""),
            expected_output=None if expected is None else adapter.clean_text(expected),
            context=to_texts(given.get(EvalParam.CONTEXT)),
            retrieval_context=to_texts(given.get(EvalParam.RETRIEVAL_CONTEXT)),
            tools_called=to_tool_calls(given.get(EvalParam.TOOLS_CALLED)),
        )

    def _expected_verdicts(self, metric: Any, case: Any) -> int | None:  # noqa: ARG002 - for overrides
        """Return how many verdicts the judge must give; None means at least one."""
        return None

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        """Raise ValueError, with a message for the judge, for an answer that makes no sense."""
        if isinstance(verdicts := answer.get("verdicts"), list):
            require_count("verdicts", verdicts, self._expected_verdicts(metric, case))

    def _nothing_to_judge(self, metric: Any, case: Any) -> str | None:  # noqa: ARG002 - for overrides
        """Return the reason if there was nothing to judge, where DeepEval gives the best score."""
        return None

    def _result(self, metric: Any, case: Any) -> dict[str, Any]:
        score = metric.score
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise EvaluationError(
                f"{self.metric}: DeepEval returned the score {score!r}; it must be from 0 to 1"
            )
        nothing = self._nothing_to_judge(metric, case)
        if nothing is not None:
            return {**self._build_result(score, nothing), "inconclusive": True}
        return self._build_result(score, metric.reason or "")

    def _build_result(self, score: float, reason: str) -> dict[str, Any]:
        threshold = 1.0 if self.strict_mode else self.threshold
        return {
            self.metric: float(score),
            "score": float(score),
            "passed": score >= threshold,
            "reasoning": reason,
            "metric_name": self.name,
            "threshold": threshold,
            "scale": self.scale,
        }


def require_count(key: str, items: Sequence[Any], expected: int | None) -> None:
    """Raise ValueError if the judge returned the wrong number of items."""
    if expected is None and not items:
        raise ValueError(f"'{key}' is empty")
    if expected is not None and len(items) != expected:
        raise ValueError(f"'{key}' has {len(items)} items; {expected} are to be judged")


def require_range(key: str, score: float, low: float, high: float) -> None:
    """Raise ValueError for a score outside its scale."""
    if not low <= score <= high:
        raise ValueError(f"'{key}' is {score:g}, which is not between {low:g} and {high:g}")
