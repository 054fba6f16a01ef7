"""The settings that metrics of an agent.yaml share, and which keys select each class of them."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import AfterValidator, Field, model_validator

from holodeck.models.base import Json, Milliseconds, Model, NonBlank, Ratio
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.judge_trust import TrustSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

MODULE_CALLABLE = "module:callable"
"""Stands for the name of a callable of the user."""
CUSTOM_PROMPT = "a question of your own is 'type: judge'"


class MetricSettings(Model):
    """The settings that every metric has."""

    not_supported_yet: ClassVar = {
        "response_path": "a key of HoloDeck 0.7, with which a metric reads a part of a JSON"
        " response; a metric of 'type: code' can read it"
    }
    family: ClassVar[str]
    """The metrics that are computed in the same place; the user's code has none."""
    without_name: ClassVar[str] = ""
    """What a mapping without the key `metric` has instead, if several classes have the type."""

    threshold: Ratio | None = None
    """Score to reach, 0 to 1. Without one, the metric's own verdict counts, if it has a verdict."""
    name: NonBlank | None = None
    """The metric's name in reports, such as for two metrics of one kind."""
    enabled: bool = True
    """Whether the metric is computed."""
    required: bool = True
    """Whether the case fails if the metric does not pass; `false` only reports the metric."""
    fail_on_error: bool = False
    """What an error in the metric means: by default the case stays undecided (exit code 4); `true`
    fails it (exit code 1)."""
    retry_on_failure: Annotated[int, Field(ge=1, le=3)] | None = None
    """How many times a metric that ends in an error is retried."""
    timeout_ms: Milliseconds | None = None
    """Time limit of the metric in milliseconds; 60000 by default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Add the class to `metric_class`, if it has a type and is not the base of others."""
        super().__pydantic_init_subclass__(**options)
        for kind in cls.types() if cls.names() or "metric" not in cls.model_fields else ():
            names = cls.names() if kind == "standard" else (*cls.names(), cls.without_name)
            for name in names:
                _CLASSES.setdefault((kind, name), cls)

    @classmethod
    def types(cls) -> tuple[str, ...]:
        """Return the values that `type` may have; "standard" may be omitted in agent.yaml."""
        return get_args(cls.model_fields["type"].annotation) if "type" in cls.model_fields else ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the values of `metric` that select the class; empty if its type alone does."""
        annotation = cls.model_fields["metric"].annotation if "metric" in cls.model_fields else None
        return get_args(annotation) if get_origin(annotation) is Literal else ()

    @classmethod
    def tag(cls) -> str:
        """Return how the locations of validation errors name the class: as a scorer does."""
        return (*cls.names(), cls.__name__)[0]

    @model_validator(mode="after")
    def _check_fail_on_error(self) -> "MetricSettings":
        if self.fail_on_error and not self.required:
            raise ValueError("'required: false' never fails a case; remove 'fail_on_error'")
        return self

    @property
    def kind(self) -> str:
        """The type of metrics that reports name."""
        return str(type(self).model_fields["type"].default)

    @property
    def evaluator_name(self) -> str:
        """The name of the metric among all evaluators."""
        return str(vars(self).get("metric") or f"{self.kind} {self.without_name}".strip())

    @property
    def label(self) -> str:
        """The metric's name in reports."""
        return self.name or self.evaluator_name

    @property
    def user_code(self) -> str | None:
        """The user's `module:callable` that computes the metric; None for built-in metrics."""
        return None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Require `type` where it selects the metric, and let `metric` say what is measured.

        Only in Python may the type be omitted. Editors show the description of a key, not that of
        the mapping around it.
        """
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        definition = handler.resolve_ref_schema(schema)
        if cls.names():
            definition["properties"]["metric"]["description"] = definition["description"]
        if cls.types() and "standard" not in cls.types():
            definition["properties"]["type"].pop("default")
            definition["required"] = ["type", *definition.get("required", ())]
        return schema

    @property
    def user_class(self) -> str | None:
        """The user's `module:Class` that computes the metric; None for other metrics."""
        return None


_CLASSES: dict[tuple[str, str], type[MetricSettings]] = {}
"""The class of each type and name; a type alone has the name ""."""


def metric_class(keys: "Mapping[str, Any]") -> type[MetricSettings] | None:
    """Return the class that the keys of a mapping select; None if there is none."""
    kind, name = keys.get("type") or "standard", keys.get("metric")
    if name is None and "class" in keys:
        name = "class"
    if not isinstance(kind, str) or not isinstance(name, str | None):
        return None
    if kind == "standard" and ":" in (name or ""):
        name = MODULE_CALLABLE
    return _CLASSES.get((kind, name or "")) or _CLASSES.get((kind, ""))


def class_of_metric(name: str) -> type[MetricSettings]:
    """Return the class of the metric with this name, or of this type if the type alone selects it.

    Raises LookupError for a name that is unknown.
    """
    for model in _CLASSES.values():
        if name in (model.names() or model.types()):
            return model
    raise LookupError(name)


def metric_classes() -> tuple[type[MetricSettings], ...]:
    """Return every class of metrics, those that need no `type` first."""
    classes = dict.fromkeys(_CLASSES.values())
    return tuple(
        sorted(classes, key=lambda model: model.model_fields["type"].default != "standard")
    )


def metric_names() -> tuple[str, ...]:
    """Return the names that `metric` accepts without a `type`."""
    models = (model for model in metric_classes() if "standard" in model.types())
    names = (name for model in models for name in model.names())
    return tuple(name for name in names if name != MODULE_CALLABLE)


def metric_types() -> tuple[str, ...]:
    """Return the values that `type` may have."""
    return tuple(dict.fromkeys(kind for model in metric_classes() for kind in model.types()))


def _require_known_type(name: str) -> str:
    # Every row of every result comes by here, so the classes are not gone through for a known type.
    if not any(name == kind for kind, _ in _CLASSES):
        raise ValueError(f"found {name!r}; expected one of {', '.join(metric_types())}")
    return name


MetricKind = Annotated[str, AfterValidator(_require_known_type)]
"""The type of a metric, as reports name it."""


class JudgedMetric(MetricSettings):
    """The settings of a metric that a judge scores."""

    threshold: Ratio = 0.5
    """Score to reach, 0 to 1."""
    model: LLMProvider | None = None
    """The judge. Default: the model of `evaluations`, then the agent's own."""
    judge_trust: TrustSetting | None = None
    """What happens if no check with labels has shown that the judge is good enough: its verdicts
    are inconclusive (`require`), a note says so (`warn`), or nothing (`off`). The strictest of
    this, `execution` and the command line counts."""


class ClassMetric(JudgedMetric):
    """A metric class that holodeck creates with `args`; the base of one model for each library."""

    without_name = "class"

    class_: Annotated[str, Field(alias="class", pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?$")]
    """The class: its name in the library, or `module:Class` for one of yours, which is imported
    from the folder of the agent.yaml first."""
    args: dict[str, Json] = {}
    """Arguments of the class by name."""
    name: NonBlank | None = None
    """The metric's name in reports; the name of the class by default."""

    @property
    def label(self) -> str:
        return self.name or self.class_.rpartition(":")[2].rpartition(".")[2]

    @property
    def user_class(self) -> str | None:
        return self.class_ if ":" in self.class_ else None
