"""Cases in CSV: a header with the keys, a row for each case."""

import csv
import io
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from holodeck.config.cases.json_rows import parsed
from holodeck.config.cases.placeholders import PLACEHOLDER
from holodeck.config.cases.rows import Rows, set_key
from holodeck.config.cases.value_kinds import Kind, value_kind
from holodeck.config.nodes import plain_value, short
from holodeck.errors import ConfigError

logger = logging.getLogger(__name__)


def read_csv_rows(text: str, name: str, keys: Mapping[str, str | None]) -> Rows:
    """A row for each record; `keys` maps a column to its key, None for one that is not read.

    Raises ConfigError.
    """
    records = _records(text, name)
    first = next(records, None)
    if first is None:
        raise ConfigError(f"{name}:1:1", "the file is empty; write a header such as 'input'")
    header = _header(first[1], name)
    found = [(line, _checked(record, header, f"{name}:{line}:1")) for line, record in records]
    _check_quotes(found, len(header), text, name)
    _warn_of_empty_columns([record for _, record in found], header, keys, name)
    values = [_case(record, header, keys, name, line) for line, record in found]
    return Rows(name, values, [line for line, _ in found])


def header_columns(text: str, name: str) -> list[str]:
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


def _check_quotes(records: list[tuple[int, list[str]]], columns: int, text: str, name: str) -> None:
    """Raise ConfigError for a quotation mark that swallows the rows below it.

    Each line of such a cell has as many commas as a row; prose differs by the blanks behind its
    commas. Two short lines may be text all the same, and are a warning.
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
                place = f"{name}:{line}:{_column_of_quote(rows[0], cell)}"
                found = (
                    f"the quotation mark that opens here is closed on line {last} only, and what"
                    f" stands between looks like {len(rows)} rows"
                )
                if columns > 2 or len(rows) > 2:
                    hint = "close it; write text that looks like rows as JSON Lines"
                    raise ConfigError(place, f"{found}; {hint}")
                logger.warning("%s: %s", place, found)
            line = last


def _warn_of_empty_columns(
    records: list[list[str]], header: list[str], keys: Mapping[str, str | None], name: str
) -> None:
    """Tell of columns that say nothing in any row, whose checks nobody would miss."""
    for number, column in enumerate(header):
        if keys[column] is not None and not any(record[number].strip() for record in records):
            logger.warning(
                "%s:1:1: the column %s has no value in any row; fill it, or remove it",
                name,
                short(column),
            )


def _column_of_quote(line: str, cell: str) -> int:
    """Where in its first line a cell of several lines opens, counted from 1."""
    begin = cell.partition("\n")[0].rstrip("\r").replace('"', '""')
    return max(0, line.rfind(f'"{begin}')) + 1


def _is_like_a_row(line: str, columns: int) -> bool:
    cells = line.rstrip("\r\n").split(",")
    return len(cells) == columns and not any(cell.startswith(" ") for cell in cells)


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
        set_key(case, key, value, f"{name}:{line}:1")
    return case


@cache
def _kind(key: str) -> Kind:
    return value_kind(key)


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
