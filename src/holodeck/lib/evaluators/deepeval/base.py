"""What all metrics of DeepEval share: inputs in its words, answers and scores checked."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypedDict, Unpack

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import JudgedEvaluator, RetryConfig
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.models.llm import LLMProvider
from holodeck.models.test_result import ToolInvocation

ONE_IS_GOOD = "0-1, 1 is good"
"""The scale of metrics that are named after what is bad."""

_OTHER_WORDS = {
    "response": P.ACTUAL_OUTPUT.value,
    "query": P.INPUT.value,
    "ground_truth": P.EXPECTED_OUTPUT.value,
}


class JudgeOptions(TypedDict, total=False):
    """How every judged metric is run."""

    model_config: LLMProvider | None
    threshold: float
    timeout: float | None
    retry_config: RetryConfig | None
    judge: Judge | None


class ReasonOptions(JudgeOptions, total=False):
    """How a metric is run whose judge also gives reasons."""

    include_reason: bool
    strict_mode: bool


class DeepEvalEvaluator(JudgedEvaluator):
    """A metric that DeepEval computes with the help of our judge.

    Inputs have DeepEval's names; `response`, `query` and `ground_truth` are taken, too. Of each
    list of verdicts, DeepEval scores the share that is good: a judge that leaves some out, or gives
    more than there is to judge, is asked again and then not believed.
    """

    metric: ClassVar[str]
    kind: ClassVar[str]
    """The class in `deepeval.metrics`."""
    scale: ClassVar[str] = "0-1"
    empty_is_wrong: ClassVar[bool] = False
    """Whether an empty answer scores 0 unasked; DeepEval would find nothing wrong with it."""

    def __init__(
        self,
        *,
        include_reason: bool = True,
        strict_mode: bool = False,
        **judged: Unpack[JudgeOptions],
    ) -> None:
        super().__init__(**judged)
        adapter.require_deepeval(f"metric {self.metric}")
        self.include_reason = include_reason
        self.strict_mode = strict_mode

    async def prepare(self) -> None:
        await adapter.load()

    async def evaluate(self, **kwargs: Any) -> dict[str, Any]:
        return await super().evaluate(
            **{_OTHER_WORDS.get(name, name): value for name, value in kwargs.items()}
        )

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        if self.empty_is_wrong and not kwargs[P.ACTUAL_OUTPUT].strip():
            return self._row(0.0, "the answer is empty")
        return await self._measured(self._case(kwargs), self._options())

    async def _measured(self, case: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """What DeepEval says of the case."""
        measurement = adapter.Measurement(self.kind, self._asked(), options)
        metric = measurement.metric
        await measurement.run(case, lambda answer: self._check(answer, metric, case))
        return self._result(metric, case)

    def _asked(self) -> Judge | None:
        return self.judge

    def _options(self) -> dict[str, Any]:
        """What DeepEval's class is made with, besides the judge."""
        return {
            "threshold": self.threshold,
            "include_reason": self.include_reason,
            "strict_mode": self.strict_mode,
            "async_mode": True,
            "verbose_mode": False,
            "eval_mode": "llm",  # a variable of the environment could choose another
        }

    def _case(self, kwargs: Mapping[str, Any]) -> Any:
        """The case in DeepEval's words; inputs that the metric does not take are left out."""
        taken = self.required_params() | self.PARAM_SPEC.optional
        given = {name: kwargs.get(name) for name in taken}
        expected = given.get(P.EXPECTED_OUTPUT)
        return adapter.library().cases.LLMTestCase(
            input=adapter.clean_text(given.get(P.INPUT) or ""),
            actual_output=adapter.clean_text(given.get(P.ACTUAL_OUTPUT) or ""),
            expected_output=None if expected is None else adapter.clean_text(expected),
            context=passages(given.get(P.CONTEXT)),
            retrieval_context=passages(given.get(P.RETRIEVAL_CONTEXT)),
            tools_called=tool_calls(given.get(P.TOOLS_CALLED)),
        )

    def _judged(self, metric: Any, case: Any) -> int | None:  # noqa: ARG002 - for those who know
        """How many verdicts the judge owes; None if that is for it to say, but at least one."""
        return None

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        """Raise ValueError, in words for the judge, for an answer that makes no sense."""
        if isinstance(verdicts := answer.get("verdicts"), list):
            require_count("verdicts", verdicts, self._judged(metric, case))

    def _unjudged(self, metric: Any, case: Any) -> str | None:  # noqa: ARG002 - as above
        """Why there was nothing to judge, if so: DeepEval then gives the best score."""
        return None

    def _result(self, metric: Any, case: Any) -> dict[str, Any]:
        score = metric.score
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise EvaluationError(
                f"{self.metric}: DeepEval gave the score {score!r}, which is not between 0 and 1"
            )
        nothing = self._unjudged(metric, case)
        if nothing is not None:
            return {**self._row(score, nothing), "inconclusive": True}
        return self._row(score, metric.reason or "")

    def _row(self, score: float, reason: str) -> dict[str, Any]:
        limit = 1.0 if self.strict_mode else self.threshold
        return {
            self.metric: float(score),
            "score": float(score),
            "passed": score >= limit,
            "reasoning": reason,
            "metric_name": self.name,
            "threshold": limit,
            "scale": self.scale,
        }


def require_count(what: str, found: Sequence[Any], wanted: int | None) -> None:
    """Raise ValueError if the judge gave another number of things than it was asked for."""
    if wanted is None and not found:
        raise ValueError(f"'{what}' is empty")
    if wanted is not None and len(found) != wanted:
        raise ValueError(f"'{what}' has {len(found)} items; {wanted} are to be judged")


def require_range(key: str, score: float, low: float, high: float) -> None:
    """Raise ValueError for a score outside of its scale."""
    if not low <= score <= high:
        raise ValueError(f"'{key}' is {score:g}, which is not between {low:g} and {high:g}")


def passages(texts: str | Sequence[str] | None) -> list[str] | None:
    """The texts as DeepEval takes them: a list, whatever they were."""
    if texts is None:
        return None
    return [adapter.clean_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


def tool_calls(calls: Sequence[ToolInvocation] | None) -> list[Any] | None:
    """Tool calls in DeepEval's words."""
    if calls is None:
        return None
    make = adapter.library().cases.ToolCall
    return [make(name=one.name, input_parameters=one.args, output=one.result) for one in calls]
