"""Data files as rows that know their lines, without a tree of nodes for what nobody asks about."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holodeck.config.nodes import Node, compose
from holodeck.config.places import Written
from holodeck.config.source import Path_, Source
from holodeck.errors import ConfigError


@dataclass(frozen=True)
class Rows:
    """Rows of a file, each on a line of its own."""

    name: str
    """What messages call the file."""
    values: Sequence[Any]
    """As they were written."""
    lines: Sequence[int]

    def find(self, path: Path_) -> tuple[Path_, Node]:  # noqa: ARG002 - values are in rows
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

    def find(self, path: Path_) -> tuple[Path_, Node]:
        """The node at a path in the row, and its own path without parts that it does not have."""
        value, line = self.rows.values[self.index], self.rows.lines[self.index]
        if not path and isinstance(value, dict):  # the row itself, as a list asks of thousands
            return (), Node({}, line, 1)
        return Source(self.name, as_node(value, line)).find(path)


@dataclass(frozen=True, slots=True)
class Renamed:
    """A row of a file whose keys are called otherwise than those of cases."""

    source: Written
    at: Path_
    """Where the row is in its source."""
    columns: Mapping[str, str]
    """Key of a case → key in the file."""

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.source.name

    def find(self, path: Path_) -> tuple[Path_, Node]:
        """The node of a key, and its path in the file; parts that are not there are left out."""
        for end in range(len(path), 0, -1):
            column = self.columns.get(".".join(map(str, path[:end])))
            if column is not None:
                return self.source.find((*self.at, column, *path[end:]))
        return self.source.find((*self.at, *path))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half of a character, as JSON escapes it; but for these and tabs, JSON is YAML."""


class JsonText:
    """A JSON document; its places are looked for when the first one is asked for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text

    def find(self, path: Path_) -> tuple[Path_, Node]:
        """The node at a path, and its own path without parts that the file does not have."""
        return self._source.find(path)

    @cached_property
    def _source(self) -> Source:
        try:
            root = compose(_SURROGATE.sub(r"\\u0020", self._text), self.name)
        except ConfigError:
            root = Node(None, 1, 1)
        return Source(self.name, root)


def as_node(value: Any, line: int) -> Node:
    """A value all of which stands on one line."""
    if isinstance(value, dict):
        return Node({k: (Node(k, line, 1), as_node(v, line)) for k, v in value.items()}, line, 1)
    if isinstance(value, list):
        return Node([as_node(one, line) for one in value], line, 1)
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
