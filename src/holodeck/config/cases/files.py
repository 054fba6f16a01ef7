"""The files that cases come from: found inside the agent's folder, read by their suffix."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.cases.csv_rows import header_columns, read_csv_rows
from holodeck.config.cases.json_rows import json_document, json_lines
from holodeck.config.cases.rows import Renamed, Row, Rows, set_key
from holodeck.config.cases.value_kinds import case_keys
from holodeck.config.files import inside
from holodeck.config.nodes import compose, short
from holodeck.config.places import Origin, Written
from holodeck.config.reading import read_bytes
from holodeck.config.source import Change, Path_, Source, dotted, shown
from holodeck.config.syntax import decode
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.models.suite import DataFile

MAX_BYTES = 200_000_000
YAML = (".yaml", ".yml")
SUFFIXES = (*YAML, ".csv", ".jsonl", ".json")

Case = tuple[Any, Origin]
"""A case as it was written, a mapping if it is right, and where that is."""


@dataclass(frozen=True)
class Files:
    """Reads the files that an agent.yaml names."""

    agent_file: Path
    change: Change
    """Puts variables into the texts of YAML files; data is taken word for word."""
    read: set[Path] = field(default_factory=set)
    """The files that cases were read from."""
    doubtful: dict[Path, ConfigError] = field(default_factory=dict)
    """Files beside them that hold cases too, and what is wrong with each unless it is read."""

    def check_all_read(self) -> None:
        """Raise ConfigError for a file with cases that nothing has read."""
        for path, error in self.doubtful.items():
            if path not in self.read:
                raise error

    @property
    def folder(self) -> Path:
        """The agent's folder, which no file may lie outside of."""
        return self.agent_file.parent

    def find(self, name: str, start: Path, origin: Origin) -> Path:
        """The file that a path means, seen from the folder `start`. Raises ConfigError."""
        seen = Path(os.path.relpath(start, self.folder)) / name
        return inside(seen, self.folder, in_words(origin))

    def read_yaml(self, path: Path) -> Source:
        """A YAML file. Raises ConfigError."""
        name = shown(path)
        return Source(name, compose(decode(read_bytes(path, name), name), name))

    def cases(self, data: DataFile, start: Path, origin: Origin) -> Iterator[Case]:
        """The cases of a data file, each with its origin. Raises ConfigError."""
        path = self.find(data.file, start, origin)
        if path.suffix.lower() not in SUFFIXES:
            raise ConfigError(
                in_words(origin), f"{short(data.file)} ends in none of {', '.join(SUFFIXES)}"
            )
        _check_keys(data, origin)
        self.read.add(path.resolve())
        source, rows = self._rows(path, data, origin)
        if not isinstance(rows, list) or not rows:
            place = Origin(source, ()).place
            raise ConfigError(place, "wanted a list of test cases with at least one in it")
        is_renamed = bool(data.columns) and path.suffix.lower() != ".csv"  # which is, on reading
        for index, row in enumerate(rows):
            origin = Origin(source, (index,))
            if isinstance(source, Rows):
                origin = Origin(Row(source, index), ())
            if is_renamed:
                origin = Origin(Renamed(origin.source, origin.path, data.columns), ())
            yield row, origin

    def _rows(self, path: Path, data: DataFile, origin: Origin) -> tuple[Written, Any]:
        suffix = path.suffix.lower()
        if suffix in YAML:
            source = self.read_yaml(path)
            return source, _renamed(source.value(self.change), data, origin)
        name = shown(path)
        text = decode(read_bytes(path, name, MAX_BYTES), name)
        if suffix == ".csv":
            rows = read_csv_rows(
                text, name, _keys(header_columns(text, name), data, origin, f"{name}:1:1")
            )
            return rows, rows.values
        if suffix == ".jsonl":
            rows = json_lines(text, name)
            return rows, _renamed(_without_nulls(rows.values), data, origin)
        document, value = json_document(text, name)
        return document, _renamed(_without_nulls(value), data, origin)


