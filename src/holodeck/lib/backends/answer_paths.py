"""Paths into JSON documents, written as `a.b[0].c`, and templates with placeholders.

`backend.answer` says with paths where the parts of a response are.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.parsing import CALL_KEYS, NAME_KEYS, PASSAGE_KEYS, TEXT_KEYS
from holodeck.lib.support.text import instance_of, to_text
from holodeck.models.backend import HttpAnswerPaths, ItemPaths

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


_ANSWER = "backend.answer"
_KEYS = {"tool_calls": CALL_KEYS, "retrieval_context": PASSAGE_KEYS, "agents": ()}
"""The parts that are lists, and which keys of their items are read if those have no paths."""
_NEEDED = {"tool_calls": NAME_KEYS, "retrieval_context": TEXT_KEYS}
"""Keys of which an item needs one."""


class Events(list[Any]):
    """The JSON documents of a stream of server-sent events."""


class AnswerReader:
    """Makes of a JSON response the mapping that an agent in Python would return.

    Raises ConfigError for a malformed path.
    """

    def __init__(self, paths: HttpAnswerPaths) -> None:
        self._paths: dict[str, JsonPath] = {}
        self._items: dict[str, dict[str, JsonPath]] = {}
        """For the parts with paths in each item of their list: those paths."""
        for part, path in paths:
            setting = f"{_ANSWER}.{part}"
            if isinstance(path, ItemPaths):
                self._paths[part] = JsonPath.parse(path.path, f"{setting}.path")
                self._items[part] = {
                    key: JsonPath.parse(text, f"{setting}.{key}")
                    for key, text in path.parts.items()
                }
            elif path is not None:
                self._paths[part] = JsonPath.parse(path, setting)

    def read(self, document: Any) -> dict[str, Any]:
        """Return the mapping. Raises BackendSessionError where a path leads to something else."""
        error = self._error(document)
        if error:
            return {"error": error}
        answer: dict[str, Any] = {"response": self._text(document)}
        for part in filter(self._paths.__contains__, _KEYS):
            answer[part] = self._list(part, document)
        if answer.get("tool_calls", MISSING) is None and isinstance(document, Events):
            answer["tool_calls_problem"] = (
                f"no event of the response has {str(self._paths['tool_calls'])!r}; if that means"
                " that no tool was called, let 'backend.parse' say so"
            )
        if "model" in self._paths:
            answer["model"] = self._last("model", document)
        counts = {
            part: self._last(part, document)
            for part in ("prompt_tokens", "completion_tokens")
            if part in self._paths
        }
        return {**answer, "usage": counts} if counts else answer

    def _error(self, document: Any) -> Any:
        """Return why the agent failed; None if it did not."""
        path = self._paths.get("error")
        if path is None:
            return None
        documents = document if isinstance(document, Events) else [document]
        found = (path.find(part) for part in documents)
        return next((error for error in found if error and error is not MISSING), None)

    def _text(self, document: Any) -> str:
        path = self._paths["text"]
        texts = [text for text in self._values(path, document) if text is not None]
        if not texts or not all(isinstance(text, str) for text in texts):
            other = next((text for text in texts if not isinstance(text, str)), None)
            raise BackendSessionError(
                f"the answer's text ({path.setting}) is {describe_json(other)};"
                " write the path of a text"
            )
        return "".join(texts)

    def _last(self, part: str, document: Any) -> Any:
        return self._values(self._paths[part], document)[-1]

    def _values(self, path: JsonPath, document: Any) -> list[Any]:
        """Return the value at the path, or in a stream that of each event that has it."""
        if not isinstance(document, Events):
            return [path.value_in(document)]
        values = [value for event in document if (value := path.find(event)) is not MISSING]
        if not values:
            first = f"; the first is {describe_json(document[0])}" if document else ""
            raise BackendSessionError(
                f"none of the {len(document)} events of the answer has {str(path)!r}{first};"
                f" write in '{path.setting}' where it is"
            )
        return values

    def _list(self, part: str, document: Any) -> list[Any] | None:
        """Return the items of a part; None if they are unknown.

        A stream in which no event has them does not say that there are none.
        """
        path = self._paths[part]
        if isinstance(document, Events):
            found = [path.find(event) for event in document]
            values = [value for value in found if value is not MISSING and value is not None]
            lists = [value if isinstance(value, list) else [value] for value in values]
            items = list(chain.from_iterable(lists)) if lists else None
        else:
            items = path.value_in(document)
        if items is None:
            return None
        if not isinstance(items, list):
            raise _wrong_type(path, "the answer", items, "a list")
        return [self._item(part, item, f"{path}[{at}]") for at, item in enumerate(items)]

    def _item(self, part: str, item: Any, name: str) -> Any:
        """Return an item with the keys that agents in Python write."""
        paths, needed = self._items.get(part), _NEEDED.get(part, ())
        if paths is None:
            if not isinstance(item, Mapping) or not needed:
                return item
            if not any(key in item for key in needed):
                raise BackendSessionError(
                    f"{name} has no {needed[0]!r}: it is {describe_json(item)}; write"
                    f" '{_ANSWER}.{part}: {{path: …, {needed[0]}: …}}' with the paths in each item"
                )
            return {key: item[key] for key in _KEYS[part] if key in item}
        error = paths["error"].find(item) if "error" in paths else None
        has_failed = bool(error) and error is not MISSING
        of_outcome = {"error": has_failed, "result": not has_failed}
        read = {
            key: path.value_in(item, name)
            for key, path in paths.items()
            if of_outcome.get(key, True)
        }
        arguments = read.get("arguments")
        if not isinstance(arguments, dict | str | None):
            raise _wrong_type(paths["arguments"], name, arguments, "an object, or of its JSON")
        return read


def _wrong_type(path: JsonPath, name: str, value: Any, expected: str) -> BackendSessionError:
    return BackendSessionError(
        f"{str(path)!r} of {name} is {describe_json(value)}; write in '{path.setting}' the path of"
        f" {expected}"
    )
