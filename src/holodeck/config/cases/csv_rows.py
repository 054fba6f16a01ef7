"""Cases in CSV: a header with the keys, a row for each case."""

import csv
import io
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from holodeck.config.cases.json_rows import parsed
from holodeck.config.cases.kinds import Kind, kind_of
from holodeck.config.cases.placeholders import PLACEHOLDER
from holodeck.config.cases.rows import Rows, put
from holodeck.config.nodes import plain_value, short
from holodeck.errors import ConfigError


def csv_rows(text: str, name: str, keys: Mapping[str, str | None]) -> Rows:
    """A row for each record; `keys` maps a column to its key, None for one that is not read.

    Raises ConfigError.
    """
    records = _records(text, name)
    first = next(records, None)
    if first is None:
        raise ConfigError(f"{name}:1:1", "the file is empty; write a header such as 'input'")
    header = _header(first[1], name)
    found = [(line, _checked(record, header, f"{name}:{line}:1")) for line, record in records]
    values = [_case(record, header, keys, name, line) for line, record in found]
    return Rows(name, values, [line for line, _ in found])


def columns_of(text: str, name: str) -> list[str]:
    """The names in the header. Raises ConfigError."""
    _, first = next(_records(text, name), (1, []))
    return _header(first, name)


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, and the line it begins on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "; write such cases as JSON Lines" if "field limit" in str(error) else ""
        raise ConfigError(f"{name}:{line}:1", f"cannot be read as CSV: {error}{hint}") from None


def _header(record: list[str], name: str) -> list[str]:
    header = [one.strip() for one in record]
    place = f"{name}:1:1"
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise ConfigError(place, "there is one column only; separate columns with commas")
    for number, column in enumerate(header, 1):
        if not column:
            raise ConfigError(place, f"column {number} has no name")
        if header.index(column) < number - 1:
            raise ConfigError(place, f"two columns are called {short(column)}; rename one")
    return header


def _checked(record: list[str], header: list[str], place: str) -> list[str]:
    if len(record) != len(header):
        raise ConfigError(
            place,
            f"found {len(record)} cells under {len(header)} columns;"
            " put text with commas or line breaks in quotes",
        )
    return record


def _case(
    record: list[str], header: list[str], keys: Mapping[str, str | None], name: str, line: int
) -> dict[str, Any]:
    case: dict[str, Any] = {}
    for column, cell in zip(header, record, strict=True):
        key = keys[column]
        if key is None or not cell.strip():
            continue
        try:
            value = _value(cell, _kind(key), f"{name}:{line}", column)
        except ValueError as error:  # a number of thousands of digits
            raise ConfigError(f"{name}:{line}:1", f"column {column!r}: {error}") from None
        put(case, key, value, f"{name}:{line}:1")
    return case


@cache
def _kind(key: str) -> Kind:
    return kind_of(key)


def _is_json(cell: str) -> bool:
    """Whether a cell of lists or mappings says so; a placeholder begins like a mapping."""
    return cell[0] in "[{" and not PLACEHOLDER.match(cell)


def _value(cell: str, kind: Kind, place: str, column: str) -> Any:
    if kind == "text":
        return cell
    if kind == "scalar":
        return plain_value(cell.strip())
    if _is_json(cell.strip()):
        try:
            return parsed(cell, column)
        except ConfigError as error:
            raise ConfigError(f"{place}:1", f"column {column!r}: {error.message}") from None
    if kind == "list":
        return [part for one in cell.split(",") if (part := one.strip())]
    return plain_value(cell.strip())
