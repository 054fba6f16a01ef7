"""PDF as Markdown, page by page: headings, paragraphs and tables."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from holodeck.lib.files.tables import markdown_table
from holodeck.lib.files.worker import Unreadable

HEADING_FACTOR = 1.15
"""How much larger than the text of the document a heading is."""
MAX_HEADING = 150
"""Characters of the longest heading."""
DEEPEST_HEADING = 4
_SHORT = 40
"""Characters that an entry of a table without lines has at most, on average."""


@dataclass(frozen=True)
class _Line:
    text: str
    size: float
    left: float
    top: float


@dataclass(frozen=True)
class _Block:
    """Lines that belong together."""

    lines: tuple[_Line, ...]
    table: str = ""
    """The block as Markdown, if it is a table."""


def pdf_pages(data: bytes) -> list[str]:
    """Return the pages of a PDF as Markdown; "" for one without text. Raises Unreadable.

    Headings are the entries of the outline if there is one, else lines in larger type.
    """
    import pdfplumber
    from pdfminer.pdfdocument import PDFPasswordIncorrect
    from pdfplumber.utils.exceptions import PdfminerException

    try:
        with pdfplumber.open(io.BytesIO(data), laparams={}) as pdf:
            outline = _outline(pdf.doc)
            pages = [_blocks(page) for page in _closing(pdf.pages)]
    except PdfminerException as error:
        if error.args and isinstance(error.args[0], PDFPasswordIncorrect):
            raise Unreadable("is encrypted; save it without a password") from error
        raise
    sizes = _heading_sizes(pages)
    return [
        "\n\n".join(text for block in page if (text := _render(block, outline, sizes)))
        for page in pages
    ]


def _closing(pages: list[Any]) -> Iterator[Any]:
    """Yield the pages and drop what was parsed of each, so that memory does not grow."""
    for page in pages:
        yield page
        page.close()


def _outline(document: Any) -> dict[str, int]:
    """Return the levels of the titles in the outline, by their normalized text."""
    from pdfminer.pdfdocument import PDFNoOutlines

    try:
        return {_normalize(title): level for level, title, *_ in document.get_outlines()}
    except PDFNoOutlines:
        return {}


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


def _blocks(page: Any) -> list[_Block]:
    """Return the paragraphs and tables of a page, in the order of reading."""
    tables = [
        table for table in page.find_tables() if len(table.rows) > 1 and len(table.columns) > 1
    ]
    boxes = [_lines(box, page, tables) for box in page.layout if hasattr(box, "get_text")]
    boxes = [box for box in boxes if box]
    if not tables and (rows := _rows_of_columns(boxes)):
        return rows
    blocks = []
    for box in boxes:
        above = [table for table in tables if table.bbox[1] < box[0].top]
        blocks += [_table(table) for table in above]
        tables = [table for table in tables if table not in above]
        blocks.append(_Block(tuple(box)))
    return [*blocks, *map(_table, tables)]


def _table(table: Any) -> _Block:
    rows = [[cell or "" for cell in row] for row in table.extract()]
    return _Block((), markdown_table(rows))


def _lines(box: Any, page: Any, tables: list[Any]) -> list[_Line]:
    """Return the lines of a text box that are not in one of the tables."""
    from pdfminer.layout import LTChar, LTTextContainer

    lines = []
    for line in box if isinstance(box, LTTextContainer) else ():
        text = line.get_text().strip() if hasattr(line, "get_text") else ""
        top = float(page.height) - line.y1
        middle = (top + float(page.height) - line.y0) / 2
        is_in_table = any(
            table.bbox[0] <= line.x0 <= table.bbox[2] and table.bbox[1] <= middle <= table.bbox[3]
            for table in tables
        )
        if not text or is_in_table:
            continue
        chars = [char.size for char in line if isinstance(char, LTChar)] if _is_group(line) else []
        size = Counter(round(char * 2) / 2 for char in chars).most_common(1)
        lines.append(_Line(text, size[0][0] if size else 0.0, line.x0, top))
    return lines


def _is_group(line: Any) -> bool:
    return hasattr(line, "__iter__")


def _rows_of_columns(boxes: list[list[_Line]]) -> list[_Block]:
    """Return the lines and tables of a page with a table without lines; [] for any other page."""
    lines = sorted((line for box in boxes for line in box), key=lambda line: round(line.top))
    rows = [
        sorted(group, key=lambda line: line.left)
        for _, group in groupby(lines, key=lambda line: round(line.top))
    ]
    wide = [row for row in rows if len(row) > 1]
    length = sum(len(line.text) for row in wide for line in row)
    is_table = (
        len(wide) >= 3 and len(wide) * 3 >= len(rows) * 2 and length <= _SHORT * sum(map(len, wide))
    )
    return (
        [_block_of_rows([*group]) for _, group in groupby(rows, key=_is_wide)] if is_table else []
    )


def _is_wide(row: list[_Line]) -> bool:
    return len(row) > 1


def _block_of_rows(rows: list[list[_Line]]) -> _Block:
    lines = tuple(line for row in rows for line in row)
    if not _is_wide(rows[0]):
        return _Block(lines)
    return _Block(lines, markdown_table([[line.text for line in row] for row in rows]))


def _heading_sizes(pages: list[list[_Block]]) -> list[float]:
    """Return the sizes of type that are larger than that of most of the text, largest first."""
    count: Counter[float] = Counter()
    for line in (line for page in pages for block in page for line in block.lines):
        count[line.size] += len(line.text)
    if not count:
        return []
    most_common = count.most_common(1)[0][0]
    return sorted((size for size in count if size > most_common * HEADING_FACTOR), reverse=True)


def _render(block: _Block, outline: Mapping[str, int], sizes: list[float]) -> str:
    """Return a block as Markdown, with its headings."""
    if block.table:
        return block.table
    parts: list[str] = []
    for level, group in groupby(block.lines, key=lambda line: _level(line, outline, sizes)):
        texts = [line.text for line in group]
        parts.append("\n".join(texts) if level == 0 else f"{'#' * level} {' '.join(texts)}")
    return "\n\n".join(parts)


def _level(line: _Line, outline: Mapping[str, int], sizes: list[float]) -> int:
    """Return the level of the heading that a line is, from 1; 0 for other text."""
    if len(line.text) > MAX_HEADING or not any(map(str.isalpha, line.text)):
        return 0
    if outline:
        return min(outline.get(_normalize(line.text), 0), DEEPEST_HEADING)
    return min(sizes.index(line.size) + 1, DEEPEST_HEADING) if line.size in sizes else 0
