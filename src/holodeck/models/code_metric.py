"""A grader of the user's own."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from holodeck.models.base import NonBlank
from holodeck.models.metric import MetricKind, MetricSettings


class CodeMetric(MetricSettings):
    """A Python callable beside the agent.yaml that is given the whole case."""

    type: Literal["code"]
    """Python code of yours."""
    grader: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """`module:callable`."""
    name: NonBlank | None = None
    """What reports call it; else the callable's own name."""

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "grader", "name"})

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "code"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "code"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name or self.grader.partition(":")[2]

    @property
    def user_code(self) -> str | None:
        """The callable."""
        return self.grader