def in_words(origin: Origin) -> str:
    """Place and path of a value, to open a message with."""
    return f"{origin.place}: {dotted(origin.path)}" if origin.path else origin.place


def _check_keys(data: DataFile, origin: Origin) -> None:
    """Every key that a column is renamed to is one that a case may have, and gets it alone."""
    known = case_keys()
    keys_of: dict[str, str] = {}
    for key, column in data.columns.items():
        at = origin.below("columns", key)
        if column in data.ignore:
            raise ConfigError(in_words(at), f"{short(column)} is in 'ignore' as well; remove one")
        first = keys_of.setdefault(column, key)
        if first != key:
            raise ConfigError(
                in_words(at),
                f"{short(column)} is {first!r} already, and a column is read once; remove one, or"
                " copy the column",
            )
        if key.partition(".")[0] not in known:
            raise ConfigError(
                in_words(at), f"{short(key)} is no key of a case{did_you_mean_or_list(key, known)}"
            )


def _keys(
    columns: list[str], data: DataFile, origin: Origin, place: str
) -> Mapping[str, str | None]:
    """The key that each column of a table is, None for those that are not read."""
    _check_columns(columns, data, origin)
    known = case_keys()
    renamed = {column: key for key, column in data.columns.items()}
    keys: dict[str, str | None] = {**{one: one for one in columns}, **renamed}
    keys |= dict.fromkeys(data.ignore)
    for column in columns:
        key = keys[column]
        if key is not None and key.partition(".")[0] not in known:
            raise ConfigError(
                place,
                f"the column {short(column)} is no key of a case"
                f"{did_you_mean_or_list(column, known)}; or rename it with 'columns', or name it in"
                " 'ignore'",
            )
    return keys


def _check_columns(columns: list[str], data: DataFile, origin: Origin) -> None:
    wanted: list[tuple[Path_, str]]
    wanted = [(("columns", key), column) for key, column in data.columns.items()]
    wanted += [(("ignore", index), column) for index, column in enumerate(data.ignore)]
    for path, column in wanted:
        if column not in columns:
            raise ConfigError(
                in_words(origin.below(*path)),
                f"the file has nothing called {short(column)}"
                f"{did_you_mean_or_list(column, columns)}",
            )
    read = set(columns) - set(data.columns.values()) - set(data.ignore)
    for key in data.columns:
        if key in read:
            raise ConfigError(
                in_words(origin.below("columns", key)),
                f"the file has something called {short(key)} as well; name it in 'ignore'",
            )


def _renamed(rows: Any, data: DataFile, origin: Origin) -> Any:
    """Rows that are mappings, under the keys of cases; without the keys that are not read."""
    if not isinstance(rows, list) or not (data.columns or data.ignore):
        return rows
    keys = dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row)
    _check_columns(list(keys), data, origin)
    renamed = {column: key for key, column in data.columns.items()}
    left_out = set(data.ignore)
    return [_row(row, renamed, left_out, origin) if isinstance(row, dict) else row for row in rows]


def _without_nulls(rows: Any) -> Any:
    """Rows of JSON without keys that are null, which say what an empty cell of CSV says."""
    if not isinstance(rows, list):
        return rows
    return [
        {key: value for key, value in row.items() if value is not None}
        if isinstance(row, dict) and None in row.values()
        else row
        for row in rows
    ]


def _row(
    row: Mapping[str, Any], renamed: Mapping[str, str], left_out: set[str], origin: Origin
) -> dict[str, Any]:
    case: dict[str, Any] = {}
    for column, value in row.items():
        if column in left_out:
            continue
        if column in renamed:
            set_key(case, renamed[column], value, in_words(origin))
        elif column in case:
            raise ConfigError(in_words(origin), f"{column!r} is there twice; remove one")
        else:
            case[column] = value
    return case
