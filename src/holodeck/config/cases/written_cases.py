"""Turn what is written about cases into test cases: `parameters`, suites and scenarios."""

import os
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from holodeck.config.yaml.source import Origin
from holodeck.lib.support.text import did_you_mean, quote
from holodeck.models.agent import SuiteHeader, SuiteSettings, WrittenCase, WrittenScenario
from holodeck.models.test_case import LIKE_PLACEHOLDER, PLACEHOLDER, TurnModel

Kind = Literal["text", "list", "scalar", "mapping"]


@cache
def value_kind(key: str) -> Kind:
    """Return the type of a key's value; a nested key (`context.user`) holds text."""
    kinds = {"text"} if "." in key else set(_kinds_in(WrittenCase.model_fields[key].annotation))
    order: tuple[Kind, ...] = ("list", "mapping", "text", "scalar")
    return next((kind for kind in order if kind in kinds), "scalar")


CASE_KEYS = tuple(WrittenCase.model_fields)
"""The keys that a test case may have."""


@cache
def _text_keys() -> frozenset[str]:
    """Return the keys whose value is text or a list of text, also in metrics."""
    fields = {**WrittenCase.model_fields, **TurnModel.model_fields}
    kinds = {name: set(_kinds_in(field.annotation)) for name, field in fields.items()}
    texts = {name for name, of_key in kinds.items() if of_key in ({"text"}, {"list", "text"})}
    return frozenset({*texts, "value", "values", "pattern", "content"})


def _kinds_in(annotation: Any) -> Iterator[Kind]:
    """Yield the types in an annotation, including those of a list's items."""
    origin = typing.get_origin(annotation) or annotation
    if origin is dict or (isinstance(origin, type) and issubclass(origin, BaseModel)):
        yield "mapping"
    elif origin is str:
        yield "text"
    elif origin in (int, float, bool):
        yield "scalar"
    elif origin is not Literal:
        if origin is list:
            yield "list"
        for part in typing.get_args(annotation):
            yield from _kinds_in(part)


MOST_CASES = 10_000
"""Maximum for a case, because the product of several parameters grows fast."""
NAMED = ("name", "id")
"""Keys that identify a case."""
_OWN_NAMES = frozenset({"args", "context", "returns", "when"})
Value = str | int | float | bool


def expand_parameters(case: Any, origin: Origin) -> Iterator[Any]:
    """Yield a case for each set of `parameters`, or the case itself without parameters.

    Raises ConfigError for parameters that are invalid, missing or unused.
    """
    if not isinstance(case, dict) or "parameters" not in case:
        yield case
        return
    rest = {key: value for key, value in case.items() if key != "parameters"}
    if case.get("parameters") is None:
        yield rest
        return
    choices = _choices(case["parameters"], origin.below("parameters"))
    _check_use(rest, choices[0], origin)
    for values in choices:
        yield _fill_case(rest, values)


def _choices(written: Any, origin: Origin) -> list[dict[str, Value]]:
    """Return the values of the parameters for each case."""
    if isinstance(written, dict) and written:
        choices = _product(written, origin)
    elif isinstance(written, list) and written:
        choices = [
            _check_values(choice, origin.below(index)) for index, choice in enumerate(written)
        ]
    else:
        raise origin.error("write names with lists of values, or a list of mappings")
    labels: set[str] = set()
    for index, choice in enumerate(choices):
        if choice.keys() != choices[0].keys():
            names = ", ".join(choices[0])
            raise origin.below(index).error(
                f"has different names than the first item, which has {names}"
            )
        label = _case_label(choice)
        if label in labels:
            raise origin.error(f"duplicate {label}; remove it")
        labels.add(label)
    return choices


def _product(written: Mapping[str, Any], origin: Origin) -> list[dict[str, Value]]:
    for name, values in written.items():
        if not isinstance(values, list) or not values:
            example = "a, b" if isinstance(values, list | dict) or values is None else values
            raise origin.below(name).error(f"expected a list of values, such as [{example}]")
    count = prod(map(len, written.values()))
    if count > MOST_CASES:
        raise origin.error(f"these make {count:,} cases; at most {MOST_CASES:,} are allowed")
    return [
        _check_values(dict(zip(written, values, strict=True)), origin)
        for values in product(*written.values())
    ]


def _check_values(values: Any, origin: Origin) -> dict[str, Value]:
    if not isinstance(values, dict) or not values:
        raise origin.error("expected a mapping of names to values")
    for name, value in values.items():
        if not PLACEHOLDER.fullmatch(f"{{{{{name}}}}}"):
            raise origin.error(f"{quote(name)} is not a valid name; use letters, digits and _")
        if not isinstance(value, str | int | float | bool):
            raise origin.error(f"the value of {name!r} must be text, a number, true or false")
    return values


