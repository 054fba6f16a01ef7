"""Rows and JSON documents with their locations, and the earlier messages that a file contains."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holodeck.config.yaml.nodes import Node, compose
from holodeck.config.yaml.source import (
    KeyPath,
    Locations,
    NodeSource,
    Origin,
    Source,
    find_file,
    location_of,
    read_file,
)
from holodeck.config.yaml.validation_errors import config_error
from holodeck.errors import ConfigError
from holodeck.lib.support.text import quote, unique_keys
from holodeck.models.agent import Agent
from holodeck.models.cases.messages import EarlierMessage, Messages, TranscriptFile


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file, and the line where it begins."""

    name: str
    """The file's name in messages."""
    value: Any
    """The row as it is written."""
    line: int

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """Return the node at a path in the row, and its path without parts that are missing."""
        if not path and isinstance(self.value, dict):  # fast path for lists of thousands of rows
            return (), Node({}, self.line, 1)
        return Source(self.name, to_node(self.value, self.line)).find(path)


@dataclass(frozen=True, slots=True)
class RenamedRow:
    """A row whose keys have other names than those of cases."""

    source: NodeSource
    at: KeyPath
    """The path of the row in its source."""
    columns: Mapping[str, str]
    """Key of a case → key in the file."""

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return self.source.name

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """Return the node of a key, and its path in the file without parts that are missing."""
        for end in range(len(path), 0, -1):
            column = self.columns.get(".".join(map(str, path[:end])))
            if column is not None:
                return self.source.find((*self.at, column, *path[end:]))
        return self.source.find((*self.at, *path))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half of a surrogate pair in JSON; apart from these and tabs, JSON is valid YAML."""


class JsonSource:
    """A JSON document; it is parsed for locations when they are needed."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """Return the node at a path, and its path without parts that the file does not have."""
        return self._source.find(path)

    @cached_property
    def _source(self) -> Source:
        try:
            root = compose(_SURROGATE.sub(r"\\u0020", self._text), self.name)
        except ConfigError:
            root = Node(None, 1, 1)
        return Source(self.name, root)


def to_node(value: Any, line: int) -> Node:
    """Return the node of a value whose parts are all on the same line."""
    if isinstance(value, dict):
        return Node({k: (Node(k, line, 1), to_node(v, line)) for k, v in value.items()}, line, 1)
    if isinstance(value, list):
        return Node([to_node(item, line) for item in value], line, 1)
    return Node(value, line, 1)


def set_key(case: dict[str, Any], key: str, value: Any, location: str) -> None:
    """Set a key of a case, also inside a mapping (`context.user`). Raises ConfigError."""
    inner: Any = case
    *above, last = key.split(".")
    for part in above:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(location, f"{key!r} needs a mapping, but {part!r} is not one")
    if last in inner:
        raise ConfigError(location, f"duplicate key {key!r}; remove one")
    inner[last] = value


def parse_json_lines(text: str, name: str) -> list[Row]:
    """Parse JSON Lines into rows; blank lines are skipped. Raises ConfigError."""
    return [
        Row(name, parse_json(line, name, number), number)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


def parse_json(text: str, name: str, line: int = 1) -> Any:
    """Parse JSON text that begins on `line`. Raises ConfigError with the location."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        location = f"{name}:{line + error.lineno - 1}:{error.colno}"
        raise ConfigError(location, f"cannot be read as JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{name}:{line}:1", "nested too deeply") from None
    except ValueError as error:
        offset, message = _find_error(text) or (0, str(error))
        line += text.count("\n", 0, offset)
        column = offset - text.rfind("\n", 0, offset)
        raise ConfigError(f"{name}:{line}:{column}", f"cannot be read as JSON: {message}") from None


def _find_error(text: str) -> tuple[int, str] | None:
    """Return offset and description of the first duplicate key or invalid value."""
    keys: list[set[str] | None] = []
    """For each collection around the token: the keys of a mapping so far, or None for a list."""
    expects_key = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        try:
            if word in "{[":
                keys.append(set() if word == "{" else None)
            elif word in "}]":
                keys.pop()
            elif word[0] == '"' and expects_key and keys and keys[-1] is not None:
                key = json.loads(word)
                if key in keys[-1]:
                    return token.start(), f"duplicate key {quote(key)}; remove one"
                keys[-1].add(key)
            elif word not in ",:" and word[0] != '"':
                _DECODER.decode(word)
        except (ValueError, IndexError) as error:
            return token.start(), str(error)
        expects_key = word in "{,"
    return None


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON; write a number or null")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {quote(text)} is too large")
    return number


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DECODER = json.JSONDecoder(
    object_pairs_hook=unique_keys, parse_constant=_constant, parse_float=_number
)


SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
_HISTORY: TypeAdapter[list[EarlierMessage]] = TypeAdapter(
    Messages, config=ConfigDict(defer_build=True)
)


def load_history(agent: Agent, index: int) -> Sequence[EarlierMessage]:
    """Return the messages before the case with this index; empty for a new conversation.

    Raises FileNotFoundError, or ConfigError with the location in the transcript.
    """
    history = (agent.test_cases or [])[index].history
    if not isinstance(history, TranscriptFile):
        return history or ()
    location = location_of(agent, "test_cases", index, "history", "file")
    path = find_file(history.file, agent.base_dir, location)
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            location, f"unknown file type {history.file!r}; use {', '.join(SUFFIXES)}"
        )
    return _load(path, history, location)


def _load(path: Path, history: TranscriptFile, location: str) -> list[EarlierMessage]:
    """Return the messages of a file; variables are not substituted."""
    try:
        rows = _read_transcript(path, history.file)
        kept = [
            (message, at)
            for message, at in rows
            if not (isinstance(message, dict) and message.get("role") in history.leave_out)
        ]
        try:
            return _HISTORY.validate_python([message for message, _ in kept])
        except ValidationError as error:
            first = Source(history.file, Node(None, 1, 1))
            locations = Locations(first, [at for _, at in kept])
            raise config_error(error, locations, EarlierMessage, ("test_cases",)) from None
    except ConfigError as error:
        raise ConfigError(location, str(error)) from error


def _read_transcript(path: Path, name: str) -> list[tuple[Any, Origin]]:
    """Return the messages of a file, each with its origin."""
    text = read_file(path, name)
    source: NodeSource
    if path.suffix == ".jsonl":
        rows = parse_json_lines(text, name)
        values = [row.value for row in rows]
        source = Source(name, Node([to_node(row.value, row.line) for row in rows], 1, 1))
    elif path.suffix == ".json":
        source, values = JsonSource(name, text), parse_json(text, name)
    else:
        source = Source(name, compose(text, name))
        values = source.value()
    if not isinstance(values, list):
        raise ConfigError(f"{name}:1:1", "expected a list of messages")
    return [(value, Origin(source, (index,))) for index, value in enumerate(values)]
