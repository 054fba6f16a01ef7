"""The metric of your own short questions, which a judge answers."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from holodeck.models.base import Model, NonBlank, Ratio
from holodeck.models.metrics.base import JudgedMetric

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

    family: ClassVar = "judge"

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
    """How many times each question is asked, in different words. The median counts; a tie is a
    no."""
    confirm_on_fail: Annotated[int, Field(ge=0, le=9)] = 0
    """How many more times a question is asked if its score is below the threshold or within
    `margin` of it."""
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
        return [to_criterion(criterion) for criterion in self.criteria]


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
