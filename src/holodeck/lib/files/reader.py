"""Reads a file of a test case: from disk or the network, as text or as an image."""

import asyncio
import contextvars
import csv
import hashlib
import io
import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.files.documents import Job, check_signature, markdown_table
from holodeck.lib.files.remote_files import MAX_BYTES, DownloadError, DownloadRules, download
from holodeck.lib.files.worker import TimeLimitExceeded, Workers
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.text import bom_encoding
from holodeck.models.cases.messages import Image
from holodeck.models.test_case import FileInput
from holodeck.models.test_result import ProcessedFileInput

T = TypeVar("T")

ATTACHED = "(attached as an image)"
"""What a message says in place of the text of an image."""
MAX_KEPT_TEXTS = 64
"""Texts of documents that are kept for other cases that have the same file."""


class DocumentReader:
    """Reads files; the processes that it starts for documents serve all of them.

    Args:
        seconds: The longest conversion of a file.
        download_seconds: The longest download of a file.
        max_retries: Further attempts of a download.
        allowed_hosts: Hosts whose addresses need not be public.
        cache_dir: The folder for downloaded files; None to keep none.
    """

    def __init__(
        self,
        seconds: float,
        *,
        download_seconds: float,
        max_retries: int,
        allowed_hosts: tuple[str, ...],
        cache_dir: Path | None,
    ) -> None:
        self._seconds = seconds
        self._rules = DownloadRules(
            timeout=download_seconds,
            max_retries=max_retries,
            allowed_hosts=allowed_hosts,
            cache_dir=cache_dir,
        )
        self._workers = Workers()
        self._texts: dict[tuple[bytes, Job], str] = {}

    def read_text(self, file: FileInput, base_dir: Path) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read; never raises. Blocks."""
        source = _Source(file, base_dir, self._rules)
        text, failure, elapsed_ms = self._attempt(partial(self._text, source))
        return source.processed(text or "", failure, elapsed_ms)

    def read_image(
        self, file: FileInput, base_dir: Path
    ) -> tuple[ProcessedFileInput, Image | None]:
        """Return an image for a model; None together with the `error`. Never raises; blocks."""
        source = _Source(file, base_dir, self._rules)
        image, failure, elapsed_ms = self._attempt(lambda: image_for_models(self._load(source)))
        if image is None:
            return source.processed("", failure, elapsed_ms), None
        source.metadata |= {"media_type": image.media_type, "sent_as": "image"}
        return source.processed(ATTACHED, failure, elapsed_ms), image

    def close(self) -> None:
        """End the processes that read documents; later files start new ones."""
        self._workers.close()

    def _attempt(self, read: Callable[[], T]) -> tuple[T | None, str | None, int]:
        """Return what was read, else None; why not, else None; and the milliseconds it took."""
        started = time.perf_counter()
        value, failure = None, None
        try:
            value = read()
        except Exception as error:  # noqa: BLE001 - a parser may raise anything
            failure = self._reason(error)
        return value, failure, round((time.perf_counter() - started) * 1000)

    def _load(self, source: "_Source") -> bytes:
        data = _call_in_thread(source.load, self._seconds + source.download_seconds)
        if not data:
            raise ValueError("is empty")
        return data

    def _text(self, source: "_Source") -> str:
        """Return the text of a file. Raises what `_reason` knows."""
        data, kind = self._load(source), source.file.type
        if kind in PLAIN_TYPES:
            text = _call_in_thread(partial(plain_as_markdown, data, kind), self._seconds)
        else:
            text = self._document(source.file, data)
        if not text.strip():
            raise ValueError("no text could be read from it")
        return text

    def _document(self, file: FileInput, data: bytes) -> str:
        """Return the text of a document or an image, read in another process, once per content."""
        if file.type == "image":
            media_type_of(data)
            job = Job("image", program=ocr_program())
        else:
            check_signature(data, file.type)
            job = Job(file.type, tuple(sorted(file.page_numbers)), file.sheet, file.range)
        key = (hashlib.sha256(data).digest(), job)
        text = self._texts.get(key)
        if text is None:
            text = self._workers.read(job, data, self._seconds)
            if len(self._texts) >= MAX_KEPT_TEXTS:
                self._texts.clear()
            self._texts[key] = text
        return text

    def _reason(self, error: Exception) -> str:
        """Return why a file cannot be read."""
        if isinstance(error, TimeLimitExceeded):
            return f"could not be read within {self._seconds:g} s (execution.file_timeout)"
        if isinstance(error, MissingExtra | ValueError | DownloadError):
            return str(error)
        if isinstance(error, ConfigError):
            return error.message
        if isinstance(error, OSError):
            return f"cannot be read: {error.strerror or error}"
        return f"cannot be read: {type(error).__name__}: {error}"


class _Source:
    """Where the content of a file comes from, and what is known about it."""

    def __init__(self, file: FileInput, base_dir: Path, rules: DownloadRules) -> None:
        self.file = file
        self.cached_path: str | None = None
        self.metadata: dict[str, str | int] = {
            "path" if file.url is None else "url": file.shown_path,
            "type": file.type,
        }
        pages = None if file.pages is None else ", ".join(map(str, file.pages))
        selected = {"pages": pages, "sheet": file.sheet, "range": file.range}
        self.metadata |= {
            f"{name}_extracted": str(value) for name, value in selected.items() if value is not None
        }
        self._base_dir = base_dir
        self._rules = replace(rules, cache_dir=None) if file.cache is False else rules

    @property
    def download_seconds(self) -> float:
        """The time that a download may take in addition."""
        return 0.0 if self.file.url is None else self._rules.timeout

    def processed(self, text: str, failure: str | None, elapsed_ms: int) -> ProcessedFileInput:
        """Return what became of the file; a URL is shown without its secrets."""
        file = self.file
        if file.url is not None and file.url != file.shown_path:
            file = file.model_copy(update={"url": file.shown_path})
        return ProcessedFileInput(
            original=file,
            markdown_content=text,
            metadata=self.metadata,
            cached_path=self.cached_path,
            processing_time_ms=elapsed_ms,
            error=failure,
        )

    def load(self) -> bytes:
        """Return the content."""
        if self.file.url is None:
            path = file_inside(self.file.shown_path, self._base_dir)
            size = path.stat().st_size
            self.metadata["size_bytes"] = size
            if size > MAX_BYTES:
                raise ValueError(
                    f"is {size / 1e6:,.1f} MB large; at most {MAX_BYTES / 1e6:,.0f} MB are read"
                )
            with path.open("rb") as file:
                return file.read(MAX_BYTES)
        downloaded = asyncio.run(download(self.file.url, self._rules))
        self.metadata["size_bytes"] = len(downloaded.data)
        if downloaded.media_type is not None:
            self.metadata["media_type"] = downloaded.media_type
        self.cached_path = None if downloaded.cached_path is None else str(downloaded.cached_path)
        return downloaded.data


def _call_in_thread(call: Callable[[], T], seconds: float) -> T:
    """Return what `call` returns. Raises TimeLimitExceeded; then it goes on in its thread.

    A daemon thread, so that a disk that hangs does not block the exit.
    """
    done: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            done.set_result(context.run(call))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again by the caller
            done.set_exception(error)

    threading.Thread(target=work, name="holodeck-file", daemon=True).start()
    try:
        return done.result(seconds)
    except FutureTimeoutError as error:
        if done.done():
            raise
        raise TimeLimitExceeded from error


PLAIN_TYPES = frozenset({"text", "markdown", "json", "csv"})
_DELIMITERS = (",", ";", "\t")


def plain_as_markdown(data: bytes, kind: str) -> str:
    """Return the text of a file of a plain type. Raises ValueError with the reason."""
    text = decode_plain_text(data)
    if kind == "csv":
        return _csv_as_table(text)
    if kind == "json":
        _check_json(text)
    return text


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


def _csv_as_table(text: str) -> str:
    """Return CSV as a Markdown table; its delimiter is the most frequent one of the first line."""
    first_line = text.lstrip("\n").partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first_line.count)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(f"is not valid CSV: {error}") from error
    return markdown_table([row for row in rows if any(map(str.strip, row))])


def _check_json(text: str) -> None:
    """Raise ValueError if the text is not JSON, or nested too deep."""
    try:
        json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deep to be read as JSON") from error
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"is not valid JSON: {error.msg} at {location}") from error


MEDIA_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
}
MODEL_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What models take."""
MAX_MODEL_BYTES = 20_000_000
"""The largest image that providers take."""
NO_PROGRAM = (
    "reading text from an image needs the program 'tesseract', which is not installed; install it"
    " (on Debian: apt install tesseract-ocr), or test an agent whose model takes images"
)


def media_type_of(data: bytes) -> str:
    """Return the media type of an image, by its content. Raises ValueError."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for signature, media_type in MEDIA_TYPES.items():
        if data.startswith(signature):
            return media_type
    raise ValueError("is not an image; PNG, JPEG, GIF, WebP, BMP and TIFF are read")


def image_for_models(data: bytes) -> Image:
    """Return an image as models take it. Raises ValueError."""
    media_type = media_type_of(data)
    if media_type not in MODEL_MEDIA_TYPES:
        kind = media_type.removeprefix("image/").upper()
        raise ValueError(f"is a {kind} image, which models do not take; save it as PNG or JPEG")
    if len(data) > MAX_MODEL_BYTES:
        size, most = len(data) / 1e6, MAX_MODEL_BYTES / 1e6
        raise ValueError(f"is {size:,.1f} MB large; models take images of at most {most:g} MB")
    return Image(data, media_type)


def ocr_program() -> str:
    """Return the path of the program for OCR. Raises ValueError if it is not installed."""
    path = shutil.which("tesseract")
    if path is None:
        raise ValueError(NO_PROGRAM)
    return path
