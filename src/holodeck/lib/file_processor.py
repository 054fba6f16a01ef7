"""The files of a test case, as text for the agent."""

import contextvars
import io
import threading
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.errors import ConfigError, MissingExtra, NotSupportedYet
from holodeck.lib.exceptions import describe
from holodeck.lib.safe_paths import file_inside
from holodeck.lib.text import bom_encoding, one_line
from holodeck.lib.threads import run_in_thread
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import FileInput
from holodeck.models.test_result import ProcessedFileInput

if TYPE_CHECKING:
    from holodeck.models.test_case import FileType

__all__ = ["FileProcessor", "FileReader", "process_in_thread"]

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
    """Convert a document to Markdown. Raises ValueError with the reason, or MissingExtra."""
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
    """Raise ValueError if the content does not match its type, before a parser guesses."""
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
    """Return the converter for this type, so that it is not guessed from the content."""
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


def decode_plain_text(data: bytes) -> str:
    """Decode UTF-8 text, or as its byte order mark says. Raises ValueError with the reason."""
    encoding = bom_encoding(data) or "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8 text (byte 0x{data[error.start]:02x} at offset {error.start});"
            " save it as UTF-8"
        ) from error
    if "\0" in text:
        raise ValueError(f"is not text: there is a NUL at character {text.index(chr(0))}")
    return text.replace("\r\n", "\n")


MOST_BYTES = 50_000_000
_NATIVE = frozenset({"text", "csv"})


class FileReader(Protocol):
    """What a `file_processor` of the caller's own has to have."""

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read. May block."""
        ...


class FileProcessor:
    """Converts files to text.

    Args:
        cache_dir: For remote files, which do not exist yet; anything but None is refused.
        download_timeout_ms: For remote files; only its default is taken.
        max_retries: For remote files; only its default is taken.
        processing_timeout_ms: Milliseconds the conversion of one file may take.
        base_dir: Where relative paths start, and what files must lie in; else the working folder.

    Raises:
        NotSupportedYet: A parameter for remote files is given.
    """

    def __init__(
        self,
        cache_dir: str | None = None,
        download_timeout_ms: int = 30_000,
        max_retries: int = 3,
        processing_timeout_ms: int = 30_000,
        base_dir: Path | None = None,
    ) -> None:
        for name, is_default in (
            ("cache_dir", cache_dir is None),
            ("download_timeout_ms", download_timeout_ms == 30_000),
            ("max_retries", max_retries == 3),
        ):
            if not is_default:
                raise NotSupportedYet(name, "it belongs to remote files")
        self.processing_timeout_ms = processing_timeout_ms
        self.base_dir = base_dir

    @classmethod
    def from_execution_config(
        cls, config: ExecutionConfig, base_dir: Path | None = None
    ) -> "FileProcessor":
        """Return a processor with the time limit of the settings."""
        if config.file_timeout is None:
            return cls(base_dir=base_dir)
        return cls(processing_timeout_ms=round(config.file_timeout * 1000), base_dir=base_dir)

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read; never raises.

        Blocks; a conversion that takes too long continues in its own thread.
        """
        started = time.perf_counter()
        reading = _FileReaderThread(file_input, self.base_dir or Path.cwd())
        reading.start()
        reading.join(self.processing_timeout_ms / 1000)
        failure = reading.error
        if reading.is_alive():
            limit = self.processing_timeout_ms / 1000
            failure = f"could not be read within {limit:g} s (execution.file_timeout)"
        return ProcessedFileInput(
            original=file_input,
            markdown_content="" if failure else reading.text,
            metadata=dict(reading.metadata),
            processing_time_ms=round((time.perf_counter() - started) * 1000),
            error=failure,
        )


async def process_in_thread(files: FileReader, file: FileInput) -> ProcessedFileInput:
    """Run `process_file` in a thread, without blocking the event loop.

    What a processor of the caller's own raises becomes the `error` of its result.
    """
    try:
        return await run_in_thread(partial(files.process_file, file), name="holodeck-file")
    except Exception as error:  # noqa: BLE001 - the caller's code may raise anything
        return ProcessedFileInput(original=file, markdown_content="", error=describe(error))


class _FileReaderThread(threading.Thread):
    """Reads one file; a daemon thread, so that a hanging parser does not block the exit."""

    def __init__(self, file: FileInput, base_dir: Path) -> None:
        super().__init__(name="holodeck-file", daemon=True)
        self._file = file
        self._base_dir = base_dir
        self._context = contextvars.copy_context()
        self.text = ""
        self.error: str | None = None
        self.metadata: dict[str, str | int] = {"path": file.path, "type": file.type}

    def run(self) -> None:
        try:
            self.text = self._context.run(self._read)
        except (MissingExtra, ValueError) as error:
            self.error = str(error)
        except ConfigError as error:
            self.error = error.message
        except OSError as error:
            self.error = f"cannot be read: {error.strerror or error}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a parser may raise anything
            self.error = f"cannot be read: {type(error).__name__}: {error}"

    def _read(self) -> str:
        path = file_inside(self._file.path, self._base_dir)
        size = path.stat().st_size
        self.metadata["size_bytes"] = size
        if size > MOST_BYTES:
            raise ValueError(
                f"is {size / 1e6:,.1f} MB large; at most {MOST_BYTES / 1e6:,.0f} MB are read"
            )
        data = path.read_bytes()
        kind = self._file.type
        text = decode_plain_text(data) if kind in _NATIVE else as_markdown(data, kind)
        if not text.strip():
            raise ValueError("no text could be read from it" if data else "is empty")
        return text
