"""What pydantic found wrong, said with the place in the file and the nearest right word."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holodeck.config.secrets import names_a_secret
from holodeck.config.source import KeyPath, Locations, format_key_path
from holodeck.config.yaml_nodes import Node, quote
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean
from holodeck.models.agent import DUPLICATE_NAME
from holodeck.models.base import InvalidKeys, InvalidParts, models_in
from holodeck.models.config import ExecutionConfig, Setting
from holodeck.models.evaluation import BUILT_IN, BY_TYPE, RAGMetricType
from holodeck.models.expectations import ArgMatcher
from holodeck.models.judged_metrics import DEEPEVAL_METRICS


def known_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys that the mapping at `path` may have; a union's tag may be part of the path."""
    models = {model}
    for part in path:
        models = _step(models, part)
    keys = [key for one in sorted(models, key=lambda m: m.__name__) for key in model_keys(one)]
    return list(dict.fromkeys(keys))


def model_keys(model: type[BaseModel]) -> list[str]:
    """A model's keys as they are written in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _step(models: set[type[BaseModel]], part: str | int) -> set[type[BaseModel]]:
    if isinstance(part, int):
        return models
    named = {BUILT_IN.get(part), *BY_TYPE.get(part, ())}
    tagged = {one for one in models if one in named or one.__name__ == part}
    if tagged:
        return tagged
    below = {
        found
        for one in models
        for name, field in one.model_fields.items()
        if part in (name, field.alias)
        for found in models_in(field.annotation)
    }
    return below or models


MAX_MESSAGE = 1800
MAX_PROBLEMS = 100


def config_error(
    error: ValidationError, places: Locations, model: type[BaseModel], at: KeyPath = ()
) -> ConfigError:
    """One error whose text has a line per problem, each beginning with its place.

    `at` is where the value stands that was validated.
    """
    details = list(_details(error, places, model, at))
    problems = {reader.problem(detail) for reader, detail in details[:MAX_PROBLEMS]}
    files = list(dict.fromkeys([places.source.name, *(one.file for one in problems)]))
    lines = sorted(problems, key=lambda one: (files.index(one.file), *one[1:]))
    more = max(0, len(details) - MAX_PROBLEMS)
    texts = [f"{one.place}: {one.text}" for one in lines]
    place = lines[0].place
    return ConfigError(place, "\n".join(limit_lines(texts, more)).removeprefix(f"{place}: "))


def _details(
    error: ValidationError, places: Locations, model: type[BaseModel], at: KeyPath
) -> Iterator[tuple["_Reader", ErrorDetails]]:
    """Each error that counts, and who reads it; one that stands for several becomes these."""
    reader = _Reader(places, model, at)
    for one in reader.relevant(error):
        cause = one.get("ctx", {}).get("error")
        if isinstance(cause, InvalidKeys):
            for message in cause.messages:
                detail = one.copy()
                detail["msg"] = message
                yield reader, detail
        elif isinstance(cause, InvalidParts):
            for path, part in cause.parts.items():
                below = (*at, *one["loc"], *path)
                yield from _details(part, places, ArgMatcher, below)
        else:
            yield reader, one


class _Problem(NamedTuple):
    file: str
    line: int
    column: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def limit_lines(lines: list[str], more: int = 0) -> list[str]:
    """As many lines as fit into a message, and how many more there are."""
    kept: list[str] = []
    room = MAX_MESSAGE
    for line in lines:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…")
    more += len(lines) - len(kept)
    return [*kept, f"and {more} more"] if more else kept


def _is_about_kind(one: ErrorDetails) -> bool:
    is_no_word = one["type"] == "literal_error" and isinstance(one["input"], dict)
    return is_no_word or one["type"].endswith("_type")


def _is_of_another_member(
    one: ErrorDetails, path: KeyPath, judged: set[KeyPath], counts: Mapping[KeyPath, int]
) -> bool:
    if not _is_about_kind(one):
        return False
    if isinstance(one["input"], dict):
        return path in judged
    return one["type"] == "model_type" and counts[path] > 1


class _Reader:
    """Reads the errors of a value against the files it was written in and its model."""

    def __init__(self, places: Locations, model: type[BaseModel], at: KeyPath) -> None:
        self._places = places
        self._model = model
        self._at = at

    def relevant(self, error: ValidationError) -> list[ErrorDetails]:
        """The errors without those of a union's other members: a mapping is not blamed for not
        being text, nor text for not being a mapping."""
        found = [(one, self._path(one["loc"])) for one in error.errors(include_url=False)]
        judged: set[KeyPath] = set()
        for one, path in found:
            end = len(path) - 1 if _is_about_kind(one) else len(path)
            judged.update(path[:length] for length in range(end + 1))
        counts = Counter(path for _, path in found)
        return [one for one, path in found if not _is_of_another_member(one, path, judged, counts)]

    def problem(self, detail: ErrorDetails) -> _Problem:
        """Where and what a problem is."""
        loc = (*self._at, *detail["loc"])
        origin, node = self._places.find(loc)
        path, is_twin = origin.path, detail["type"] == DUPLICATE_NAME
        text = self._twins(detail["ctx"]) if is_twin else self._text(detail, node, path)
        if detail["type"] == "extra_forbidden":
            node = self._key(loc) or node
        elif detail["type"] == "missing":
            path = (*path, str(loc[-1]))
        elif (is_twin or detail["type"] == "value_error") and (
            quoted := _quoted_path(detail["msg"].removeprefix("Value error, "))
        ):
            loc = (*loc, *quoted)
            origin = self._places.origin(loc)
            node = self._key(loc) or self._places.find(loc)[1]
        where = format_key_path(path)
        shown = f"{where}: {text}" if where else text
        return _Problem(origin.source.name, node.line, node.column, shown)

    def _path(self, loc: KeyPath) -> KeyPath:
        """Where a value stands, those of one case of several with the same origin kept apart."""
        loc = (*self._at, *loc)
        origin, _ = self._places.find(loc)
        return (*loc[:2], *origin.path) if loc[:1] == ("test_cases",) else origin.path

    def _key(self, loc: KeyPath) -> Node | None:
        _, parent = self._places.find(loc[:-1])
        if isinstance(parent.value, dict) and loc[-1] in parent.value:
            return parent.value[str(loc[-1])][0]
        if isinstance(parent.value, list) and loc[-1] in range(len(parent.value)):
            return parent.value[int(loc[-1])]
        return None

    def _text(self, detail: ErrorDetails, node: Node, path: KeyPath) -> str:
        kind, context = detail["type"], detail.get("ctx", {})
        found = self._found(node, path)
        if kind == "extra_forbidden":
            return _unknown_key(str(detail["loc"][-1]), known_keys(self._model, detail["loc"][:-1]))
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            return _unknown_metric(node)
        if kind == "missing":
            return "this key is missing"
        if kind in ("enum", "literal_error"):
            return _not_a_choice(found, str(context.get("expected", "")))
        if kind in ("value_error", "assertion_error"):
            return detail["msg"].removeprefix("Value error, ")
        return f"found {found}; wanted {_expected(kind, context, detail['msg'])}"

    def _twins(self, context: Mapping[str, Any]) -> str:
        """About two with the same name, by the places that they have in their files."""
        where, key = context["where"], context["key"]
        first, second = ((where, context[one]) for one in ("first", "second"))
        one, other = self._places.origin(first), self._places.origin(second)
        elsewhere = (
            f" ({one.place})" if one.source.name != other.source.name or not one.path else ""
        )
        return (
            f"'{format_key_path((*other.path, key))}': {context['name']} is already the {key} of"
            f" {format_key_path(one.path) or 'another case'}{elsewhere}; give each its own"
        )

    def _found(self, node: Node, path: KeyPath) -> str:
        """The value as written in the file, so that what a variable held is never shown."""
        value = node.value
        if isinstance(value, dict):
            return "a mapping"
        if isinstance(value, list):
            return f"a list of {len(value)}"
        if any(part == "headers" or names_a_secret(str(part)) for part in path):
            return "a value that is not shown"
        if value is None:
            return "nothing"
        return quote(value) if isinstance(value, str) else str(value).lower()[:80]


def _quoted_path(text: str) -> KeyPath:
    """The key, or path of keys, that a validator's message begins with, in quotes."""
    quoted = re.match(r"'([\w.\[\]-]+)", text)
    parts = re.findall(r"[\w-]+", quoted[1]) if quoted else []
    return tuple(int(part) if part.isdigit() else part for part in parts)


