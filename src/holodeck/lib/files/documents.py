"""The one door to markitdown: office documents and PDF as Markdown."""

import io
import zipfile
from typing import TYPE_CHECKING, Any

from holodeck.errors import MissingExtra
from holodeck.lib.text import one_line

if TYPE_CHECKING:
    from holodeck.models.test_case import FileType

MOST_UNPACKED_BYTES = 500_000_000
SUFFIXES: dict[str, str] = {
    "pdf": ".pdf",
    "word": ".docx",
    "excel": ".xlsx",
    "powerpoint": ".pptx",
}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_ZIP = b"PK\x03\x04"


def as_markdown(data: bytes, kind: "FileType") -> str:
    """The document's text. Raises ValueError with the reason, or MissingExtra."""
    if kind not in SUFFIXES:
        raise ValueError(f"no text can be read from a file of type {kind!r}")
    _check_contents(data, kind)
    converter, info = _converter(kind)
    try:
        converted = converter.convert(io.BytesIO(data), info)
    except Exception as error:  # whatever a parser raises at a damaged file
        if type(error).__name__ == "MissingDependencyException":
            raise MissingExtra("files", f"reading {SUFFIXES[kind]} files") from error
        reason = one_line(str(error), 200) or type(error).__name__
        raise ValueError(f"cannot be read as {SUFFIXES[kind]}: {reason}") from error
    return str(converted.markdown)


def _check_contents(data: bytes, kind: "FileType") -> None:
    """Refuse what is something else than it is said to be, before a parser guesses."""
    if kind == "pdf":
        if b"%PDF-" not in data[:1024]:
            raise ValueError("is not a PDF file")
        return
    if data.startswith(_OLD_OFFICE):
        raise ValueError(f"is encrypted or of an old format; save it as plain {SUFFIXES[kind]}")
    if not data.startswith(_ZIP):
        raise ValueError(f"is not a {SUFFIXES[kind]} file")
    _check_unpacked_size(data)


def _check_unpacked_size(data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"is damaged: {error}") from error
    if size > MOST_UNPACKED_BYTES:
        raise ValueError(
            f"unpacks to {size / 1e6:,.0f} MB; at most {MOST_UNPACKED_BYTES / 1e6:,.0f} are read"
        )


def _converter(kind: "FileType") -> tuple[Any, Any]:
    """The converter of this very type, so that nothing is guessed from the contents."""
    try:
        from markitdown import StreamInfo
        from markitdown.converters import (
            DocxConverter,
            PdfConverter,
            PptxConverter,
            XlsxConverter,
        )
    except ImportError as error:
        raise MissingExtra("files", f"reading {SUFFIXES[kind]} files") from error
    makers: dict[str, Any] = {
        "pdf": PdfConverter,
        "word": DocxConverter,
        "excel": XlsxConverter,
        "powerpoint": PptxConverter,
    }
    return makers[kind](), StreamInfo(extension=SUFFIXES[kind])
