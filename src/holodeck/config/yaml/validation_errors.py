"""Turn validation errors of pydantic into messages with a location and a suggestion."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holodeck.config.yaml.nodes import Node
from holodeck.config.yaml.source import KeyPath, Locations, format_key_path
from holodeck.errors import ConfigError
from holodeck.lib.secrets.formats import names_a_secret
from holodeck.lib.support.synonyms import METRICS, did_you_mean_key, meant_key, meant_word
from holodeck.lib.support.text import did_you_mean, nearest_word, quote
from holodeck.models.agent import DUPLICATE_NAME, Agent, AgentFile
from holodeck.models.base import InvalidKeys, Model, models_in
from holodeck.models.config import settings_by_flag
from holodeck.models.metrics.base import MetricSettings, metric_classes, metric_names, metric_types


def _models_at(model: type[BaseModel], path: KeyPath) -> list[type[BaseModel]]:
    """Return the models of the mapping at a path, which may contain the tag of a union member."""
    models = {model}
    for part in path:
        models = _step(models, part)
    return sorted(models, key=lambda model: model.__name__)


def _known_keys(models: Sequence[type[BaseModel]]) -> list[str]:
    """Return the keys of the models as they are written in YAML."""
    fields = (item for model in models for item in model.model_fields.items())
    return list(dict.fromkeys(field.alias or name for name, field in fields))


def _step(models: set[type[BaseModel]], part: str | int) -> set[type[BaseModel]]:
    if isinstance(part, int):
        return models
    tagged = {
        model
        for model in models
        if part == model.__name__ or (issubclass(model, MetricSettings) and part == model.tag())
    }
    if tagged:
        return tagged
    below = {
        member
        for model in models
        for name, field in model.model_fields.items()
        if part in (name, field.alias)
        for member in models_in(field)
    }
    return below or models


MAX_MESSAGE = 1800
MAX_PROBLEMS = 100


M = TypeVar("M", bound=BaseModel)


def validate(
    model: type[M],
    data: Mapping[str, Any],
    locations: Locations,
    problems: Sequence[ConfigError] = (),
    may_lack: str | None = None,
) -> M:
    """Return the model for the values of a file.

    Raises ConfigError with a line for each problem, after those in `problems`; with `may_lack`,
    what is missing below that key does not count.
    """
    errors = list(problems)
    try:
        valid = model.model_validate(data)
        if not errors:
            return valid
    except ValidationError as error:
        file_model = AgentFile if model is Agent else model  # with all keys that a file may have
        reader = _Reader(locations, file_model)
        details = [
            detail
            for detail in reader.relevant(error)
            if not (may_lack in detail["loc"] and _may_be_missing(detail))
        ]
        if details:
            errors.append(reader.config_error(details))
    first, *others = errors
    raise ConfigError(first.field, "\n".join([first.message, *map(str, others)])) from None


def _may_be_missing(detail: ErrorDetails) -> bool:
    """Whether an error may be about a key that a configuration file adds."""
    cause = detail.get("ctx", {}).get("error")
    is_of_mapping = detail["type"] == "value_error" and not isinstance(cause, InvalidKeys)
    return detail["type"] == "missing" or (is_of_mapping and detail["loc"][-1] == "model")


def config_error(
    error: ValidationError, locations: Locations, model: type[BaseModel], at: KeyPath = ()
) -> ConfigError:
    """Return an error with a line for each problem, each beginning with its location.

    `at` is the path of the value that was validated.
    """
    reader = _Reader(locations, model, at)
    return reader.config_error(reader.relevant(error))


class _Problem(NamedTuple):
    file: str
    line: int
    column: int
    text: str


def limit_lines(lines: list[str], more: int = 0) -> list[str]:
    """Return the lines that fit into a message, and how many more there are."""
    shown: list[str] = []
    room = MAX_MESSAGE
    for line in lines:
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…")
    more += len(lines) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _is_type_error(detail: ErrorDetails) -> bool:
    is_mapping_for_literal = detail["type"] == "literal_error" and isinstance(detail["input"], dict)
    return is_mapping_for_literal or detail["type"].endswith("_type")


class _Reader:
    """Describes the errors of a value, given its files, its model and its path."""

    def __init__(self, locations: Locations, model: type[BaseModel], at: KeyPath = ()) -> None:
        self._locations = locations
        self._model = model
        self._at = at

    def config_error(self, details: Sequence[ErrorDetails]) -> ConfigError:
        """Return an error with a line for each problem, in the order of the files."""
        problems = {self._problem(detail) for detail in details[:MAX_PROBLEMS]}
        files = [self._locations.source.name, *(problem.file for problem in problems)]
        ordered = sorted(problems, key=lambda problem: (files.index(problem.file), *problem[1:]))
        lines = [f"{file}:{line}:{column}: {text}" for file, line, column, text in ordered]
        location = f"{ordered[0].file}:{ordered[0].line}:{ordered[0].column}"
        message = "\n".join(limit_lines(lines, max(0, len(details) - MAX_PROBLEMS)))
        return ConfigError(location, message.removeprefix(f"{location}: "))

    def relevant(self, error: ValidationError) -> list[ErrorDetails]:
        """Return the errors without those of other members of a union.

        Text where a mapping is valid too is not reported as "not a mapping", and vice versa. An
        error about several keys becomes an error for each.
        """
        details = [
            (detail, self._path(detail["loc"])) for detail in error.errors(include_url=False)
        ]
        reported: set[KeyPath] = set()
        for detail, path in details:
            end = len(path) - 1 if _is_type_error(detail) else len(path)
            reported.update(path[:length] for length in range(end + 1))
        counts = Counter(path for _, path in details)
        meant = set(self._meant_keys(error))
        relevant = []
        for detail, path in details:
            if detail["type"] == "missing" and detail["loc"] in meant:
                continue
            is_of_other = (
                path in reported
                if isinstance(detail["input"], dict)
                else (
                    detail["type"] in {"model_type", "model_attributes_type"} and counts[path] > 1
                )
            )
            if not (_is_type_error(detail) and is_of_other):
                cause = detail.get("ctx", {}).get("error")
                texts = cause.messages if isinstance(cause, InvalidKeys) else [detail["msg"]]
                relevant += [detail | {"msg": text} for text in texts]
        return relevant

    def _meant_keys(self, error: ValidationError) -> Iterator[KeyPath]:
        """Yield the keys that are written, but misspelled or as another tool calls them."""
        for detail in error.errors(include_url=False, include_input=False):
            if detail["type"] == "extra_forbidden":
                *above, word = detail["loc"]
                known = _known_keys(_models_at(self._model, tuple(above)))
                meant = meant_key(str(word), known) or nearest_word(str(word), known)
                if meant is not None:
                    yield (*above, meant)

    def _problem(self, detail: ErrorDetails) -> _Problem:
        """Return the location and the message of an error."""
        loc = (*self._at, *detail["loc"])
        origin, node = self._locations.find(loc)
        path, is_duplicate = origin.path, detail["type"] == DUPLICATE_NAME
        text = (
            self._duplicate_name_message(detail["ctx"])
            if is_duplicate
            else self._text(detail, node, path)
        )
        if detail["type"] == "extra_forbidden":
            node = self._locations.origin(loc).key_node or node
        elif detail["type"] == "missing":
            path = (*path, str(loc[-1]))
        elif (is_duplicate or detail["type"] == "value_error") and (
            quoted := quoted_path(detail["msg"].removeprefix("Value error, "))
        ):
            loc = (*loc, *quoted)
            origin = self._locations.origin(loc)
            node = origin.key_node or self._locations.find(loc)[1]
        key_path = format_key_path(path)
        shown = f"{key_path}: {text}" if key_path else text
        return _Problem(origin.source.name, node.line, node.column, shown)

    def _path(self, loc: KeyPath) -> KeyPath:
        """Return the path of a value in its file; cases with the same origin stay distinct."""
        loc = (*self._at, *loc)
        origin, _ = self._locations.find(loc)
        return (*loc[:2], *origin.path) if loc[:1] == ("test_cases",) else origin.path

    def _text(self, detail: ErrorDetails, node: Node, path: KeyPath) -> str:
        kind, context = detail["type"], detail.get("ctx", {})
        found = self._describe_found(node, path)
        if kind == "extra_forbidden":
            return _unknown_key(str(detail["loc"][-1]), _models_at(self._model, detail["loc"][:-1]))
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            is_metric = "'" not in context["discriminator"]  # which a function tells apart
            return _unknown_metric(node) if is_metric else _unknown_type(context)
        if kind == "missing":
            return "this key is missing"
        if kind in ("enum", "literal_error"):
            return _not_a_choice(found, str(context.get("expected", "")))
        if kind in ("value_error", "assertion_error"):
            return detail["msg"].removeprefix("Value error, ")
        expected = _describe_expected(kind, context, detail["msg"])
        if isinstance(node.value, dict | list):
            expected = expected.removesuffix("; put it in quotes")
        return f"found {found}; expected {expected}"

    def _duplicate_name_message(self, context: Mapping[str, Any]) -> str:
        """Return a message about two items with the same name, each with its origin."""
        name, key = context["list_name"], context["key"]
        first = self._locations.origin((name, context["first"]))
        second = self._locations.origin((name, context["second"]))
        is_elsewhere = first.source.name != second.source.name or not first.path
        location = f" ({first.location})" if is_elsewhere else ""
        return (
            f"'{format_key_path((*second.path, key))}': {context['name']} is already the {key} of"
            f" {format_key_path(first.path) or 'another case'}{location}; use a different one"
        )

    def _describe_found(self, node: Node, path: KeyPath) -> str:
        """Describe the value as written in the file, so that values of variables stay hidden."""
        value = node.value
        if isinstance(value, dict):
            return "a mapping"
        if isinstance(value, list):
            return f"a list of {len(value)}"
        if any(part == "headers" or names_a_secret(str(part)) for part in path):
            return "a value (not shown)"
        if value is None:
            return "nothing"
        return quote(value) if isinstance(value, str) else str(value).lower()[:80]


def quoted_path(text: str) -> KeyPath:
    """Return the quoted path of keys that a validator's message begins with."""
    quoted = re.match(r"'([\w.\[\]-]+)", text)
    parts = re.findall(r"[\w-]+", quoted[1]) if quoted else []
    return tuple(int(part) if part.isdigit() else part for part in parts)