_OF_A_CRITERION = {"text", "required"}


_OF_A_MODEL = {"endpoint", "api_key"}
_MODEL_KEYS_ELSEWHERE = {
    "endpoint": "base_url api_base azure_endpoint url host api_url openai_api_base",
    "name": "model model_name model_id ai_model_id engine deployment deployment_name"
    " azure_deployment azure_deployment_name deployment_id",
    "max_tokens": "max_completion_tokens max_output_tokens max_new_tokens num_predict",
    "api_key": "key token api_token auth_token openai_api_key azure_api_key",
    "api_version": "azure_api_version openai_api_version",
    "provider": "api_type vendor type custom_llm_provider",
}
"""Key of `model` → what OpenAI, Azure, Semantic Kernel, LiteLLM and Ollama call it."""


def _unknown_key(key: str, known: Sequence[str]) -> str:
    meant = _settings_by_flag().get(key)
    if meant not in known and set(known) >= _OF_A_MODEL:
        meant = _model_keys().get(key)
    if meant in known:
        return f"unknown key; did you mean {meant!r}?"
    hint = did_you_mean(key, known)
    if hint:
        return f"unknown key{hint}"
    if " " in key or set(known) == _OF_A_CRITERION:  # a mapping may stand where a text was meant
        return f"unknown key; if it is a text with a colon in it, write it in quotes: '{key}: …'"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key"


