"""The metric `json_schema`: the answer is JSON that a schema accepts."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import EvaluatorOptions, Score, ScoredEvaluator, quote
from holodeck.lib.json_schemas import check_keywords
from holodeck.lib.patterns import compiled, find
from holodeck.lib.threads import run_in_thread

_PATTERN_SECONDS = 1.0


class JsonSchemaEvaluator(ScoredEvaluator):
    """The answer is JSON and valid by a schema of draft 2020-12.

    Keywords and formats that would be ignored are refused.
    The answer must be JSON and nothing else; `allow_fenced` accepts it inside one Markdown fence.
    A schema cannot refer to other files or to the network.
    """

    metric = "json_schema"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        schema: Mapping[str, Any],
        allow_fenced: bool = False,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        self._validator = _validator(schema)
        self._allow_fenced = allow_fenced

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        return self._row(await run_in_thread(lambda: self._grade(response)))

    def _grade(self, response: str) -> Score:
        text = _without_fence(response) if self._allow_fenced else response
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return Score(0.0, False, f"not JSON ({error}): {quote(response)}")
        faults = _faults(self._validator, document)
        if faults:
            return Score(0.0, False, "; ".join(faults))
        return Score(1.0, True, "valid JSON by the schema")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_fence(text: str) -> str:
    """What is inside the fence, if the text is one fence that says json or nothing."""
    inner = text.strip()
    first, _, rest = inner.partition("\n")
    if first.strip().lower() in {"```", "```json"} and rest.endswith("```"):
        return rest.removesuffix("```")
    return text


def _faults(validator: Any, document: Any) -> list[str]:
    """The first three faults, each with its place in the document."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - part of jsonschema

    try:
        errors = list(islice(validator.iter_errors(document), 3))
    except Unresolvable as error:
        raise EvaluationError(f"json_schema: the schema refers to {error}, not in it") from error
    except TimeoutError as error:
        raise EvaluationError(
            f"json_schema: a pattern of the schema took longer than {_PATTERN_SECONDS:g} s"
        ) from error
    except RecursionError as error:
        raise EvaluationError("json_schema: the answer is nested too deep to check") from error
    causes = (best_match([error]) for error in errors)
    return [f"{cause.json_path}: {_cut(cause.message)}" for cause in causes]


def _cut(message: str, limit: int = 200) -> str:
    return message if len(message) <= limit else f"{message[:limit]}…"


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import extend
    from referencing import Registry  # noqa: PLC0415 - part of jsonschema

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigError("schema", f"{error.json_path}: {_cut(error.message)}") from error
    check_keywords(schema, "schema", formats=Draft202012Validator.FORMAT_CHECKER.checkers)
    _refuse_unbounded(schema)
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    bounded = extend(Draft202012Validator, keywords)
    # An empty registry: without one, a reference to a URL would be fetched
    return bounded(schema, registry=Registry(), format_checker=bounded.FORMAT_CHECKER)


def _refuse_unbounded(schema: Mapping[str, Any]) -> None:
    """The library matches the patterns of these two itself, without a time limit."""
    keywords = set(_keys(schema))
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        raise ConfigError(
            "schema",
            "'unevaluatedProperties' does not go together with 'patternProperties'; write"
            " 'additionalProperties'",
        )


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
    children = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for child in children:
            yield from _keys(child)


def _fits(pattern: str, text: str) -> bool:
    """Whether the pattern is somewhere in the text, within the time limit the library lacks."""
    return find(compiled(pattern), text, _PATTERN_SECONDS) is not None


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Exception]:
    """The keyword `pattern`."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _fits(pattern, instance):
        yield ValidationError(f"{quote(instance)} does not match {quote(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[Exception]:
    """The keyword `patternProperties`."""
    for pattern, schema in patterns.items():
        for key, value in _properties(instance):
            if _fits(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Exception]:
    """The keyword `additionalProperties`."""
    from jsonschema import ValidationError

    for key, value in _properties(instance):
        known = key in schema.get("properties", {})
        if known or any(_fits(pattern, key) for pattern in schema.get("patternProperties", {})):
            continue
        if allowed is False:
            yield ValidationError(f"Additional properties are not allowed: {quote(key)}")
        else:
            yield from validator.descend(value, allowed, path=key)


def _properties(instance: Any) -> list[tuple[str, Any]]:
    return list(instance.items()) if isinstance(instance, dict) else []
