"""Metrics that a judge scores: Azure AI Evaluation, DeepEval, and your own short questions."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeGuard, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from holodeck.models.base import Json, Model, NonBlank, Ratio, ServerAddress
from holodeck.models.metric import (
    CUSTOM_PROMPT,
    AzureName,
    JudgedMetric,
    MetricKind,
    MetricSettings,
    SafetyName,
)

_WORST, _BEST = 1, 5
_SCALE = f"{_WORST}-{_BEST}"
"""The scale of most metrics of Azure AI Evaluation."""


@dataclass(frozen=True)
class _OnScale:
    """A threshold that is written on the scale of 1 to 5."""

    value: float

    def ratio(self) -> float:
        """Return it from 0 to 1. Raises ValueError if it is not on the scale."""
        if not _WORST <= self.value <= _BEST:
            raise ValueError(
                f"found {self.value:g}; expected {_WORST} to {_BEST}, because 'scale' is {_SCALE};"
                " a threshold from 0 to 1 needs no 'scale'"
            )
        return round((self.value - _WORST) / (_BEST - _WORST), 12)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class AzureMetric(JudgedMetric):
    """A metric of Azure AI Evaluation. Its scale of 1 to 5 becomes 0 to 1 as (raw - 1) / 4;
    `task_adherence` is 0 or 1."""

    not_supported_yet: ClassVar = {"custom_prompt": CUSTOM_PROMPT}
    kind: ClassVar[MetricKind] = "azure"
    evaluator_modules = ("azure_ai",)
    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"scale"}

    type: Literal["standard", "azure"] = "azure"
    """May be omitted."""
    metric: AzureName
    """The metric."""
    threshold: Annotated[Ratio, Field(json_schema_extra={"maximum": _BEST})] = 0.5
    """Score to reach, 0 to 1; 1 to 5 with `scale: 1-5`."""
    scale: Literal["1-5", "0-1", 5, 1] | None = None
    """The scale of `threshold`: with `1-5` (or 5), a threshold of 4 becomes (4 - 1) / 4 = 0.75.
    Scores are 0 to 1 in any case."""

    @model_validator(mode="before")
    @classmethod
    def _mark_threshold_on_scale(cls, data: Any) -> Any:
        """Leave the rest to the validator of the threshold, which hides no other problem.

        The scale is dropped, because a valid model has a threshold from 0 to 1.
        """
        if not isinstance(data, dict) or data.get("scale") not in (_SCALE, _BEST):
            return data
        if data.get("metric") == "task_adherence":
            return data
        rest = {key: value for key, value in data.items() if key != "scale"}
        threshold = data.get("threshold")
        return {**rest, "threshold": _OnScale(threshold)} if _is_number(threshold) else rest

    @field_validator("threshold", mode="before")
    @classmethod
    def _translate_threshold(cls, value: Any) -> Any:
        if isinstance(value, _OnScale):
            return value.ratio()
        if _is_number(value) and 1 < value <= _BEST:
            raise ValueError(
                f"found {value:g}; expected 0 to 1; for a threshold on the scale of {_WORST} to"
                f" {_BEST}, add 'scale: {_SCALE}'"
            )
        return value

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: Any) -> Any:
        if value in (_SCALE, _BEST):
            raise ValueError("task_adherence is 0 or 1; remove this key")
        return value

    @property
    def evaluator_name(self) -> str:
        return self.metric


class AzureProject(Model):
    """A hub-based project in Azure AI Foundry."""

    subscription_id: NonBlank
    """The subscription."""
    resource_group_name: NonBlank
    """The resource group."""
    project_name: NonBlank
    """The project."""


class AzureSafetyMetric(MetricSettings):
    """How harmless the response is, scored by a project in Azure: 1 - severity / 7.

    The metrics from `indirect_attack` on are 1 (good) or 0.
    """

    not_supported_yet: ClassVar = {"custom_prompt": CUSTOM_PROMPT}
    kind: ClassVar[MetricKind] = "azure"
    evaluator_modules = ("azure_ai", "azure_labels")

    type: Literal["standard", "azure"] = "azure"
    """May be omitted."""
    metric: SafetyName
    """The kind of harm; `safety` is the worst of violence, sexual, self-harm and hate."""
    threshold: Ratio = 0.5
    """Score to reach, 0 to 1; 0.5 allows a severity of 3 (low)."""
    azure_ai_project: ServerAddress | AzureProject | None = None
    """Required: the URL of the project, or the names of a hub-based one. Whoever runs the tests
    must be signed in to Azure."""

    @property
    def evaluator_name(self) -> str:
        return self.metric


class RAGMetricType(StrEnum):
    """The metrics of `type: rag`."""

    FAITHFULNESS = "faithfulness"
    CONTEXTUAL_RELEVANCY = "contextual_relevancy"
    CONTEXTUAL_PRECISION = "contextual_precision"
    CONTEXTUAL_RECALL = "contextual_recall"
    ANSWER_RELEVANCY = "answer_relevancy"


DeepEvalName = Literal[
    "hallucination",
    "bias",
    "toxicity",
    "pii_leakage",
    "summarization",
    "prompt_alignment",
    "task_completion",
    "tool_correctness",
    "argument_correctness",
    "json_correctness",
    "conversation_completeness",
    "knowledge_retention",
    "role_adherence",
    "turn_relevancy",
    "conversational_geval",
    "plan_adherence",
    "plan_quality",
    "step_efficiency",
    "goal_accuracy",
    "tool_use",
    "topic_adherence",
    "turn_faithfulness",
    "turn_contextual_relevancy",
    "turn_contextual_precision",
    "turn_contextual_recall",
    "mcp_use",
    "multi_turn_mcp_use",
    "mcp_task_completion",
]
DEEPEVAL_METRICS: tuple[str, ...] = get_args(DeepEvalName)

_REQUIRED_KEY = {
    "prompt_alignment": "prompt_instructions",
    "json_correctness": "schema",
    "role_adherence": "chatbot_role",
    "topic_adherence": "relevant_topics",
}
_OWN_KEYS = {
    **{metric: frozenset({key}) for metric, key in _REQUIRED_KEY.items()},
    "summarization": frozenset({"assessment_questions"}),
    "conversational_geval": frozenset({"criteria", "evaluation_steps", "rubric"}),
}
"""The keys that only one metric has."""
_ALL_OWN_KEYS = frozenset().union(*_OWN_KEYS.values())
_WITHOUT_REASON_OPTION = frozenset({"conversational_geval"})
"""Metrics whose reason always comes with the score."""


class RubricBand(Model):
    """A range of scores and its meaning."""

    other_names: ClassVar = {"score_range": "score"}

    score: Annotated[list[Annotated[int, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
    """First and last score of the band, between 0 and 10."""
    expected_outcome: NonBlank
    """What a response in this band is like."""

    @model_validator(mode="after")
    def _check_ascending(self) -> "RubricBand":
        first, last = self.score
        if first > last:
            raise ValueError(f"'score' goes down; write [{last}, {first}]")
        return self


def _check_bands(bands: list[RubricBand]) -> list[RubricBand]:
    ordered = sorted(band.score for band in bands)
    for (_, last), (first, _) in pairwise(ordered):
        if first <= last:
            raise ValueError(f"the score {first} is in two bands")
    if ordered[0][0] == ordered[-1][1]:
        raise ValueError("all bands together hold one score only")
    return bands


Rubric = Annotated[list[RubricBand], Field(min_length=1), AfterValidator(_check_bands)]


class GEvalMetric(JudgedMetric):
    """G-Eval: criteria in your own words, judged step by step."""

    kind: ClassVar[MetricKind] = "geval"
    evaluator_modules = ("deepeval.geval",)

    type: Literal["geval"] = "geval"
    """Your own criteria."""
    name: NonBlank
    """The metric's name in reports."""
    criteria: NonBlank | None = None
    """What makes a response good. The judge derives the steps from it, with one extra call."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps themselves, instead of letting the judge derive them."""
    evaluation_params: Annotated[
        list[Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]],
        Field(min_length=1),
    ] = ["actual_output"]
    """The parts of the case that the judge sees."""
    strict_mode: bool = False
    """Whether the judge scores only 0 or 1."""
    rubric: Rubric | None = None
    """Score bands and their meaning; the first score becomes 0 and the last 1."""

    @property
    def evaluator_name(self) -> str:
        return "geval"

    def options(self) -> dict[str, Any]:
        """Return the settings, with the name, which the judge reads, too."""
        return {**super().options(), "name": self.name}

    @model_validator(mode="after")
    def _check_criteria(self) -> "GEvalMetric":
        if self.criteria is None and self.evaluation_steps is None:
            raise ValueError("'criteria' is missing; describe what makes a response good")
        return self