@cache
def _model_keys() -> dict[str, str]:
    """The name of a key in other tools → our key: `base_url` → `endpoint`."""
    return {other: key for key, others in _MODEL_KEYS_ELSEWHERE.items() for other in others.split()}


@cache
def _settings_by_flag() -> dict[str, str]:
    """The word of a flag → the key of the same setting: `timeout` → `llm_timeout`."""
    return {
        flag.lstrip("-").replace("-", "_"): name
        for name, field in ExecutionConfig.model_fields.items()
        for setting in field.metadata
        if isinstance(setting, Setting)
        for flag in setting.all_flags
    }


def _unknown_metric(node: Node) -> str:
    """About a metric's mapping whose `metric` names none of ours."""
    values = (
        {k: n.value for k, (_, n) in node.value.items()} if isinstance(node.value, dict) else {}
    )
    name, kind = values.get("metric"), values.get("type")
    if kind is not None and kind != "standard":
        return "'type': " + _not_a_choice(_describe(kind), ", ".join(f"'{one}'" for one in _TYPES))
    if not isinstance(name, str):
        return "'metric' is missing; write 'metric: contains', say"
    for family, known in _FAMILIES.items():
        if name in known:
            return f"'metric: {name}' belongs to another type; write '{family.format(name)}'"
    hint = did_you_mean(name, BUILT_IN, ";")
    names = ", ".join(BUILT_IN)
    return f"'metric': {quote(name)} is not known{hint} known: {names}, or 'module:callable'"


def _describe(value: Any) -> str:
    """A value that should have been text."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return quote(str(value))


_TYPES = ("standard", *BY_TYPE)
_FAMILIES = {
    "type: rag, metric_type: {}": frozenset(RAGMetricType),
    "type: deepeval": frozenset(DEEPEVAL_METRICS),
    "type: geval": {"geval"},
    "type: judge": {"judge"},
}


def _not_a_choice(found: str, expected: str) -> str:
    choices = [part for part in expected.replace(" or ", ", ").split("'") if part not in ("", ", ")]
    hint = did_you_mean(found.strip("'"), choices, ";")
    return f"found {found}{hint} wanted {expected}"


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
    """What a single value should have been."""
    one = error.errors(include_url=False)[0]
    return _expected(one["type"], one.get("ctx", {}), one["msg"])


def _expected(kind: str, context: dict[str, Any], message: str) -> str:
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"{words} {context[key]:g}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
    return _KINDS.get(kind.partition("_")[0], message)
