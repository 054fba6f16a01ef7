"""Any metric class of a library, or one of the user: `class:` of `type: deepeval` and `azure`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from holodeck.models.base import Json, NonBlank
from holodeck.models.metric import JudgedMetric, MetricKind

_PYTHON = "python"
"""The key of an argument that is a Python object."""


class ClassMetric(JudgedMetric):
    """A metric class that holodeck creates with `args`; the base of one model for each library."""

    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"name", "class_"}

    takes_base_dir = True

    class_: Annotated[str, Field(alias="class", pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?$")]
    """The class: its name in the library, or `module:Class` for one of yours, which is imported
    from the folder of the agent.yaml first."""
    args: dict[str, Json] = {}
    """Arguments of the class by name. `{python: "module:object"}` is an object of yours."""
    name: NonBlank | None = None
    """The metric's name in reports; the name of the class by default."""

    @property
    def evaluator_name(self) -> str:
        return "class"

    @property
    def label(self) -> str:
        return self.name or self.class_.rpartition(":")[2].rpartition(".")[2]

    @property
    def python_targets(self) -> dict[tuple[str, ...], str]:
        """The class and the arguments that are Python objects of the user."""
        objects = {key: python_target(value) for key, value in self.args.items()}
        found: dict[tuple[str, ...], str] = {
            ("args", key): target for key, target in objects.items() if target is not None
        }
        return {**found, ("class",): self.class_} if ":" in self.class_ else found

    def options(self) -> dict[str, Any]:
        """Return the class and its arguments."""
        return {**super().options(), "class_name": self.class_}


class DeepEvalClassMetric(ClassMetric):
    """Any metric class of DeepEval, or your own that derives from `BaseMetric` or
    `BaseConversationalMetric`. A score of 1 is always good."""

    kind: ClassVar[MetricKind] = "deepeval"
    evaluator_modules = ("deepeval.any_class",)

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""


class AzureClassMetric(ClassMetric):
    """A class whose objects are called with texts (`query`, `response`, `context`, `ground_truth`)
    and return a mapping: your own, or one of Azure AI Evaluation without a name under `metric:`."""

    kind: ClassVar[MetricKind] = "azure"
    evaluator_modules = ("azure_class",)

    type: Literal["azure"] = "azure"
    """A metric of Azure AI Evaluation."""
    scale: Annotated[list[float], Field(min_length=2, max_length=2)]
    """The worst and the best score of the class, such as `[1, 5]`, or `[7, 0]` if less is
    better."""
    score_key: NonBlank | None = None
    """The key of the score in the class's result; required if there are several."""

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: list[float]) -> list[float]:
        if value[0] == value[1]:
            raise ValueError("the worst and the best score are equal; write for example [1, 5]")
        return value


def python_target(value: Any) -> str | None:
    """Return `module:object` for an argument that is written as a Python object."""
    target = value[_PYTHON] if isinstance(value, dict) and value.keys() == {_PYTHON} else None
    return target if isinstance(target, str) else None
