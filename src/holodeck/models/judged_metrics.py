"""Metrics of Azure AI Evaluation: most ask a judge, those of safety ask a project in Azure."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from holodeck.models.base import Json, Model, NonBlank, Ratio
from holodeck.models.metric import JudgedMetric, MetricKind, MetricSettings

AzureName = Literal[
    "groundedness",
    "relevance",
    "coherence",
    "fluency",
    "similarity",
    "retrieval",
    "response_completeness",
    "intent_resolution",
    "task_adherence",
    "tool_call_accuracy",
]
AZURE_METRICS: tuple[str, ...] = get_args(AzureName)

SafetyName = Literal["safety", "violence", "sexual", "self_harm", "hate_unfairness"]
SAFETY_METRICS: tuple[str, ...] = get_args(SafetyName)


class AzureMetric(JudgedMetric):
    """A metric of Azure AI Evaluation; its 1 to 5 becomes 0 to 1 as (raw - 1) / 4, and
    `task_adherence` is 0 or 1."""

    type: Literal["standard", "azure"] = "azure"
    """May be left out."""
    metric: AzureName
    """Which one."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "azure"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric


class AzureProject(Model):
    """A project of a hub in Azure AI Foundry."""

    subscription_id: NonBlank
    """The subscription."""
    resource_group_name: NonBlank
    """The resource group."""
    project_name: NonBlank
    """The project."""


class AzureSafetyMetric(MetricSettings):
    """How harmless the answer is, by a project in Azure: 1 - severity / 7."""

    type: Literal["standard", "azure"] = "azure"
    """May be left out."""
    metric: SafetyName
    """Which harm; `safety` is the worst of the four."""
    threshold: Ratio = 0.5
    """Score to reach, 0 to 1; 0.5 allows a severity of 3 (low)."""
    azure_ai_project: NonBlank | AzureProject | None = None
    """The project: its URL, or the names of one that belongs to a hub. Needed; the one who runs the
    tests must be signed in to Azure."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "azure"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric


class RAGMetricType(StrEnum):
    """Metrics about retrieved passages."""

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
]
DEEPEVAL_METRICS: tuple[str, ...] = get_args(DeepEvalName)

_NEEDED = {
    "prompt_alignment": "prompt_instructions",
    "json_correctness": "schema",
    "role_adherence": "chatbot_role",
}
"""The key without which a metric says nothing."""
_OWN = {
    **{metric: frozenset({key}) for metric, key in _NEEDED.items()},
    "summarization": frozenset({"assessment_questions"}),
    "conversational_geval": frozenset({"criteria", "evaluation_steps", "rubric"}),
}
"""The keys that only one metric has."""
_SOMEONES = frozenset().union(*_OWN.values())
_NO_REASON = frozenset({"conversational_geval"})
"""Metrics whose reason comes with the score."""


class RubricBand(Model):
    """What an answer within a band of scores is like."""

    score: Annotated[list[Annotated[int, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
    """First and last score of the band, of 0 to 10."""
    expected_outcome: NonBlank
    """What such an answer is like."""

    @model_validator(mode="after")
    def _goes_up(self) -> "RubricBand":
        first, last = self.score
        if first > last:
            raise ValueError(f"'score' goes down; write [{last}, {first}]")
        return self


def _bands_apart(bands: list[RubricBand]) -> list[RubricBand]:
    ordered = sorted(band.score for band in bands)
    for (_, last), (first, _) in pairwise(ordered):
        if first <= last:
            raise ValueError(f"the score {first} is in two bands")
    if ordered[0][0] == ordered[-1][1]:
        raise ValueError("all bands together hold one score only")
    return bands


Rubric = Annotated[list[RubricBand], Field(min_length=1), AfterValidator(_bands_apart)]


class GEvalMetric(JudgedMetric):
    """G-Eval: your criteria in words, judged step by step."""

    type: Literal["geval"]
    """Criteria in your own words."""
    name: NonBlank
    """What reports call it."""
    criteria: NonBlank | None = None
    """What makes an answer good; the judge makes steps of it, which costs one call more."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps themselves, instead of letting the judge make them."""
    evaluation_params: Annotated[
        list[Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]],
        Field(min_length=1),
    ] = ["actual_output"]
    """What of the case the judge sees."""
    strict_mode: bool = False
    """Whether the judge says only 0 or 1."""
    rubric: Rubric | None = None
    """Bands of scores and what they mean; the first score becomes 0 and the last 1."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "geval"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "geval"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name

    @model_validator(mode="after")
    def _says_what_is_good(self) -> "GEvalMetric":
        if self.criteria is None and self.evaluation_steps is None:
            raise ValueError("'criteria' is missing: say what makes an answer good")
        return self


class RAGMetric(JudgedMetric):
    """A metric about retrieved passages."""

    type: Literal["rag"]
    """About what was retrieved."""
    metric_type: RAGMetricType
    """Which one."""
    include_reason: bool = True
    """Whether the judge says why, which costs one call more."""
    strict_mode: bool = False
    """Whether only a perfect score counts."""

    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"metric_type"}

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "rag"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric_type.value


class DeepEvalMetric(JudgedMetric):
    """A further metric of DeepEval. All scores say: 1 is good."""

    type: Literal["deepeval"]
    """A further metric of DeepEval."""
    metric: DeepEvalName
    """Which one."""
    include_reason: bool = True
    """Whether the judge says why, which costs one call more."""
    strict_mode: bool = False
    """Whether only a perfect score counts."""
    prompt_instructions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """What the answer is to keep to, one by one; for `prompt_alignment`."""
    assessment_questions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Questions that a good summary answers; for `summarization`."""
    schema_: dict[str, Json] | None = Field(default=None, alias="schema")
    """The JSON schema; for `json_correctness`."""
    chatbot_role: NonBlank | None = None
    """What the agent is to be; for `role_adherence`."""
    criteria: NonBlank | None = None
    """What makes a conversation good; for `conversational_geval`."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps to judge by, instead of `criteria`; for `conversational_geval`."""
    rubric: Rubric | None = None
    """Bands of scores and what they mean; for `conversational_geval`."""

    @model_validator(mode="after")
    def _has_the_right_keys(self) -> "DeepEvalMetric":
        given = {name for name, value in super().options().items() if value is not None}
        needed = _NEEDED.get(self.metric)
        if needed is not None and needed not in given:
            raise ValueError(f"'{needed}' is missing, without which {self.metric} says nothing")
        if self.metric == "conversational_geval" and not given & {"criteria", "evaluation_steps"}:
            raise ValueError("'criteria' is missing: say what makes a conversation good")
        for key in sorted(given & (_SOMEONES - _OWN.get(self.metric, frozenset()))):
            raise ValueError(f"'{key}' is not a key of {self.metric}; remove it")
        return self

    def options(self) -> dict[str, Any]:
        """What the keys of this very metric say."""
        without = _SOMEONES - _OWN.get(self.metric, frozenset())
        if self.metric in _NO_REASON:
            without |= {"include_reason"}
        return {name: value for name, value in super().options().items() if name not in without}

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "deepeval"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric


