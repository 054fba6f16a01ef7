"""Paths into JSON documents, written as `a.b[0].c`, and templates with placeholders."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.errors import BackendSessionError, ConfigError

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")

Step = str | int


def parse_path(path: str, where: str) -> list[Step]:
    """The keys and indexes of a path. Raises ConfigError if it is malformed."""
    steps: list[Step] = []
    position = 0
    for match in _STEP.finditer(path):
        if match.start() != position:
            break
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if position != len(path) or not steps:
        raise ConfigError(where, f"{path!r} is not a path such as 'choices[0].message.content'")
    return steps


def value_at(document: Any, steps: list[Step]) -> Any:
    """What stands there. Raises BackendSessionError, which says what does stand there."""
    value = document
    for i, step in enumerate(steps):
        try:
            value = _child(value, step)
        except LookupError as error:
            raise BackendSessionError(
                f"the answer has no {format_path(steps)!r}: {_place(steps[:i])} {_found(value)}"
            ) from error
    return value


def format_path(steps: list[Step]) -> str:
    """The steps as they are written."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
    return "".join(parts).removeprefix(".")


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with `{name}` in its strings replaced by the value of that name.

    A string that is nothing but `{name}` becomes the value itself, be it text or not. What is
    filled in is not looked at again.
    """
    if isinstance(template, Mapping):
        return {key: fill_template(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_template(item, values) for item in template]
    if not isinstance(template, str):
        return template
    if template[:1] == "{" and template[1:-1] in values and template[-1] == "}":
        return values[template[1:-1]]
    return _pattern(values).sub(lambda match: str(values[match[1]]), template)


def has_placeholder(template: Any, name: str) -> bool:
    """Whether a string of the template has a place for that value."""
    return _any_string(template, lambda text: f"{{{name}}}" in text)


def _any_string(template: Any, holds: Callable[[str], bool]) -> bool:
    if isinstance(template, Mapping):
        return any(_any_string(value, holds) for value in template.values())
    if isinstance(template, list):
        return any(_any_string(item, holds) for item in template)
    return isinstance(template, str) and holds(template)


def _pattern(values: Mapping[str, Any]) -> re.Pattern[str]:
    return re.compile(r"\{(" + "|".join(map(re.escape, values)) + r")\}")


def _child(value: Any, step: Step) -> Any:
    fits = isinstance(value, list) if isinstance(step, int) else isinstance(value, dict)
    if not fits:
        raise LookupError
    return value[step]


def _place(steps: list[Step]) -> str:
    return f"at {format_path(steps)!r} is" if steps else "it is"


def _found(value: Any) -> str:
    if isinstance(value, dict):
        keys = list(map(str, value))
        shown = ", ".join(keys[:10]) + (", …" if len(keys) > 10 else "")
        return f"an object with {shown}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "null" if value is None else f"a {type(value).__name__}"
