"""The judge of holodeck's own: short questions that small models can answer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from holodeck.models.base import Model, NonBlank, Ratio
from holodeck.models.metric import JudgedMetric, MetricKind

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