class RAGMetric(JudgedMetric):
    """A metric of DeepEval about retrieved passages."""

    kind: ClassVar[MetricKind] = "rag"
    evaluator_modules = ("deepeval.rag",)
    other_names: ClassVar = {"metric": "metric_type"}
    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"metric_type"}

    type: Literal["rag"] = "rag"
    """Metrics about retrieved passages."""
    metric_type: RAGMetricType
    """The metric."""
    include_reason: bool = True
    """Whether the judge gives a reason, with one extra call."""
    strict_mode: bool = False
    """Whether only a perfect score passes."""

    @property
    def evaluator_name(self) -> str:
        return self.metric_type.value


class DeepEvalMetric(JudgedMetric):
    """A further metric of DeepEval. A score of 1 is always good."""

    kind: ClassVar[MetricKind] = "deepeval"
    evaluator_modules = (
        "deepeval.answers",
        "deepeval.conversations",
        "deepeval.agentic",
        "deepeval.mcp",
    )
    other_names: ClassVar = {"metric_type": "metric", "expected_schema": "schema"}

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
    metric: DeepEvalName
    """The metric."""
    include_reason: bool = True
    """Whether the judge gives a reason, with one extra call."""
    strict_mode: bool = False
    """Whether only a perfect score passes."""
    prompt_instructions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The instructions that the response must follow; for `prompt_alignment`."""
    assessment_questions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Questions that a good summary answers; for `summarization`."""
    schema_: dict[str, Json] | None = Field(default=None, alias="schema")
    """The JSON schema; for `json_correctness`."""
    chatbot_role: NonBlank | None = None
    """The agent's role; for `role_adherence`."""
    relevant_topics: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The topics that the agent is to talk about; for `topic_adherence`."""
    criteria: NonBlank | None = None
    """What makes a conversation good; for `conversational_geval`."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Evaluation steps, instead of `criteria`; for `conversational_geval`."""
    rubric: Rubric | None = None
    """Score bands and their meaning; for `conversational_geval`."""

    @model_validator(mode="after")
    def _check_own_keys(self) -> "DeepEvalMetric":
        given = {name for name, value in super().options().items() if value is not None}
        required = _REQUIRED_KEY.get(self.metric)
        if required is not None and required not in given:
            raise ValueError(f"'{required}' is missing, which {self.metric} requires")
        if self.metric == "conversational_geval" and not given & {"criteria", "evaluation_steps"}:
            raise ValueError("'criteria' is missing; describe what makes a conversation good")
        for key in sorted(given & self._keys_of_others):
            raise ValueError(f"'{key}' is not a key of {self.metric}; remove it")
        return self

    @property
    def _keys_of_others(self) -> frozenset[str]:
        return _ALL_OWN_KEYS - _OWN_KEYS.get(self.metric, frozenset())

    def options(self) -> dict[str, Any]:
        """Return the settings that this metric uses by their keys in agent.yaml."""
        unused = self._keys_of_others
        if self.metric in _WITHOUT_REASON_OPTION:
            unused |= {"include_reason"}
        return {name: value for name, value in super().options().items() if name not in unused}

    @property
    def evaluator_name(self) -> str:
        return self.metric