_CRITERION_KEYS = {"text", "says_failed", "required"}


def _unknown_key(key: str, models: Sequence[type[BaseModel]]) -> str:
    for base in (base for model in models for base in model.__mro__):
        if issubclass(base, Model) and key in base.not_supported_yet:
            return f"not supported ({base.not_supported_yet[key]}); remove it"
    known = _known_keys(models)
    flag = settings_by_flag().get(key)
    hint = f"; did you mean {flag!r}?" if flag in known else did_you_mean_key(key, known)
    if hint:
        return f"unknown key{hint}"
    if " " in key or set(known) == _CRITERION_KEYS:  # text with a colon is parsed as a mapping
        return f"unknown key; if it is a text with a colon in it, write it in quotes: '{key}: …'"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key"


def _unknown_type(context: Mapping[str, Any]) -> str:
    """Describe a mapping whose key for its kind, such as `type`, is missing or unknown."""
    key = context["discriminator"]
    if "tag" not in context:
        return f"{key} is missing; write 'type: http', for example"
    return f"{key}: {_not_a_choice(_describe(context['tag']), context['expected_tags'])}"


def _unknown_metric(node: Node) -> str:
    """Describe a mapping of a metric whose `metric` or `type` is unknown."""
    values = (
        {k: n.value for k, (_, n) in node.value.items()} if isinstance(node.value, dict) else {}
    )
    name, kind = values.get("metric"), values.get("type")
    if kind is not None and kind != "standard":
        types = ", ".join(f"'{name}'" for name in metric_types())
        advice = _meant_metric(str(kind))
        if advice is not None:
            return f"'type': found {_describe(kind)}; did you mean '{advice}'?"
        return "'type': " + _not_a_choice(_describe(kind), types)
    if not isinstance(name, str):
        return "'metric' is missing; write 'metric: contains', for example"
    advice = _advice_on_type(name)
    if advice is not None:
        return f"'metric: {name}' needs another type; write '{advice}'"
    problem = f"'metric': unknown metric {quote(name)}"
    advice = _meant_metric(name)
    if advice is not None:
        return f"{problem}; did you mean '{advice}'?"
    hint, names = did_you_mean(name, metric_names(), ";"), ", ".join(metric_names())
    return f"{problem}{hint} known: {names}, or 'module:callable'"


