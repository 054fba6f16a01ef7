"""Slips in CSV files: cells, columns, rows, quoting and separators."""

import csv
import io
from collections.abc import Iterator

from mutants.node_operators import Slip, misspellings


def csv_slips(text: str) -> Iterator[Slip]:
    """Every slip at a cell, a column or a row."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    yield from _columns(text, rows)
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            for operator, new in _cells(cell, rows[0][column], is_header=not number):
                changed = [list(one) for one in rows]
                changed[number][column] = new
                yield f"cell: {operator}", _start(text, number), _written(changed)
            yield from _raw(text, number, cell)
        yield from _rows(text, rows, number)


def _columns(text: str, rows: list[list[str]]) -> Iterator[Slip]:
    for column in range(len(rows[0])):
        without = [row[:column] + row[column + 1 :] for row in rows]
        yield "column: delete", 0, _written(without)
        yield (
            "column: empty",
            0,
            _written([rows[0], *([*row[:column], "", *row[column + 1 :]] for row in rows[1:])]),
        )
        twice = [row[: column + 1] + row[column:] for row in rows]
        yield "column: twice", 0, _written(twice)
        if column + 1 < len(rows[0]):
            headers = list(rows[0])
            headers[column : column + 2] = reversed(headers[column : column + 2])
            yield "column: swap two headers", 0, _written([headers, *rows[1:]])
    for operator, delimiter in {
        "semicolons": ";",
        "tabs": "\t",
        "bars": "|",
        "colons": ":",
    }.items():
        yield f"separator: {operator}", 0, _written(rows, delimiter)
    yield "separator: blank after the comma", 0, text.replace(",", ", ")
    yield "quotes: apostrophes", 0, text.replace('"', "'")
    yield "quotes: backslashes", 0, text.replace('"', '\\"')
    yield "quotes: typographic", 0, text.replace('"', "“")
    yield "quotes: everything", 0, _written(rows, quoting=csv.QUOTE_ALL)
    yield "separator: named first", 0, f"sep=,\n{text}"


def _cells(cell: str, header: str, *, is_header: bool) -> Iterator[tuple[str, str]]:
    if is_header:
        yield from ((f"header {how}", new) for how, new in misspellings(cell))
        yield "header trailing blank", f"{cell} "
        yield "header leading blank", f" {cell}"
        yield "header empty", ""
        yield "header quoted twice", f'"{cell}"'
        yield "header of two", f"{cell},{header}"
        return
    yield "empty", ""
    yield "blank", " "
    yield "null", "null"
    yield "none", "None"
    yield "n/a", "N/A"
    yield "hyphen", "-"
    yield "trailing blank", f"{cell} "
    yield "leading blank", f" {cell}"
    yield "newline", f"{cell}\n"
    yield "quoted twice", f'"{cell}"'
    yield "semicolon and more", f"{cell};other"
    yield "semicolons for commas", cell.replace(",", ";")
    yield "bars for commas", cell.replace(",", "|")
    yield "blanks for commas", cell.replace(",", " ")
    yield "broken list", f"[{cell}"
    yield "list without quotes", f"[{cell}]"
    yield "list with apostrophes", f"['{cell}']"
    yield "wildcard", f"{cell[: len(cell) // 2]}*"
    yield "placeholder", "{{name}}"
    yield "upper case", cell.upper()
    yield "formula", f"={cell}"
    yield "trailing comma", f"{cell},"
    yield "no-break space", f"{cell}\u00a0"


def _raw(text: str, number: int, cell: str) -> Iterator[Slip]:
    """Quotes that the writer of a file puts in by hand."""
    start = _start(text, number)
    line = text.splitlines(keepends=True)[number]
    if not cell or cell not in line:
        return
    for operator, new in {"no quote before": f'{cell}"', "no quote after": f'"{cell}'}.items():
        changed = line.replace(f'"{cell}"', new, 1)
        yield f"raw: {operator}", start, text[:start] + changed + text[start + len(line) :]
    for operator, new in {
        "quote before a cell": f'"{cell}',
        "quote after a cell": f'{cell}"',
        "quote inside": f'{cell[:1]}"{cell[1:]}',
        "comma inside": f"{cell[:1]},{cell[1:]}",
    }.items():
        changed = line.replace(cell, new, 1)
        yield f"raw: {operator}", start, text[:start] + changed + text[start + len(line) :]


def _rows(text: str, rows: list[list[str]], number: int) -> Iterator[Slip]:
    start = _start(text, number)
    row = rows[number]
    for operator, new in {
        "one cell less": row[:-1],
        "one cell more": [*row, "more"],
        "an empty cell more": [*row, ""],
        "first cell missing": row[1:],
        "cells turned round": row[::-1],
        "only empty cells": [""] * len(row),
    }.items():
        yield f"row: {operator}", start, _written([*rows[:number], new, *rows[number + 1 :]])


def _start(text: str, number: int) -> int:
    return sum(map(len, text.splitlines(keepends=True)[:number]))


def _written(rows: list[list[str]], delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\n")  # type: ignore[arg-type]
    writer.writerows(rows)
    return file.getvalue()
