"""What is expected of an answer: tool calls, the right answer, metrics."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from holodeck.lib.suggestions import did_you_mean
from holodeck.models.base import (
    AbsoluteTolerance,
    InvalidParts,
    Json,
    Model,
    NonBlank,
    OnDemand,
    RelativeTolerance,
)
from holodeck.models.evaluation import Metric

SCORER_NAMES = ("passfail", "exact", "regex", "similarity")
_OF_ALL = ("required",)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "passfail": (),
    "exact": ("normalize",),
    "regex": ("pattern",),
    "similarity": ("threshold",),
}


def scorer_to_metric(written: Any) -> Any:
    """The metric that a scorer stands for; a metric is one itself."""
    if isinstance(written, str):
        return _named_metric(written, {})
    if not isinstance(written, dict) or {"metric", "type"} & written.keys():
        return written
    if len(written) != 1:
        raise ValueError("a scorer is a name, or one name with its options: '{exact: {…}}'")
    [(name, options)] = written.items()
    if not isinstance(options, dict):
        raise ValueError(f"the options of {name!r} are a mapping")  # noqa: TRY004 - pydantic's
    return _named_metric(str(name), options)


def _named_metric(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if ":" in name:
        return {"metric": name, **options}
    if name not in _OPTIONS:
        hint = did_you_mean(name, SCORER_NAMES, f"; known: {', '.join(SCORER_NAMES)},")
        raise ValueError(f"the scorer {name!r} is not known{hint} or 'module:callable'")
    options_of_it = (*_OPTIONS[name], *_OF_ALL)
    for key in options:
        if key not in options_of_it:
            known = ", ".join(options_of_it)
            raise ValueError(f"{name!r} has no option {key!r}; it has: {known}")
    return _metric_settings(name, options)


def _metric_settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if name == "exact":
        rest = {key: value for key, value in options.items() if key != "normalize"}
        normalize = options.get("normalize", True)
        return {"metric": "exact_match", "ignore_case": normalize, "strip": normalize, **rest}
    names = {"similarity": "semantic_similarity"}
    return {"metric": names.get(name, name), **options}


Scorer = Annotated[
    Metric,
    BeforeValidator(scorer_to_metric),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]
"""`passfail`, `exact`, `regex`, `similarity`, `module:callable`, or one of them with options."""


def _require_known(written: Any) -> Any:
    scorer_to_metric(written)
    return written


WrittenScorer = Annotated[NonBlank | dict[NonBlank, Json], AfterValidator(_require_known)]
"""A scorer whose options may still come from a case."""


MATCHER_KEYS = ("equals", "regex", "number", "fuzzy")


class NumberMatcher(Model):
    """A number within a tolerance."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    absolute_tolerance: AbsoluteTolerance = 1e-9
    relative_tolerance: RelativeTolerance = 0.0


class ArgMatcher(Model):
    """How one argument of a tool call must look; exactly one key is given."""

    equals: Json = None
    """The very value; needed only where a literal would itself look like a matcher."""
    regex: NonBlank | None = None
    """The whole text must match."""
    number: NumberMatcher | None = None
    """Numerically equal within a tolerance; text that holds a number counts."""
    fuzzy: NonBlank | None = None
    """Equal but for case, surrounding white space, thousands separators and percent signs."""

    @model_validator(mode="after")
    def _has_one_key(self) -> "ArgMatcher":
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a matcher has exactly one of {', '.join(MATCHER_KEYS)}")
        return self


class ExpectedTool(Model):
    """A strict expectation for one tool."""

    name: NonBlank
    """Name of the tool, or part of it with `match: substring`."""
    args: dict[str, Json] = {}
    """Expected value or matcher for each argument; other arguments are not checked."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Exact number of matching calls; by default at least one."""
    match: Literal["exact", "substring"] = "exact"
    """How the name is compared."""

    def matchers(self) -> dict[str, ArgMatcher]:
        """`args` with every literal made a matcher."""
        return {key: _to_matcher(value) for key, value in self.args.items()}

    @model_validator(mode="after")
    def _matchers_are_well_formed(self) -> "ExpectedTool":
        wrong: dict[tuple[str | int, ...], ValidationError] = {}
        for name, value in self.args.items():
            try:
                _to_matcher(value)
            except ValidationError as error:
                wrong["args", name] = error
        if wrong:
            raise InvalidParts(wrong)
        return self


def _to_matcher(value: Json) -> ArgMatcher:
    if isinstance(value, dict) and value and set(value) <= set(MATCHER_KEYS):
        number = value.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool):
            return ArgMatcher.model_validate({**value, "number": {"value": number}})
        return ArgMatcher.model_validate(value)
    return ArgMatcher(equals=value)


class Expectations(Model):
    """Checks of a response."""

    expected_tools: list[OnDemand[NonBlank | ExpectedTool]] | None = None
    """Tools that must be called. [] forbids all tools; if missing, tool calls are not checked."""
    forbidden_tools: list[NonBlank] | None = None
    """Exact names of tools that must not be called."""
    tool_order: bool = False
    """Whether `expected_tools` must be called in the given order."""
    only_expected_tools: bool = False
    """Whether calls of tools that `expected_tools` does not list fail the case."""
    ground_truth: NonBlank | None = None
    """The right answer, with which text metrics compare the response."""
    retrieval_context: list[str] | None = None
    """Retrieved passages; by default the results of retrieval tools."""
    evaluations: list[Metric] | None = None
    """Metrics of this response; they see the conversation up to this turn."""
    scorers: list[Scorer] | None = None
    """Checks in addition to the metrics: `passfail`, `exact`, `regex`, `similarity` or
    `module:callable`, optionally with settings: `{regex: {pattern: …}}`."""

    @property
    def looks_at_anything(self) -> bool:
        """Whether a tool call, a metric or a scorer is asked for."""
        has_tools = self.expected_tools is not None or self.forbidden_tools is not None
        return has_tools or bool(self.evaluations or self.scorers)

    @model_validator(mode="after")
    def _order_has_something_to_order(self) -> "Expectations":
        if self.tool_order and not self.expected_tools:
            raise ValueError("'tool_order: true' needs 'expected_tools' to put in order")
        if self.only_expected_tools and not self.expected_tools:
            raise ValueError(
                "'only_expected_tools: true' needs 'expected_tools';"
                " to have no tool called, write 'expected_tools: []' alone"
            )
        if self.forbidden_tools is not None and not self.forbidden_tools:
            raise ValueError("'forbidden_tools: []' forbids nothing; name tools or remove it")
        return self