QuestionKind = Literal["yes_no", "1-5"]
Shown = Literal["input", "response", "ground_truth", "retrieval_context"]
Mark = Literal["yes", "no"] | Annotated[int, Field(ge=1, le=5, strict=True)]
"""The right answer to a question: yes or no, or a grade."""

MARKS: dict[QuestionKind, tuple[str, ...]] = {
    "yes_no": ("no", "yes"),
    "1-5": ("1", "2", "3", "4", "5"),
}
"""What a judge may answer, the worst first."""


class Criterion(Model):
    """One question about the answer, put so that yes (or 5) is good."""

    question: NonBlank
    """Such as "Does the answer name a price?"."""
    kind: QuestionKind = "yes_no"
    """What is asked for: yes or no, or a grade from 1 (worst) to 5 (best)."""
    threshold: Ratio | None = None
    """Score that this question has to reach; else the metric's threshold."""

    @property
    def marks(self) -> tuple[str, ...]:
        """What the judge may answer, the worst first."""
        return MARKS[self.kind]


class JudgeExample(Model):
    """An answer that has been judged, shown to the judge first."""

    input: NonBlank | None = None
    """What the user said."""
    response: str
    """What was answered."""
    ground_truth: NonBlank | None = None
    """The right answer."""
    retrieval_context: list[str] | None = None
    """Retrieved passages."""
    answers: Annotated[list[Mark], Field(min_length=1)]
    """What the judge should have said to each criterion, in their order: yes or no, or 1 to 5."""


class JudgeMetric(JudgedMetric):
    """Questions about the answer, asked in a few lines each; the worst one counts."""

    type: Literal["judge"]
    """Short questions of yours."""
    name: NonBlank
    """What reports call it."""
    criteria: Annotated[list[NonBlank | Criterion], Field(min_length=1)]
    """Yes-or-no questions, such as "Does the answer name a price?", or mappings."""
    threshold: Ratio = 0.5
    """Score that each criterion has to reach: how likely a yes is, or (grade - 1) / 4."""
    inputs: Annotated[list[Shown], Field(min_length=1)] = ["input", "response"]
    """What of the case the judge sees."""
    examples: list[JudgeExample] = []
    """Judged answers that show the judge what is meant."""
    votes: Annotated[int, Field(ge=1, le=9)] = 1
    """How often each question is asked, in other words each time; the median counts, which is the
    majority, and a tie is a no."""
    confirm_on_fail: Annotated[int, Field(ge=0, le=9)] = 0
    """How often a question is asked again whose score is under the threshold or within `margin` of
    it; all answers count alike."""
    margin: Annotated[Ratio, Field(le=0.5)] = 0.0
    """A score closer to the threshold than this is inconclusive: no pass and no failure."""
    include_reason: bool = False
    """Whether the judge is asked for a sentence of reasons where its answer came without one; one
    call more for each criterion."""

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "metric", "model", "name"})

    @model_validator(mode="after")
    def _examples_answer_every_question(self) -> "JudgeMetric":
        for index, example in enumerate(self.examples):
            refuse_other_marks(self.questions, example, f"examples[{index}]")
        return self

    @property
    def questions(self) -> list[Criterion]:
        """The criteria, each as a mapping."""
        return [as_criterion(one) for one in self.criteria]

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "judge"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "judge"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name


def as_criterion(written: str | Criterion) -> Criterion:
    """A criterion however it was written."""
    return Criterion(question=written) if isinstance(written, str) else written


def refuse_other_marks(questions: list[Criterion], example: JudgeExample, where: str) -> None:
    """Raise ValueError for an example that does not answer each question with one of its marks."""
    if len(example.answers) != len(questions):
        raise ValueError(
            f"{where}: there are {len(questions)} criteria and {len(example.answers)} answers;"
            " write one for each"
        )
    for question, mark in zip(questions, example.answers, strict=True):
        if str(mark) not in question.marks:
            raise ValueError(
                f"{where}: {mark!r} does not answer {question.question!r};"
                f" write one of {', '.join(question.marks)}"
            )
