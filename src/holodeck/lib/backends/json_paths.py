"""Paths into JSON documents, written as `a.b[0].c`, and templates with placeholders."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.support.text import instance_of, to_text

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")

Step = str | int


MISSING: Any = object()


@dataclass(frozen=True)
class JsonPath:
    """A path, and the setting that it is written in."""

    setting: str
    """Such as `backend.answer.text`."""
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str, setting: str) -> "JsonPath":
        """Return the path that a text says. Raises ConfigError for a malformed one."""
        steps: list[Step] = []
        position = 0
        for match in _STEP.finditer(text):
            if match.start() != position:
                break
            steps.append(match[1] if match[1] is not None else int(match[2]))
            position = match.end()
        if position != len(text) or not steps:
            message = f"{text!r} is not a path such as 'choices[0].message.content'"
            raise ConfigError(setting, message)
        return cls(setting, tuple(steps))

    def __str__(self) -> str:
        return format_path(self.steps)

    def find(self, document: Any) -> Any:
        """Return the value at the path; MISSING if there is none."""
        try:
            return self.value_in(document)
        except BackendSessionError:
            return MISSING

    def value_in(self, document: Any, name: str = "the answer") -> Any:
        """Return the value at the path. Raises BackendSessionError, which says what is there."""
        value = document
        for i, step in enumerate(self.steps):
            if isinstance(step, int):
                exists = isinstance(value, list) and step < len(value)
            else:
                exists = isinstance(value, dict) and step in value
            if not exists:
                place = f"{format_path(self.steps[:i])!r} is" if i else "it is"
                raise BackendSessionError(
                    f"{name} has no {str(self)!r}: {place} {describe_json(value)}; write in"
                    f" '{self.setting}' where it is"
                )
            value = value[step]
        return value


def format_path(steps: Sequence[Step]) -> str:
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
    return "".join(parts).removeprefix(".")


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template with `{name}` in its strings replaced by the value of that name.

    A string that is just `{name}` becomes the value itself, whatever its type; inside a longer
    string, what is no text becomes JSON. Inserted values are not searched for placeholders.
    """
    if isinstance(template, Mapping):
        return {key: fill_template(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_template(item, values) for item in template]
    if not isinstance(template, str):
        return template
    if template[:1] == "{" and template[1:-1] in values and template[-1] == "}":
        return values[template[1:-1]]
    placeholder = re.compile(r"\{(" + "|".join(map(re.escape, values)) + r")\}")
    return placeholder.sub(lambda match: to_text(values[match[1]]), template)


def describe_json(value: Any) -> str:
    """Return what a JSON value is, without what is in it."""
    if isinstance(value, dict):
        keys = list(map(str, value))
        shown = ", ".join(keys[:10]) + (", …" if len(keys) > 10 else "")
        return f"an object with {shown}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "null" if value is None else instance_of(value)