QuestionKind = Literal["yes_no", "1-5"]
JudgeInput = Literal["history", "input", "response", "ground_truth", "retrieval_context"]
Mark = Literal["yes", "no"] | Annotated[int, Field(ge=1, le=5, strict=True)]
"""The right answer to a question: yes or no, or a grade."""

MARKS: dict[QuestionKind, tuple[str, ...]] = {
    "yes_no": ("no", "yes"),
    "1-5": ("1", "2", "3", "4", "5"),
}
"""The answers that a judge may give, the worst first."""


class Criterion(Model):
    """One question about the response, phrased so that yes (or 5) is good."""

    question: NonBlank
    """For example "Does the answer name a price?"."""
    kind: QuestionKind = "yes_no"
    """How the judge answers: yes or no, or a grade from 1 (worst) to 5 (best)."""
    threshold: Ratio | None = None
    """Score that this question must reach; the metric's threshold by default."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The answers that the judge may give, the worst first."""
        return MARKS[self.kind]


class JudgeExample(Model):
    """A response that is already judged, shown to the judge first."""

    input: NonBlank | None = None
    """The user's input."""
    response: str
    """The response."""
    ground_truth: NonBlank | None = None
    """The right answer."""
    retrieval_context: list[str] | None = None
    """Retrieved passages."""
    answers: Annotated[list[Mark], Field(min_length=1)]
    """The right answer to each criterion, in their order: yes or no, or 1 to 5."""


