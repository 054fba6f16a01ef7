"""The judge of holodeck's own: short questions that small models can answer."""

from typing import Annotated, Literal

from pydantic import Field

from holodeck.models.base import NonBlank
from holodeck.models.metric import JudgedMetric, MetricKind


class JudgeMetric(JudgedMetric):
    """A question about the answer, asked in a few lines."""

    type: Literal["judge"]
    """Short questions of yours."""
    name: NonBlank
    """What reports call it."""
    criteria: Annotated[list[NonBlank], Field(min_length=1)]
    """Yes-or-no questions, such as "Does the answer name a price?"."""

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
