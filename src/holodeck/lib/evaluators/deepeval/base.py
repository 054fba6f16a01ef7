"""What DeepEval's metrics share: its test cases, checks of the judge's answers, and scores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import JudgedEvaluator, Score
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.inputs import Exchange, Turn
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.support.text import did_you_mean_or_list, is_blank
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.metrics.deepeval import DeepEvalClassMetric, DeepEvalSettings, ReasonedMetric
from holodeck.models.results.evidence import UNSEEN_CALLS
from holodeck.models.test_result import ToolInvocation

_DEEPEVAL_NAMES = {
    "response": EvalParam.ACTUAL_OUTPUT.value,
    "query": EvalParam.INPUT.value,
    "ground_truth": EvalParam.EXPECTED_OUTPUT.value,
}


class DeepEvalError(EvaluationError):
    """A metric of DeepEval could not be computed."""


class ProviderNotSupportedError(DeepEvalError):
    """The judge's provider is unknown."""


class DeepEvalModelConfig(LLMProvider):
    """A judge model, as `model_config` of a metric; an `LLMProvider` does the same.

    Args:
        provider: The provider of the model.
        model_name: The name of the model.
        deployment_name: The deployment, instead of a name; for Azure.
        temperature: Sampling temperature.
        settings: Further settings of an `LLMProvider`, such as `endpoint` and `api_key`.

    Raises:
        ProviderNotSupportedError: The provider is unknown.
    """

    def __init__(
        self,
        provider: ProviderEnum | str = ProviderEnum.OLLAMA,
        model_name: str = "gpt-oss:20b",
        *,
        deployment_name: str | None = None,
        temperature: float | None = 0.0,
        **settings: Any,
    ) -> None:
        if provider not in list(ProviderEnum):
            hint = did_you_mean_or_list(str(provider), [known.value for known in ProviderEnum])
            raise ProviderNotSupportedError(f"unknown provider {str(provider)!r}{hint}")
        name = deployment_name or model_name
        super().__init__(provider=provider, name=name, temperature=temperature, **settings)

    @property
    def model_name(self) -> str:
        """The name of the model, or of the deployment."""
        return self.name


DEFAULT_MODEL_CONFIG = DeepEvalModelConfig()


