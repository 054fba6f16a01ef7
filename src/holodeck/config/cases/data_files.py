"""Files of test cases: YAML, CSV, JSON and JSON Lines inside the agent's folder."""

import csv
import io
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.cases.rows import (
    JsonSource,
    RenamedRow,
    Row,
    parse_json,
    parse_json_lines,
    set_key,
)
from holodeck.config.cases.written_cases import CASE_KEYS, Kind, value_kind
from holodeck.config.yaml.nodes import compose, parse_scalar
from holodeck.config.yaml.source import (
    KeyPath,
    NodeSource,
    Origin,
    Source,
    Substitute,
    display_path,
    find_file,
    read_file,
)
from holodeck.errors import ConfigError
from holodeck.lib.support.synonyms import did_you_mean_key
from holodeck.lib.support.text import did_you_mean_or_list, quote
from holodeck.models.agent import DataFile
from holodeck.models.test_case import PLACEHOLDER

logger = logging.getLogger(__name__)


def _records(text: str, name: str) -> list[tuple[int, list[str]]]:
    """Return the records that are not blank, each after the line where it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    records = []
    line = 1
    try:
        for record in reader:
            if record:
                records.append((line, record))
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "; write such cases as JSON Lines" if "field limit" in str(error) else ""
        raise ConfigError(f"{name}:{line}:1", f"cannot be read as CSV: {error}{hint}") from None
    if not records:
        raise ConfigError(f"{name}:1:1", "the file is empty; write a header such as 'input'")
    return records


def _header(record: list[str], name: str) -> list[str]:
    header = [cell.strip() for cell in record]
    location = f"{name}:1:1"
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise ConfigError(location, "found only one column; separate columns with commas")
    for number, column in enumerate(header, 1):
        if not column:
            raise ConfigError(location, f"column {number} has no name")
        if header.index(column) < number - 1:
            raise ConfigError(location, f"duplicate column {quote(column)}; rename one")
    return header


def _check_quotes(records: list[tuple[int, list[str]]], columns: int, text: str, name: str) -> None:
    """Raise ConfigError for an unclosed quotation mark that turns the rows below into one cell.

    Each line of such a cell has as many commas as a row, without blanks after them as in prose.
    Two short lines may still be text, so they are only a warning.
    """
    if columns == 1 or not any("\n" in cell for _, record in records for cell in record):
        return
    written = io.StringIO(text, newline="").readlines()
    for start, record in records:
        line = start
        for cell in record:
            last = line + cell.count("\n")
            rows = [row for row in written[line - 1 : last] if row.strip()]
            if len(rows) > 1 and all(_is_like_a_row(row, columns) for row in rows):
                location = f"{name}:{line}:{_column_of_quote(rows[0], cell)}"
                found = (
                    f"the quotation mark that opens here is closed on line {last}, and the text"
                    f" between looks like {len(rows)} rows"
                )
                if columns > 2 or len(rows) > 2:
                    hint = "close it; write text that looks like rows as JSON Lines"
                    raise ConfigError(location, f"{found}; {hint}")
                logger.warning("%s: %s", location, found)
            line = last


def _warn_of_empty_columns(
    records: list[list[str]], header: list[str], keys: Mapping[str, str | None], name: str
) -> None:
    """Log a warning for each column without a value, because its checks would be missing."""
    for number, column in enumerate(header):
        if keys[column] is not None and not any(record[number].strip() for record in records):
            logger.warning(
                "%s:1:1: the column %s has no value in any row; fill it in, or remove it",
                name,
                quote(column),
            )


def _column_of_quote(line: str, cell: str) -> int:
    """Return the column, from 1, where a cell of several lines begins."""
    begin = cell.partition("\n")[0].rstrip("\r").replace('"', '""')
    return max(0, line.rfind(f'"{begin}')) + 1


def _is_like_a_row(line: str, columns: int) -> bool:
    cells = line.rstrip("\r\n").split(",")
    return len(cells) == columns and not any(cell.startswith(" ") for cell in cells)


def _to_case(
    record: list[str], header: list[str], keys: Mapping[str, str | None], location: str
) -> dict[str, Any]:
    case: dict[str, Any] = {}
    for column, cell in zip(header, record, strict=True):
        key = keys[column]
        if key is None or not cell.strip():
            continue
        try:
            value = _value(cell, value_kind(key))
        except ValueError as error:  # a number of thousands of digits
            raise ConfigError(location, f"column {column!r}: {error}") from None
        except ConfigError as error:
            raise ConfigError(location, f"column {column!r}: {error.message}") from None
        set_key(case, key, value, location)
    return case


def _value(cell: str, kind: Kind) -> Any:
    if kind == "text":
        return cell
    written = cell.strip()
    # A placeholder begins like a mapping.
    if kind != "scalar" and written[0] in "[{" and not PLACEHOLDER.match(written):
        return parse_json(cell, "")
    if kind == "list":
        return [item for part in cell.split(",") if (item := part.strip())]
    return parse_scalar(written)


MAX_BYTES = 200_000_000
_YAML = (".yaml", ".yml")
SUFFIXES = (*_YAML, ".csv", ".jsonl", ".json")
NO_CASES = "expected a list with at least one test case"

LocatedCase = tuple[Any, Origin]
"""A case as written (a mapping if it is valid), and where it is."""


@dataclass(frozen=True)
class CaseFiles:
    """Reads the files of test cases that an agent.yaml names."""

    agent_file: Path
    substitute: Substitute
    """Replaces variables in the texts of YAML files, not of other data files."""
    read: set[Path] = field(default_factory=set)
    """The files that cases were read from."""
    doubtful: dict[Path, ConfigError] = field(default_factory=dict)
    """Files that seem to hold cases, each with the error to raise unless it is read."""

    def check_all_read(self) -> None:
        """Raise ConfigError for a file that seems to hold cases and was not read."""
        for path, error in self.doubtful.items():
            if path not in self.read:
                raise error

    @property
    def folder(self) -> Path:
        """The agent's folder, which must contain the files."""
        return self.agent_file.parent

    def find(self, name: str, start: Path, origin: Origin) -> Path:
        """Return the file at a path relative to the folder `start`. Raises ConfigError."""
        seen = Path(os.path.relpath(start, self.folder)) / name
        return find_file(seen, self.folder, str(origin))

    def read_yaml(self, path: Path) -> Source:
        """Read a YAML file. Raises ConfigError."""
        name = display_path(path)
        return Source(name, compose(read_file(path, name), name))

    def cases(self, data: DataFile, start: Path, origin: Origin) -> Iterator[LocatedCase]:
        """Yield the cases of a data file, each with its origin. Raises ConfigError."""
        path = self.find(data.file, start, origin)
        if path.suffix.lower() not in SUFFIXES:
            raise origin.error(
                f"unknown file type {quote(data.file)}; use {', '.join(SUFFIXES)}",
            )
        _check_keys(data, origin)
        self.read.add(path.resolve())
        if path.suffix.lower() == ".csv":
            cases = [(row.value, Origin(row, ())) for row in self._csv_rows(path, data, origin)]
        else:
            cases = _rename_rows(list(self._written_rows(path)), data, origin)
        if not cases:
            raise ConfigError(f"{display_path(path)}:1:1", NO_CASES)
        yield from cases

    def _csv_rows(self, path: Path, data: DataFile, origin: Origin) -> list[Row]:
        name = display_path(path)
        text = read_file(path, name, MAX_BYTES)
        first, *rows = _records(text, name)
        header = _header(first[1], name)
        keys = _column_keys(header, data, origin, f"{name}:1:1")
        for line, record in rows:
            if len(record) != len(header):
                raise ConfigError(
                    f"{name}:{line}:1",
                    f"found {len(record)} cells under {len(header)} columns;"
                    " put text with commas or line breaks in quotes",
                )
        _check_quotes(rows, len(header), text, name)
        _warn_of_empty_columns([record for _, record in rows], header, keys, name)
        return [
            Row(name, _to_case(record, header, keys, f"{name}:{line}:1"), line)
            for line, record in rows
        ]

    def _written_rows(self, path: Path) -> Iterator[LocatedCase]:
        """Yield the items of a file of YAML, JSON or JSON Lines."""
        name = display_path(path)
        source: NodeSource
        if path.suffix.lower() in _YAML:
            source = self.read_yaml(path)
            items = source.value(self.substitute)
        else:
            text = read_file(path, name, MAX_BYTES)
            if path.suffix.lower() == ".jsonl":
                for row in parse_json_lines(text, name):
                    yield _without_nulls(row.value), Origin(row, ())
                return
            source, items = JsonSource(name, text), parse_json(text, name)
            items = [_without_nulls(item) for item in items] if isinstance(items, list) else items
        if not isinstance(items, list):
            raise ConfigError(Origin(source, ()).location, NO_CASES)
        for index, item in enumerate(items):
            yield item, Origin(source, (index,))


