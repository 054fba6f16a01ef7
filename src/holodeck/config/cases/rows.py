"""Data files as rows that know their lines, without a tree of nodes for what nobody asks about."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holodeck.config.source import KeyPath, NodeSource, Source
from holodeck.config.yaml_nodes import Node, compose, quote
from holodeck.errors import ConfigError


@dataclass(frozen=True)
class Rows:
    """Rows of a file, each on a line of its own."""

    name: str
    """What messages call the file."""
    values: Sequence[Any]
    """As they were written."""
    lines: Sequence[int]

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:  # noqa: ARG002 - values are in rows
        """The beginning of the file."""
        return (), Node(None, 1, 1)


@dataclass(frozen=True, slots=True)
class Row:
    """One of the rows, whose values are found in it."""

    rows: Rows
    index: int

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.rows.name

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """The node at a path in the row, and its own path without parts that it does not have."""
        value, line = self.rows.values[self.index], self.rows.lines[self.index]
        if not path and isinstance(value, dict):  # the row itself, as a list asks of thousands
            return (), Node({}, line, 1)
        return Source(self.name, to_node(value, line)).find(path)


@dataclass(frozen=True, slots=True)
class RenamedRow:
    """A row of a file whose keys are called otherwise than those of cases."""

    source: NodeSource
    at: KeyPath
    """Where the row is in its source."""
    columns: Mapping[str, str]
    """Key of a case → key in the file."""

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.source.name

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """The node of a key, and its path in the file; parts that are not there are left out."""
        for end in range(len(path), 0, -1):
            column = self.columns.get(".".join(map(str, path[:end])))
            if column is not None:
                return self.source.find((*self.at, column, *path[end:]))
        return self.source.find((*self.at, *path))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half of a character, as JSON escapes it; but for these and tabs, JSON is YAML."""


class JsonSource:
    """A JSON document; its places are looked for when the first one is asked for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """The node at a path, and its own path without parts that the file does not have."""
        return self._source.find(path)

    @cached_property
    def _source(self) -> Source:
        try:
            root = compose(_SURROGATE.sub(r"\\u0020", self._text), self.name)
        except ConfigError:
            root = Node(None, 1, 1)
        return Source(self.name, root)


def to_node(value: Any, line: int) -> Node:
    """A value all of which stands on one line."""
    if isinstance(value, dict):
        return Node({k: (Node(k, line, 1), to_node(v, line)) for k, v in value.items()}, line, 1)
    if isinstance(value, list):
        return Node([to_node(one, line) for one in value], line, 1)
    return Node(value, line, 1)


def set_key(case: dict[str, Any], key: str, value: Any, place: str) -> None:
    """Set a key of a case, which may stand in a mapping (`context.user`). Raises ConfigError."""
    inner: Any = case
    *above, last = key.split(".")
    for part in above:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(place, f"{key!r} needs a mapping, and {part!r} is none")
    if last in inner:
        raise ConfigError(place, f"{key!r} is there twice; remove one")
    inner[last] = value


def parse_json_lines(text: str, name: str) -> Rows:
    """A row for each line that is not blank. Raises ConfigError."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = [parse_json(line, name, number) for number, line in lines]
    return Rows(name, values, [number for number, _ in lines])


def parse_json_document(text: str, name: str) -> tuple[JsonSource, Any]:
    """The document and what it holds. Raises ConfigError."""
    return JsonSource(name, text), parse_json(text, name)


def parse_json(text: str, name: str, line: int = 1) -> Any:
    """The value that JSON text holds, which begins on `line`. Raises ConfigError."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"{name}:{line + error.lineno - 1}:{error.colno}"
        raise ConfigError(place, f"cannot be read as JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{name}:{line}:1", "nested too deeply") from None
    except ValueError as error:
        offset, message = _first_fault(text) or (0, str(error))
        line += text.count("\n", 0, offset)
        column = offset - text.rfind("\n", 0, offset)
        raise ConfigError(f"{name}:{line}:{column}", f"cannot be read as JSON: {message}") from None


def _first_fault(text: str) -> tuple[int, str] | None:
    """Where the first key is that is there twice, or value that is not JSON, and what is wrong."""
    keys: list[set[str] | None] = []
    """Of each mapping around the token its keys until then; of a list None."""
    expects_key = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        try:
            if word in "{[":
                keys.append(set() if word == "{" else None)
            elif word in "}]":
                keys.pop()
            elif word[0] == '"' and expects_key and keys and keys[-1] is not None:
                _add_key(json.loads(word), keys[-1])
            elif word not in ",:" and word[0] != '"':
                _DECODER.decode(word)
        except (ValueError, IndexError) as error:
            return token.start(), str(error)
        expects_key = word in "{,"
    return None


def _add_key(key: str, keys: set[str]) -> None:
    if key in keys:
        raise ValueError(f"the key {quote(key)} is there twice; remove one")
    keys.add(key)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            _add_key(key, keys)
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; write a number or null")


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{quote(text)} is too large a number")
    return found


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_constant=_constant, parse_float=_number
)
