"""Scorers, the short way to write a check: a name, or a name with its options."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from holodeck.lib.suggestions import did_you_mean
from holodeck.models.base import Json, NonBlank
from holodeck.models.evaluation import Metric

NAMES = ("passfail", "exact", "regex", "similarity")
_OF_ALL = ("required",)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "passfail": (),
    "exact": ("normalize",),
    "regex": ("pattern",),
    "similarity": ("threshold",),
}


def as_metric(written: Any) -> Any:
    """The metric that a scorer stands for; a metric is one itself."""
    if isinstance(written, str):
        return _metric(written, {})
    if not isinstance(written, dict) or {"metric", "type"} & written.keys():
        return written
    if len(written) != 1:
        raise ValueError("a scorer is a name, or one name with its options: '{exact: {…}}'")
    [(name, options)] = written.items()
    if not isinstance(options, dict):
        raise ValueError(f"the options of {name!r} are a mapping")  # noqa: TRY004 - pydantic's
    return _metric(str(name), options)


def _metric(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if ":" in name:
        return {"metric": name, **options}
    if name not in _OPTIONS:
        hint = did_you_mean(name, NAMES, f"; known: {', '.join(NAMES)},")
        raise ValueError(f"the scorer {name!r} is not known{hint} or 'module:callable'")
    options_of_it = (*_OPTIONS[name], *_OF_ALL)
    for key in options:
        if key not in options_of_it:
            known = ", ".join(options_of_it)
            raise ValueError(f"{name!r} has no option {key!r}; it has: {known}")
    return _made(name, options)


def _made(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if name == "exact":
        rest = {key: value for key, value in options.items() if key != "normalize"}
        normalize = options.get("normalize", True)
        return {"metric": "exact_match", "ignore_case": normalize, "strip": normalize, **rest}
    names = {"similarity": "semantic_similarity"}
    return {"metric": names.get(name, name), **options}


Scorer = Annotated[
    Metric,
    BeforeValidator(as_metric),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]
"""`passfail`, `exact`, `regex`, `similarity`, `module:callable`, or one of them with options."""


def _known(written: Any) -> Any:
    as_metric(written)
    return written


WrittenScorer = Annotated[NonBlank | dict[NonBlank, Json], AfterValidator(_known)]
"""A scorer whose options may still come from a case."""
