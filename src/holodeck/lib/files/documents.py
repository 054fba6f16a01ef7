"""Documents as Markdown: PDF, Word, Excel and PowerPoint. Runs in a process of its own."""

import io
import re
import zipfile
from collections.abc import Collection
from datetime import datetime, time
from typing import Any

from holodeck.errors import MissingExtra
from holodeck.lib.files.tables import markdown_table
from holodeck.lib.files.worker import Job, Unreadable
from holodeck.lib.support.text import did_you_mean, one_line

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
    bounds = _bounds(cells)
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


MAX_TOTAL_BYTES = 500_000_000
MAX_ENTRY_BYTES = 200_000_000
MAX_ENTRIES = 10_000
_PIECE = 1_000_000
_DECLARATIONS = tuple(
    mark.encode(encoding)
    for mark in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)


def check_declared_size(data: bytes) -> None:
    """Raise ValueError if an archive is damaged, or says itself that it is too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"has {len(entries):,} parts; at most {MAX_ENTRIES:,} are read")
    _check_total(sum(entry.file_size for entry in entries))
    _check_entry(max((entry.file_size for entry in entries), default=0))


def check_contents(data: bytes) -> None:
    """Unpack an archive piece by piece and raise ValueError if it is damaged or a bomb.

    Sizes are counted as they are unpacked. XML with a document type, which office files never
    have, is refused: it may define entities that grow without end or name other files.
    """
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                total += _check_part(archive, entry)
                _check_total(total)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"is damaged: {error}") from error
    except RuntimeError as error:  # an encrypted entry
        raise ValueError(f"cannot be unpacked: {error}") from error


def _check_part(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """Return the unpacked size of an entry."""
    size, end_of_last = 0, b""
    with archive.open(entry) as part:
        while piece := part.read(_PIECE):
            size += len(piece)
            _check_entry(size)
            data = end_of_last + piece
            if any(mark in data for mark in _DECLARATIONS) and _is_xml(entry.filename):
                raise ValueError(
                    f"its part {entry.filename!r} declares a document type, which office files"
                    " never do; it is not read"
                )
            end_of_last = piece[-20:]
    return size


def _is_xml(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels", ".vml"))


def _check_total(size: int) -> None:
    if size > MAX_TOTAL_BYTES:
        raise ValueError(
            f"unpacks to {size / 1e6:,.0f} MB; at most {MAX_TOTAL_BYTES / 1e6:,.0f} are read"
        )


def _check_entry(size: int) -> None:
    if size > MAX_ENTRY_BYTES:
        most = f"{MAX_ENTRY_BYTES / 1e6:,.0f}"
        raise ValueError(
            f"one of its parts unpacks to more than {most} MB; at most {most} are read"
        )


SUFFIXES = {"pdf": ".pdf", "word": ".docx", "excel": ".xlsx", "powerpoint": ".pptx"}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_ZIP = b"PK\x03\x04"
_SLIDE = re.compile(r"\s*<!-- Slide number: (\d+) -->\n")


def check_signature(data: bytes, kind: str) -> None:
    """Raise ValueError if the content does not begin like its type, or is an obvious bomb."""
    if kind == "pdf":
        if b"%PDF-" not in data[:1024]:
            raise ValueError(f"is not a PDF file{_found(data)}")
        return
    if data.startswith(_OLD_OFFICE):
        raise ValueError(f"is encrypted or of an old format; save it as plain {SUFFIXES[kind]}")
    if not data.startswith(_ZIP):
        raise ValueError(f"is not a {SUFFIXES[kind]} file{_found(data)}")
    check_declared_size(data)


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
    except ImportError as error:
        raise MissingExtra("files", f"reading {suffix} files") from error
    except Unreadable as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # whatever a parser raises at a damaged file
        if type(error).__name__ == "MissingDependencyException":
            raise MissingExtra("files", f"reading {suffix} files") from error
        reason = one_line(str(error), 200) or type(error).__name__
        raise ValueError(f"cannot be read as {suffix}: {reason}") from error


def _convert(data: bytes, job: Job) -> str:
    if job.kind == "pdf":
        from holodeck.lib.files.pdf import pdf_pages  # noqa: PLC0415 - its library is slow

        pages = pdf_pages(data)
        require_pages(job.pages, len(pages), "page")
        wanted = [
            (at, text) for at, text in enumerate(pages, 1) if not job.pages or at in job.pages
        ]
        return "\n\n".join(f"<!-- Page number: {at} -->\n{text}" for at, text in wanted if text)
    if job.kind == "excel":
        return spreadsheet_as_markdown(data, job.sheet, job.range)
    text = _with_markitdown(data, job.kind)
    return _slides(text, job.pages) if job.kind == "powerpoint" else text


def _with_markitdown(data: bytes, kind: str) -> str:
    """Convert with the converter of this type, so that it is not guessed from the content."""
    from markitdown import StreamInfo
    from markitdown.converters import DocxConverter, PptxConverter

    makers: dict[str, Any] = {"word": DocxConverter, "powerpoint": PptxConverter}
    info = StreamInfo(extension=SUFFIXES[kind])
    return str(makers[kind]().convert(io.BytesIO(data), info).markdown)


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
    return "\n\n".join(
        f"<!-- Slide number: {number} -->\n{slide.strip()}"
        for number, slide in enumerate(slides[1:], 1)
        if slide.strip() and (not wanted or number in wanted)
    )


def require_pages(wanted: Collection[int], count: int, unit: str) -> None:
    """Raise Unreadable if one of the pages or slides does not exist."""
    missing = max(wanted, default=0)
    if missing > count:
        plural = "" if count == 1 else "s"
        raise Unreadable(f"has {count} {unit}{plural}; 'pages' names {unit} {missing}")