def _check_use(case: Any, values: Mapping[str, Value], origin: Origin) -> None:
    used = dict(_uses(case, origin))
    for name, use in used.items():
        if name not in values:
            raise use.error(f"unknown parameter {{{{{name}}}}}; known: {', '.join(values)}")
    for name in values:
        if name not in used:
            at = origin.below("parameters", name)
            raise at.error(f"is not used; write {{{{{name}}}}} where it belongs, or remove it")


def _uses(value: Any, origin: Origin) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each placeholder, and where it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            if PLACEHOLDER.search(key):
                raise origin.below(key).error("placeholders are allowed in values, not in keys")
            yield from _uses(item, origin.below(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _uses(item, origin.below(index))
    elif isinstance(value, str):
        _check_placeholders(value, origin)
        for match in PLACEHOLDER.finditer(value):
            yield match[1], origin


def _check_placeholders(text: str, origin: Origin) -> None:
    """Raise ConfigError for text such as `{{user.name}}`, which would go to the agent unfilled."""
    for match in LIKE_PLACEHOLDER.finditer(text):
        if not PLACEHOLDER.fullmatch(match[0]):
            raise origin.error(
                f"invalid placeholder {quote(match[0])}; write {{{{name}}}} with letters, digits"
                " and _, or make text with such braces the value of a parameter",
            )


def _fill_case(case: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    filled: dict[str, Any] = _fill(case, values, _text_keys(), keeps_type=True)
    for key in NAMED:
        written = case.get(key)
        if isinstance(written, str) and not PLACEHOLDER.search(written):
            filled[key] = f"{written}[{_case_label(values)}]"
    return filled


def _fill(
    value: Any, values: Mapping[str, Value], texts: frozenset[str], *, keeps_type: bool
) -> Any:
    """Return the value with its placeholders filled in.

    A text that is only a placeholder becomes the value itself, such as a number, except under keys
    that hold text (`texts`).
    """
    if isinstance(value, dict):
        return {
            # keys in `args`, for example, are the user's own, whatever they are called
            key: _fill(
                item,
                values,
                frozenset() if key in _OWN_NAMES else texts,
                keeps_type=key not in texts,
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_fill(item, values, texts, keeps_type=keeps_type) for item in value]
    if not isinstance(value, str):
        return value
    whole = PLACEHOLDER.fullmatch(value) if keeps_type else None
    if whole is not None:
        return values[whole[1]]
    return PLACEHOLDER.sub(lambda match: _as_text(values[match[1]]), value)


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _case_label(values: Mapping[str, Value]) -> str:
    """Return what distinguishes a case from the others: `city=Rome,unit=C`."""
    return ",".join(f"{name}={' '.join(_as_text(value).split())}" for name, value in values.items())


_MIN_PASS_KEYS = ("min_pass", "min_pass_rate")
_SHARED_KEYS = ("retries", "retry_on", "fail_fast", "repeat", *_MIN_PASS_KEYS)
"""Keys that suites and cases have in common."""


def with_suite_defaults(
    case: Mapping[str, Any], name: str, header: SuiteHeader, origin: Origin
) -> Any:
    """Return the case with missing keys taken from its suite. Raises ConfigError."""
    if case.get("suite", name) != name:
        raise origin.below("suite").error(
            f"the case belongs to the suite {quote(name)}; remove this key",
        )
    tags = case.get("tags", [])
    if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
        tags = list(dict.fromkeys([*header.tags, *tags]))
    settings = _settings(header.config)
    if any(case.get(key) is not None for key in _MIN_PASS_KEYS):
        settings = {key: value for key, value in settings.items() if key not in _MIN_PASS_KEYS}
    given = settings.keys() - {"scorers"}  # null is an error for these
    own = {key: value for key, value in case.items() if value is not None or key not in given}
    return {**settings, **own, **_context(case, header), "suite": name, "tags": tags}


def _context(case: Mapping[str, Any], header: SuiteHeader) -> dict[str, Any]:
    """Return the suite's context updated with the case's, if that is valid."""
    own = case.get("context")
    if not header.context or not isinstance(own, dict | None):
        return {}
    return {"context": {**header.context, **(own or {})}}


def _settings(config: SuiteSettings) -> dict[str, Any]:
    """Return the settings of a suite that its cases take over."""
    named = {"timeout": config.timeout, "scorers": config.default_scorers}
    named |= {key: getattr(config, key) for key in _SHARED_KEYS}
    return {key: value for key, value in named.items() if value is not None}


def with_moved_files(case: Mapping[str, Any], start: Path, folder: Path) -> dict[str, Any]:
    """Return the case with the paths of its files relative to `folder`, not to its suite."""
    changed = dict(case)
    if start == folder:
        return changed
    between = os.path.relpath(start, folder)
    if isinstance(case.get("files"), list):
        changed["files"] = [_move_file(file, between, "path") for file in case["files"]]
    if isinstance(case.get("stubs"), str):
        changed |= _move_file(case, between, "stubs")
    if isinstance(case.get("history"), dict):
        changed["history"] = _move_file(case["history"], between, "file")
    if isinstance(case.get("turns"), list):
        changed["turns"] = [
            with_moved_files(turn, start, folder) if isinstance(turn, dict) else turn
            for turn in case["turns"]
        ]
    return changed


def _move_file(file: Any, between: str, key: str) -> Any:
    if not isinstance(file, dict) or not isinstance(file.get(key), str):
        return file
    return {**file, key: os.path.join(between, file[key])}  # noqa: PTH118 - not yet checked


OPTIONS = {
    "regex": ("regex_pattern", "pattern"),
    "exact": ("exact_normalize", "normalize"),
    "similarity": ("similarity_threshold", "threshold"),
}
"""Scorer → the key of `metadata` that sets its option, and the option."""
DEFAULT = ("passfail",)


def scenario_to_case(
    scenario: WrittenScenario, default_scorers: Sequence[Any] | None, origin: Origin
) -> dict[str, Any]:
    """Return the test case for a scenario. Raises ConfigError."""
    _check_metadata(scenario, origin)
    named: Sequence[Any] | None = scenario.scorers
    if named is None:
        named = DEFAULT if default_scorers is None else default_scorers
    _check_needs(scenario, named, origin)
    case: dict[str, Any] = {
        "id": scenario.id,
        "name": scenario.name,
        "description": scenario.description,
        "input": scenario.input,
        "ground_truth": scenario.expected_output,
        "tags": scenario.tags,
        "timeout": scenario.timeout_seconds,
        "expected_tools": _tools(scenario),
    }
    return {
        **{key: value for key, value in case.items() if value is not None},
        "scorers": [_with_options(scorer, scenario.metadata) for scorer in named],
    }


def _tools(scenario: WrittenScenario) -> list[dict[str, Any]] | None:
    """Return the expected tools by exact name; None if the scenario does not check tools."""
    if scenario.expected_tools is None and not scenario.expected_tool_args:
        return None
    names = dict.fromkeys([*(scenario.expected_tools or ()), *scenario.expected_tool_args])
    args_of = {
        name: {key: {"equals": value} for key, value in args.items()}
        for name, args in scenario.expected_tool_args.items()
    }
    return [{"name": name, "args": args_of.get(name, {})} for name in names]


def _with_options(scorer: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the scorer with its options from the metadata."""
    if not isinstance(scorer, str) or scorer not in OPTIONS:
        return scorer
    word, option = OPTIONS[scorer]
    return {scorer: {option: metadata[word]}} if word in metadata else scorer


def _check_needs(scenario: WrittenScenario, scorers: Sequence[Any], origin: Origin) -> None:
    """Raise ConfigError if a scorer lacks what it needs, in terms of the scenario."""
    for index, scorer in enumerate(scorers):
        at = origin if scenario.scorers is None else origin.below("scorers", index)
        if scorer in ("exact", "similarity") and scenario.expected_output is None:
            raise at.error(f"{scorer!r} needs 'expected_output'; write it")
        pattern = scenario.metadata.get("regex_pattern")
        if scorer == "regex" and not (isinstance(pattern, str) and pattern.strip()):
            raise at.error("'regex' needs 'metadata: {regex_pattern: …}'; write it")


def _check_metadata(scenario: WrittenScenario, origin: Origin) -> None:
    """Raise ConfigError for an option that is invalid, or misspelt, so that no scorer sees it."""
    words = [word for word, _ in OPTIONS.values()]
    for key, value in scenario.metadata.items():
        at = origin.below("metadata", key)
        found = quote(value) if isinstance(value, str) else str(value).lower()[:80]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key == "exact_normalize" and not isinstance(value, bool):
            raise at.error(f"found {found}; expected true or false")
        if key == "similarity_threshold" and not (is_number and 0 <= value <= 1):
            raise at.error(f"found {found}; expected a number from 0 to 1")
        hint = did_you_mean(key, words, cutoff=0.8)
        if hint and key not in words:
            raise at.error(f"unknown option {quote(key)}{hint}")