def _check_keys(data: DataFile, origin: Origin) -> None:
    """Raise ConfigError unless each column is renamed to a key of its own that a case may have."""
    keys_of: dict[str, str] = {}
    for key, column in data.columns.items():
        at = origin.below("columns", key)
        if column in data.ignore:
            raise at.error(f"{quote(column)} is in 'ignore' too; remove one")
        first = keys_of.setdefault(column, key)
        if first != key:
            raise at.error(
                f"{quote(column)} is already read as {first!r}; remove one, or copy the column",
            )
        if not _is_case_key(key):
            raise at.error(f"unknown key {quote(key)} of a case{_hint(key)}")


def _is_case_key(key: str) -> bool:
    return key.partition(".")[0] in CASE_KEYS


def _hint(key: str) -> str:
    """Return which key of a case may be meant, or all of them."""
    return did_you_mean_key(key, CASE_KEYS, f"; known: {', '.join(CASE_KEYS)}")


def _column_keys(
    columns: list[str], data: DataFile, origin: Origin, location: str
) -> Mapping[str, str | None]:
    """Return the key of each column, or None for columns that are ignored."""
    _check_columns(columns, data, origin)
    renamed = {column: key for key, column in data.columns.items()}
    keys: dict[str, str | None] = {**{column: column for column in columns}, **renamed}
    keys |= dict.fromkeys(data.ignore)
    for column in columns:
        key = keys[column]
        if key is not None and not _is_case_key(key):
            raise ConfigError(
                location,
                f"unknown column {quote(column)}{_hint(column)}; or rename it with 'columns', or"
                " name it in 'ignore'",
            )
    return keys