def _describe(value: Any) -> str:
    """Describe a value that should be text."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return quote(str(value))


def _meant_metric(name: str) -> str | None:
    """Return the keys of the metric that other tools call so; None if they name no metric so."""
    name = name.removesuffix("Metric")
    meant = name if name in metric_names() else meant_word(name, METRICS)
    return f"metric: {meant}" if meant in metric_names() else _advice_on_type(meant or "")


def _advice_on_type(name: str) -> str | None:
    """Return the keys that select a metric that needs a type; None if no type has the name."""
    if name in metric_types():
        return f"type: {name}"
    for model in metric_classes():
        if name in model.names():
            key = f", metric_type: {name}" if "metric_type" in model.model_fields else ""
            return f"type: {model.types()[-1]}{key}"
    return None


def _not_a_choice(found: str, expected: str) -> str:
    choices = [part for part in expected.replace(" or ", ", ").split("'") if part not in ("", ", ")]
    hint = did_you_mean(found.strip("'"), choices, ";")
    return f"found {found}{hint} expected {expected}"


_KINDS = {
    "string": "text; put it in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "finite": "a finite number",
    "dataclass": "a mapping",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
    "too_long": ("a list of at most", "max_length"),
    "too_short": ("a list of at least", "min_length"),
    "string_too_long": ("text with at most this many characters:", "max_length"),
}
_PATTERNS = {
    r"\S": "text that is not blank",
    r"^[0-9A-Za-z_]+$": "letters, digits and underscores only",
}


def expected_value(error: ValidationError) -> str:
    """Return what a single value should be."""
    detail = error.errors(include_url=False)[0]
    return _describe_expected(detail["type"], detail.get("ctx", {}), detail["msg"])


def _describe_expected(kind: str, context: dict[str, Any], message: str) -> str:
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"{words} {context[key]:g}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
    if kind == "literal_error":
        return str(context["expected"])
    return _KINDS.get(kind.partition("_")[0], message)
