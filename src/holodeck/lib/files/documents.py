"""Documents as Markdown: PDF, Word, Excel and PowerPoint. Runs in a process of its own."""

import io
import re
from collections.abc import Collection
from typing import Any

from holodeck.errors import MissingExtra
from holodeck.lib.files import archives
from holodeck.lib.files.job import Job, Unreadable
from holodeck.lib.support.text import one_line

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
    archives.check_declared_size(data)


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
        archives.check_contents(data)
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
        from holodeck.lib.files.spreadsheets import spreadsheet_as_markdown  # noqa: PLC0415

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