def _check_columns(columns: list[str], data: DataFile, origin: Origin) -> None:
    wanted: list[tuple[KeyPath, str]]
    wanted = [(("columns", key), column) for key, column in data.columns.items()]
    wanted += [(("ignore", index), column) for index, column in enumerate(data.ignore)]
    for path, column in wanted:
        if column not in columns:
            raise origin.below(*path).error(
                f"the file has no column or key {quote(column)}"
                f"{did_you_mean_or_list(column, columns)}",
            )
    read = set(columns) - set(data.columns.values()) - set(data.ignore)
    for key in data.columns:
        if key in read:
            raise origin.below("columns", key).error(
                f"the file has a column or key {quote(key)} too; add it to 'ignore'",
            )


def _rename_rows(rows: list[LocatedCase], data: DataFile, origin: Origin) -> list[LocatedCase]:
    """Return the rows with the keys of cases, without the ignored keys."""
    if not (data.columns or data.ignore):
        return rows
    keys = dict.fromkeys(key for row, _ in rows if isinstance(row, dict) for key in row)
    _check_columns(list(keys), data, origin)
    renamed = {column: key for key, column in data.columns.items()}
    ignored = set(data.ignore)
    return [
        (
            _rename_row(row, renamed, ignored, origin) if isinstance(row, dict) else row,
            Origin(RenamedRow(at.source, at.path, data.columns), ()) if data.columns else at,
        )
        for row, at in rows
    ]


def _without_nulls(row: Any) -> Any:
    """Return a row of JSON without keys that are null, like empty cells of CSV."""
    is_mapping = isinstance(row, dict) and None in row.values()
    return {key: item for key, item in row.items() if item is not None} if is_mapping else row


def _rename_row(
    row: Mapping[str, Any], renamed: Mapping[str, str], ignored: set[str], origin: Origin
) -> dict[str, Any]:
    case: dict[str, Any] = {}
    for column, value in row.items():
        if column in ignored:
            continue
        if column in renamed:
            set_key(case, renamed[column], value, str(origin))
        elif column in case:
            raise origin.error(f"duplicate key {column!r}; remove one")
        else:
            case[column] = value
    return case
