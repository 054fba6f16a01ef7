"""Tables as Markdown."""

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table whose header is the first row; short rows are filled up."""
    width = max(map(len, rows), default=0)
    if width == 0:
        return ""
    header, *others = [_row([*row, *[""] * (width - len(row))]) for row in rows]
    return "\n".join([header, _row(["---"] * width), *others])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Return the text of a cell on one line, with what would end the cell escaped."""
    return "<br>".join(text.replace("|", "\\|").split("\n")).strip()