class DeepEvalBaseEvaluator(JudgedEvaluator):
    """Computes a metric with DeepEval and our judge.

    Inputs have DeepEval's names; `response`, `query` and `ground_truth` are accepted, too. DeepEval
    scores the share of good verdicts in a list. A judge that returns too few or too many verdicts
    is asked once more, and then the metric is an error.

    With `include_reason=False` the judge gives no reason, which spares a request; with
    `strict_mode=True` only a perfect score passes.
    """

    settings: DeepEvalSettings | DeepEvalClassMetric
    error_class = DeepEvalError
    extra = "deepeval"
    libraries = ("deepeval",)
    scale: ClassVar[str] = "0-1"
    takes_text: ClassVar[bool] = False
    """Whether DeepEval asks the judge for text, which is only shown."""
    judged: ClassVar[str | None] = None
    """What DeepEval's metric calls the items that need a verdict each; None for at least one."""
    counted: ClassVar[str | None] = None
    """The key of the items in the judge's answers; DeepEval forgets how many there were."""
    without_items: ClassVar[str | None] = None
    """What to say if there were none, where DeepEval gives the best score."""
    empty_is_wrong: ClassVar[bool] = False
    """Whether an empty response scores 0 without a request; DeepEval would score it 1."""

    @property
    def library_class(self) -> str:
        """The class in `deepeval.metrics`: `BiasMetric` for `BiasEvaluator`."""
        return super().library_class.replace("Evaluator", "Metric")

    def _configure(self) -> None:
        adapter.require_deepeval(f"metric {self.metric}")
        settings = self.settings
        self.strict_mode = isinstance(settings, DeepEvalSettings) and settings.strict_mode
        self.include_reason = not isinstance(settings, ReasonedMetric) or settings.include_reason
        if self.strict_mode:
            self.threshold = 1.0

    async def prepare(self) -> None:
        await adapter.load()

    async def _evaluate(self, kwargs: Mapping[str, Any]) -> Score | dict[str, Any]:
        return await super()._evaluate(
            {_DEEPEVAL_NAMES.get(name, name): value for name, value in kwargs.items()}
        )

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        if self.empty_is_wrong and is_blank(kwargs[EvalParam.ACTUAL_OUTPUT]):
            return self._score(0.0, "the response is empty")
        return await self._measure(self._test_case(kwargs), self._options())

    async def _measure(self, case: Any, options: Mapping[str, Any]) -> Score:
        """Return DeepEval's score of the case."""
        judge = self.judge if self.uses_judge else None
        scale = self._weighted_scale()
        metric_class = getattr(adapter.library().metrics, self.library_class)
        measurement = adapter.Measurement(
            metric_class, judge, options, scale, takes_text=self.takes_text
        )
        metric = measurement.metric
        await measurement.run(case, lambda answer: self._check(answer, metric, case))
        return replace(self._score_of(metric, case), note=measurement.note)

    def _weighted_scale(self) -> tuple[int, int] | None:
        """Return the scores that are weighted by their probabilities; None if none are."""
        return None

    def _options(self) -> dict[str, Any]:
        """Return the arguments of DeepEval's class besides the judge."""
        return {
            "threshold": self.settings.threshold,
            "include_reason": self.include_reason,
            "strict_mode": self.strict_mode,
            "async_mode": True,
            "verbose_mode": False,
            "eval_mode": "llm",  # an environment variable could select another mode
        }

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        """Return the test case in DeepEval's format, with only the inputs that the metric takes."""
        taken = self.required_params() | self.PARAM_SPEC.optional
        inputs = {name: kwargs.get(name) for name in taken}
        expected = inputs.get(EvalParam.EXPECTED_OUTPUT)
        return adapter.library().cases.LLMTestCase(
            input=adapter.clean_text(inputs.get(EvalParam.INPUT) or ""),
            actual_output=adapter.clean_text(inputs.get(EvalParam.ACTUAL_OUTPUT) or ""),
            expected_output=None if expected is None else adapter.clean_text(expected),
            context=to_texts(inputs.get(EvalParam.CONTEXT)),
            retrieval_context=to_texts(inputs.get(EvalParam.RETRIEVAL_CONTEXT)),
            tools_called=to_tool_calls(inputs.get(EvalParam.TOOLS_CALLED)),
        )

    def _expected_verdicts(self, metric: Any, case: Any) -> int | None:  # noqa: ARG002 - for overrides
        """Return how many verdicts the judge must give; None means at least one."""
        return None if self.judged is None else len(getattr(metric, self.judged))

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        """Raise ValueError, with a message for the judge, for an answer that makes no sense."""
        if isinstance(verdicts := answer.get("verdicts"), list):
            require_count("verdicts", verdicts, self._expected_verdicts(metric, case))
        if "score" in answer:
            require_range("score", answer["score"], 0, 1)
        if self.counted in answer:
            metric.item_count = getattr(metric, "item_count", 0) + len(answer[self.counted])

    def _item_count(self, metric: Any, case: Any) -> int:  # noqa: ARG002 - for overrides
        """Return how many items there were to judge."""
        count: int = getattr(metric, "item_count", 0)
        return count

    def _score_of(self, metric: Any, case: Any) -> Score:
        score = metric.score
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise EvaluationError(
                f"{self.metric}: DeepEval returned the score {score!r}; it must be from 0 to 1"
            )
        if self.without_items is not None and not self._item_count(metric, case):
            return self._score(score, self.without_items, inconclusive=True)
        return self._score(score, metric.reason or "")

    def _score(self, score: float, reason: str, *, inconclusive: bool = False) -> Score:
        return Score(float(score), reason=reason, scale=self.scale, inconclusive=inconclusive)

    def _keys_of(self, score: Score) -> dict[str, Any]:
        keys = super()._keys_of(score)
        more = {"note": score.note, "metric_name": self.name, "threshold": self.threshold}
        return {**keys, **more}


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


def to_texts(texts: str | Sequence[str] | None) -> list[str] | None:
    """Return a text or several as the list that DeepEval takes."""
    if texts is None:
        return None
    return [adapter.clean_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


def to_tool_calls(calls: Sequence[ToolInvocation] | None) -> list[Any] | None:
    """Return the tool calls in DeepEval's format."""
    if calls is None:
        return None
    make = adapter.library().cases.ToolCall
    return [make(name=call.name, input_parameters=call.args, output=call.result) for call in calls]


def unseen_calls() -> list[Any]:
    """Return what a judge is shown in place of unknown calls, which it would take for none."""
    return [adapter.library().cases.ToolCall(name=UNSEEN_CALLS)]


def to_turn(turn: Turn, passages: Sequence[str] | None = None, *, mark_unseen: bool = False) -> Any:
    """Return a message in DeepEval's format.

    Args:
        turn: The message.
        passages: What was retrieved for it.
        mark_unseen: Whether unknown tool calls are shown as unknown instead of left out.
    """
    calls = to_tool_calls(turn.tool_calls) or None
    if mark_unseen and turn.role == "assistant" and turn.tool_calls is None:
        calls = unseen_calls()
    return adapter.library().cases.Turn(
        role=turn.role,
        content=adapter.clean_text(turn.content),
        tools_called=calls,
        retrieval_context=to_texts(passages),
    )


def turns_of(exchanges: Iterable[Exchange]) -> list[Turn]:
    """Return the messages of exchanges, without what came before the first."""
    return [
        turn
        for exchange in exchanges
        for turn in (Turn("user", exchange.input), exchange.response)
        if turn.role == "assistant" or turn.content
    ]
