"""Documents as Markdown: PDF, Word, Excel and PowerPoint. Runs in a process of its own."""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from itertools import chain, groupby
from typing import Any

from holodeck.errors import MissingExtra
from holodeck.lib.support.text import did_you_mean, one_line


class Unreadable(Exception):
    """A document cannot be read, and not because its parser fails; the message says why."""


@dataclass(frozen=True)
class Job:
    """The type of a file, and which part of it is wanted."""

    kind: str
    pages: tuple[int, ...] = ()
    """From 1; empty for all."""
    sheet: str | None = None
    range: str | None = None
    program: str | None = None
    """Path of the program for OCR."""


MAX_CELLS = 1_000_000


def spreadsheet_as_markdown(data: bytes, sheet: str | None, cells: str | None) -> str:
    """Return the cells of a sheet, or of all; a range without a sheet is one of the first.

    A formula whose value is not stored is shown as it is written. Raises Unreadable.
    """
    from openpyxl import load_workbook

    values = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    formulas = load_workbook(io.BytesIO(data), read_only=True)
    names = [worksheet.title for worksheet in values.worksheets]
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
    bounds: dict[str, int] = {}
    if cells is not None:
        from openpyxl.utils import range_boundaries

        names = ("min_col", "min_row", "max_col", "max_row")
        bounds = dict(zip(names, range_boundaries(cells.upper()), strict=True))
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # files may lie about them, and padding takes for ever
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


MAX_TOTAL_BYTES = 500_000_000
MAX_ENTRY_BYTES = 200_000_000
MAX_ENTRIES = 10_000
_PIECE = 1_000_000
_DECLARATIONS = tuple(
    mark.encode(encoding)
    for mark in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)


def check_contents(data: bytes) -> None:
    """Unpack an archive piece by piece and raise ValueError if it is damaged or a bomb.

    Sizes are counted as they are unpacked. XML with a document type, which office files never
    have, is refused: it may define entities that grow without end or name other files.
    """
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise ValueError(f"has {len(entries):,} parts; at most {MAX_ENTRIES:,} are read")
            for entry in entries:
                total += max(entry.file_size, _check_part(archive, entry))
                if total > MAX_TOTAL_BYTES:
                    most = f"{MAX_TOTAL_BYTES / 1e6:,.0f}"
                    raise ValueError(f"unpacks to {total / 1e6:,.0f} MB; at most {most} are read")
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"is damaged: {error}") from error
    except RuntimeError as error:  # an encrypted entry
        raise ValueError(f"cannot be unpacked: {error}") from error


