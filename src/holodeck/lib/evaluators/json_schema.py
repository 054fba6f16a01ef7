"""The metric `json_schema`: the response is JSON that is valid by a schema."""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Score, ScoredEvaluator
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.json_schemas import check_keywords, schemas_in
from holodeck.lib.support.patterns import compile_pattern, find
from holodeck.lib.support.text import quote, shorten, unique_keys
from holodeck.models.metrics.text import JsonSchemaMetric

_PATTERN_SECONDS = 1.0
_REFERENCES = {"$ref", "$dynamicRef"}


class JsonSchemaEvaluator(ScoredEvaluator, metric="json_schema"):
    """The response is JSON that is valid by a schema of draft 2020-12.

    The response must be JSON and nothing else; `allow_fenced` accepts JSON inside one Markdown
    fence. Keywords and formats that would be ignored are refused. A schema cannot refer to other
    files or to the network.
    """

    settings: JsonSchemaMetric

    def _configure(self) -> None:
        self._validator = _validator(self.settings.schema_)

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        response = self._response(kwargs)
        return await run_in_thread(lambda: self._grade(response))

    def _grade(self, response: str) -> Score:
        text = _without_fence(response) if self.settings.allow_fenced else response
        try:
            document = json.loads(
                text, parse_constant=_refuse_constant, object_pairs_hook=unique_keys
            )
        except (ValueError, RecursionError) as error:
            return Score(0.0, False, f"not JSON ({error}): {quote(response)}")
        errors = _errors(self._validator, document)
        if errors:
            return Score(0.0, False, "; ".join(errors))
        return Score(1.0, True, "valid JSON by the schema")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_fence(text: str) -> str:
    """Return the content of a text that is one Markdown fence, if its language is json or none."""
    inner = text.strip()
    first, _, rest = inner.partition("\n")
    if first.strip().lower() in {"```", "```json"} and rest.endswith("```"):
        return rest.removesuffix("```")
    return text


def _errors(validator: Any, document: Any) -> list[str]:
    """Return the first three errors, each with its path in the document."""
    from jsonschema.exceptions import best_match

    try:
        errors = list(islice(validator.iter_errors(document), 3))
    except TimeoutError as error:
        raise EvaluationError(
            f"json_schema: a pattern of the schema took longer than {_PATTERN_SECONDS:g} s"
        ) from error
    except RecursionError as error:
        raise EvaluationError("json_schema: the answer is nested too deep to check") from error
    causes = (best_match([error]) for error in errors)
    return [f"{cause.json_path}: {shorten(cause.message, 200)}" for cause in causes]


def check_schema(
    schema: Mapping[str, Any], location: str, formats: Collection[str] | None = None
) -> None:
    """Raise ConfigError for a schema that draft 2020-12 does not allow, or that refers elsewhere.

    So do keywords that would be ignored, and formats that are not in `formats`, if that is given.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    check_keywords(schema, location, formats)
    draft = Draft202012Validator
    validator = draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER)
    cause = best_match(validator.iter_errors(schema))
    if cause is not None:
        path = f"{location}{cause.json_path.removeprefix('$')}"
        raise ConfigError(path, shorten(cause.message, 200))
    _check_references(schema, location)


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry

    check_schema(schema, "schema", Draft202012Validator.FORMAT_CHECKER.checkers)
    if {"patternProperties", "unevaluatedProperties"} <= set(_keys(schema)):
        # the library matches the patterns of these two together itself, without a time limit
        raise ConfigError(
            "schema",
            "'unevaluatedProperties' cannot be combined with 'patternProperties'; write"
            " 'additionalProperties'",
        )
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    bounded = extend(Draft202012Validator, keywords)
    # without an empty registry, the library would download references to URLs
    return bounded(schema, registry=Registry(), format_checker=bounded.FORMAT_CHECKER)


def _check_references(schema: Mapping[str, Any], location: str) -> None:
    """Raise ConfigError for a reference to what the schema does not contain."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver: Any = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    pending: list[tuple[str, Any, Any]] = [(location, schema, resolver)]
    checked: set[int] = set()
    while pending:
        location, part, resolver = pending.pop()
        if not isinstance(part, Mapping) or id(part) in checked:
            continue
        checked.add(id(part))
        for keyword in _REFERENCES & part.keys():
            place = f"{location}.{keyword}"
            try:
                target = resolver.lookup(part[keyword])
            except Unresolvable as error:
                raise ConfigError(
                    place, f"the schema does not contain {part[keyword]!r}; copy it to '$defs'"
                ) from error
            pending.append((place, target.contents, target.resolver))
        for name, below in schemas_in(part):
            inner = resolver.in_subresource(DRAFT202012.create_resource(below))
            pending.append((f"{location}.{name}", below, inner))


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
    children = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for child in children:
            yield from _keys(child)


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches somewhere in the text; the library has no time limit for this."""
    return find(compile_pattern(pattern), text, _PATTERN_SECONDS) is not None


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Exception]:
    """Validate the keyword `pattern`."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{quote(instance)} does not match {quote(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[Exception]:
    """Validate the keyword `patternProperties`."""
    for pattern, schema in patterns.items():
        for key, value in _properties(instance):
            if _matches(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Exception]:
    """Validate the keyword `additionalProperties`."""
    from jsonschema import ValidationError

    patterns = schema.get("patternProperties", {})
    for key, value in _properties(instance):
        if key in schema.get("properties", {}) or any(_matches(text, key) for text in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"Additional properties are not allowed: {quote(key)}")
        else:
            yield from validator.descend(value, allowed, path=key)


def _properties(instance: Any) -> list[tuple[str, Any]]:
    return list(instance.items()) if isinstance(instance, dict) else []
