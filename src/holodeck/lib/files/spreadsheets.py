"""Spreadsheets as Markdown: one table per sheet, or a part of one."""

import io
from datetime import datetime, time
from typing import Any

from holodeck.lib.files.job import Unreadable
from holodeck.lib.files.tables import markdown_table
from holodeck.lib.support.suggestions import did_you_mean

MAX_CELLS = 1_000_000


def spreadsheet_as_markdown(data: bytes, sheet: str | None, cells: str | None) -> str:
    """Return the cells of a sheet, or of all; a range without a sheet is one of the first.

    A formula whose value is not stored is shown as it is written. Raises Unreadable.
    """
    from openpyxl import load_workbook

    values = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    formulas = load_workbook(io.BytesIO(data), read_only=True)
    names = [one.title for one in values.worksheets]
    if sheet is not None and sheet not in names:
        known = ", ".join(map(repr, names))
        raise Unreadable(f"has no sheet {sheet!r}, but {known}{did_you_mean(sheet, names)}")
    wanted = [sheet] if sheet is not None else names[:1] if cells else names
    parts = [(name, markdown_table(_rows(values[name], formulas[name], cells))) for name in wanted]
    if not any(table for _, table in parts) and cells:
        raise Unreadable(f"has no values in the range {cells} of the sheet {wanted[0]!r}")
    return "\n\n".join(f"## {name}\n\n{table}" for name, table in parts if table)


def _rows(values: Any, formulas: Any, cells: str | None) -> list[list[str]]:
    """Return the cells of a sheet as text, without the empty rows and columns at its end."""
    bounds = _bounds(cells)
    for one in (values, formulas):
        one.reset_dimensions()  # files may lie about them, and padding takes for ever
    rows: list[list[str]] = []
    total = 0
    pairs = zip(
        values.iter_rows(**bounds, values_only=True),
        formulas.iter_rows(**bounds, values_only=True),
        strict=False,
    )
    for shown, written in pairs:
        row = [_text(*pair) for pair in zip(shown, written, strict=False)]
        while row and not row[-1]:
            row.pop()
        total += len(row) + 1
        if total > MAX_CELLS:
            raise Unreadable(f"has more than {MAX_CELLS:,} cells; write 'sheet' or 'range'")
        rows.append(row)
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _bounds(cells: str | None) -> dict[str, int]:
    if cells is None:
        return {}
    from openpyxl.utils import range_boundaries

    names = ("min_col", "min_row", "max_col", "max_row")
    return dict(zip(names, range_boundaries(cells.upper()), strict=True))


def _text(value: Any, written: Any) -> str:
    """Return a cell as text."""
    if value is None:
        return "" if written is None else str(written)
    if isinstance(value, datetime):
        is_date = value.time() == time()
        return (value.date() if is_date else value).isoformat()
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return str(value)