def _check_part(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """Return the unpacked size of an entry."""
    size, end_of_last = 0, b""
    is_xml = entry.filename.lower().endswith((".xml", ".rels", ".vml"))
    with archive.open(entry) as part:
        while piece := part.read(_PIECE):
            size += len(piece)
            if size > MAX_ENTRY_BYTES:
                most = f"{MAX_ENTRY_BYTES / 1e6:,.0f}"
                raise ValueError(
                    f"one of its parts unpacks to more than {most} MB; at most {most} are read"
                )
            data = end_of_last + piece
            if is_xml and any(mark in data for mark in _DECLARATIONS):
                raise ValueError(
                    f"its part {entry.filename!r} declares a document type, which office files"
                    " never do; it is not read"
                )
            end_of_last = piece[-20:]
    return size


SUFFIXES = {"pdf": ".pdf", "word": ".docx", "excel": ".xlsx", "powerpoint": ".pptx"}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_ZIP = b"PK\x03\x04"
_SLIDE = re.compile(r"\s*<!-- Slide number: (\d+) -->\n")


def check_signature(data: bytes, kind: str) -> None:
    """Raise ValueError if the content does not begin like its type."""
    if kind == "pdf":
        if b"%PDF-" not in data[:1024]:
            raise ValueError(f"is not a PDF file{_found(data)}")
        return
    if data.startswith(_OLD_OFFICE):
        raise ValueError(f"is encrypted or of an old format; save it as plain {SUFFIXES[kind]}")
    if not data.startswith(_ZIP):
        raise ValueError(f"is not a {SUFFIXES[kind]} file{_found(data)}")


def _found(data: bytes) -> str:
    """Return what the content looks like, if that is something that people mix up."""
    head = data[:1024].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "; found an HTML page"
    return "; found a PDF file" if head.startswith(b"%pdf-") else ""


def document_as_markdown(data: bytes, job: Job) -> str:
    """Convert a document to Markdown. Raises ValueError with the reason, or MissingExtra."""
    suffix = SUFFIXES[job.kind]
    check_signature(data, job.kind)
    if job.kind != "pdf":
        check_contents(data)
    try:
        return _convert(data, job)
    except Unreadable as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # whatever a parser raises at a damaged file
        is_missing = type(error).__name__ == "MissingDependencyException"
        if is_missing or isinstance(error, ImportError):
            raise MissingExtra("files", f"reading {suffix} files") from error
        reason = one_line(str(error), 200) or type(error).__name__
        raise ValueError(f"cannot be read as {suffix}: {reason}") from error


def _convert(data: bytes, job: Job) -> str:
    if job.kind == "pdf":
        pages = pdf_pages(data)
        require_pages(job.pages, len(pages), "page")
        return _numbered("Page", pages, job.pages)
    if job.kind == "excel":
        return spreadsheet_as_markdown(data, job.sheet, job.range)
    text = _with_markitdown(data, job.kind)
    return _slides(text, job.pages) if job.kind == "powerpoint" else text


def _with_markitdown(data: bytes, kind: str) -> str:
    """Convert with the converter of this type, so that it is not guessed from the content."""
    from markitdown import StreamInfo
    from markitdown.converters import DocxConverter, PptxConverter

    converter: Any = DocxConverter if kind == "word" else PptxConverter
    info = StreamInfo(extension=SUFFIXES[kind])
    return str(converter().convert(io.BytesIO(data), info).markdown)


def _slides(text: str, wanted: Collection[int]) -> str:
    """Return the slides with these numbers, or all; those without content are left out."""
    slides: list[str] = [""]
    end = 0
    for match in _SLIDE.finditer(text):
        if int(match[1]) == len(slides):  # and not a comment in the text of a slide
            slides[-1] += text[end : match.start()]
            slides.append("")
            end = match.end()
    slides[-1] += text[end:]
    require_pages(wanted, len(slides) - 1, "slide")
    return _numbered("Slide", [slide.strip() for slide in slides[1:]], wanted)


def _numbered(unit: str, texts: Sequence[str], wanted: Collection[int]) -> str:
    """Return the pages with these numbers, or all; those without text are left out."""
    return "\n\n".join(
        f"<!-- {unit} number: {number} -->\n{text}"
        for number, text in enumerate(texts, 1)
        if text and (not wanted or number in wanted)
    )


def require_pages(wanted: Collection[int], count: int, unit: str) -> None:
    """Raise Unreadable if one of the pages or slides does not exist."""
    missing = max(wanted, default=0)
    if missing > count:
        plural = "" if count == 1 else "s"
        raise Unreadable(f"has {count} {unit}{plural}; 'pages' names {unit} {missing}")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table whose header is the first row; short rows are filled up."""
    width = max(map(len, rows), default=0)
    if width == 0:
        return ""
    header, *others = [_row([*row, *[""] * (width - len(row))]) for row in rows]
    return "\n".join([header, _row(["---"] * width), *others])


def _row(cells: Sequence[str]) -> str:
    """Return cells, each on one line, with what would end the cell escaped."""
    texts = (cell.replace("|", "\\|").replace("\n", "<br>").strip() for cell in cells)
    return f"| {' | '.join(texts)} |"


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
            pages = []
            for page in pdf.pages:
                pages.append(_blocks(page))
                page.close()  # what was parsed of it, so that memory does not grow
    except PdfminerException as error:
        if error.args and isinstance(error.args[0], PDFPasswordIncorrect):
            raise Unreadable("is encrypted; save it without a password") from error
        raise
    sizes = _heading_sizes(pages)
    return [
        "\n\n".join(text for block in page if (text := _render(block, outline, sizes)))
        for page in pages
    ]


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
        characters = line if hasattr(line, "__iter__") else ()
        chars = [char.size for char in characters if isinstance(char, LTChar)]
        size = Counter(round(char * 2) / 2 for char in chars).most_common(1)
        lines.append(_Line(text, size[0][0] if size else 0.0, line.x0, top))
    return lines


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
    if not is_table:
        return []
    blocks = []
    for is_wide, group in groupby(rows, key=lambda row: len(row) > 1):
        texts = [*group]
        table = [[line.text for line in row] for row in texts] if is_wide else []
        blocks.append(_Block(tuple(chain.from_iterable(texts)), markdown_table(table)))
    return blocks


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