class JudgeMetric(JudgedMetric):
    """Short questions about the response; the worst answer is the score."""

    kind: ClassVar[MetricKind] = "judge"
    evaluator_modules = ("judge_metric",)
    not_options: ClassVar[frozenset[str]] = frozenset(
        {"type", "metric", "model", "name", "judge_trust"}
    )

    type: Literal["judge"] = "judge"
    """Your own short questions."""
    name: NonBlank
    """The metric's name in reports."""
    criteria: Annotated[list[NonBlank | Criterion], Field(min_length=1)]
    """Yes-or-no questions, such as "Does the answer name a price?", or mappings."""
    threshold: Ratio = 0.5
    """Score that each criterion must reach: the probability of a yes, or (grade - 1) / 4."""
    inputs: Annotated[list[JudgeInput], Field(min_length=1)] = ["history", "input", "response"]
    """The parts of the case that the judge sees; `history` is what was said before, if anything."""
    examples: list[JudgeExample] = []
    """Judged responses that show the judge what is meant."""
    votes: Annotated[int, Field(ge=1, le=9)] = 1
    """How many times each question is asked, with a different wording each time. The median counts,
    which is the majority; a tie is a no."""
    confirm_on_fail: Annotated[int, Field(ge=0, le=9)] = 0
    """How many more times a question is asked if its score is below the threshold or within
    `margin` of it; all answers count alike."""
    margin: Annotated[Ratio, Field(le=0.5)] = 0.0
    """A score closer to the threshold than this is inconclusive: neither passed nor failed."""
    include_reason: bool = False
    """Whether the judge is asked for a reason if its answer has none; one extra call per
    criterion."""

    @model_validator(mode="after")
    def _check_examples(self) -> "JudgeMetric":
        for index, example in enumerate(self.examples):
            require_fitting_answers(self.questions, example, f"examples[{index}]")
        return self

    @property
    def questions(self) -> list[Criterion]:
        """The criteria, each as a `Criterion`."""
        return [to_criterion(one) for one in self.criteria]

    @property
    def evaluator_name(self) -> str:
        return "judge"


def to_criterion(criterion: str | Criterion) -> Criterion:
    return Criterion(question=criterion) if isinstance(criterion, str) else criterion


def require_fitting_answers(
    criteria: list[Criterion], example: JudgeExample, location: str
) -> None:
    """Raise ValueError unless the example answers each criterion with one of its marks."""
    if len(example.answers) != len(criteria):
        raise ValueError(
            f"{location}: there are {len(criteria)} criteria and {len(example.answers)} answers;"
            " write one for each"
        )
    for criterion, mark in zip(criteria, example.answers, strict=True):
        if str(mark) not in criterion.marks:
            raise ValueError(
                f"{location}: {mark!r} does not answer {criterion.question!r};"
                f" write one of {', '.join(criterion.marks)}"
            )
