"""The files of a test case, as text for the agent."""

import asyncio
import contextvars
import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.exceptions import describe
from holodeck.lib.files.documents import check_signature
from holodeck.lib.files.images import media_type_of, ocr_program
from holodeck.lib.files.job import Job
from holodeck.lib.files.plain import PLAIN_TYPES, plain_as_markdown
from holodeck.lib.files.worker import TimeLimitExceeded, Workers
from holodeck.lib.remote_files import MAX_BYTES, DownloadError, DownloadRules, download
from holodeck.lib.safe_paths import file_inside
from holodeck.lib.threads import run_in_thread
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import FileInput
from holodeck.models.test_result import ProcessedFileInput

__all__ = ["FileProcessor", "FileReader", "process_in_thread"]

T = TypeVar("T")

MAX_KEPT_TEXTS = 64
"""Texts of documents that are kept for other cases that have the same file."""


class FileReader(Protocol):
    """What a `file_processor` of the caller's own has to have."""

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read. May block."""
        ...


class FileProcessor:
    """Converts files to text.

    Args:
        cache_dir: The folder for downloaded files; None to keep none.
        download_timeout_ms: Milliseconds the download of one file may take, retries included.
        max_retries: Further attempts of a download after an error that may pass.
        processing_timeout_ms: Milliseconds the conversion of one file may take.
        base_dir: Where relative paths start, and what files must lie in; else the working folder.
        allowed_hosts: Hosts, as `host` or `host:port`, to download from although their addresses
            are not public.
    """

    def __init__(
        self,
        cache_dir: str | None = None,
        download_timeout_ms: int = 30_000,
        max_retries: int = 3,
        processing_timeout_ms: int = 30_000,
        base_dir: Path | None = None,
        allowed_hosts: tuple[str, ...] = (),
    ) -> None:
        self.processing_timeout_ms = processing_timeout_ms
        self.base_dir = base_dir
        self.download_rules = DownloadRules(
            timeout=download_timeout_ms / 1000,
            max_retries=max_retries,
            allowed_hosts=allowed_hosts,
            cache_dir=None if cache_dir is None else Path(cache_dir),
        )
        self._workers = Workers()
        self._texts: dict[tuple[bytes, Job], str] = {}

    @classmethod
    def from_execution_config(
        cls,
        config: ExecutionConfig,
        cache_dir: str | None = None,
        max_retries: int = 3,
        base_dir: Path | None = None,
    ) -> "FileProcessor":
        """Return a processor with the limits of the settings.

        `cache_dir` replaces the folder of the settings; `execution.cache_enabled` applies to both.
        """
        rules = DownloadRules.from_settings(config, base_dir)
        folder = None if rules.cache_dir is None else cache_dir or str(rules.cache_dir)
        timeout = 30.0 if config.file_timeout is None else config.file_timeout
        return cls(
            cache_dir=folder,
            download_timeout_ms=round(rules.timeout * 1000),
            max_retries=max_retries,
            processing_timeout_ms=round(timeout * 1000),
            base_dir=base_dir,
            allowed_hosts=rules.allowed_hosts,
        )

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read; never raises. Blocks."""
        started = time.perf_counter()
        source = _Source(file_input, self.base_dir or Path.cwd(), self.download_rules)
        text, failure = "", None
        try:
            text = self._read(source)
        except Exception as error:  # noqa: BLE001 - a parser may raise anything
            failure = self._reason(error)
        return ProcessedFileInput(
            original=file_input,
            markdown_content=text,
            metadata=source.metadata,
            cached_path=source.cached_path,
            processing_time_ms=round((time.perf_counter() - started) * 1000),
            error=failure,
        )

    def close(self) -> None:
        """End the processes that read documents; the processor can still be used."""
        self._workers.close()

    def _read(self, source: "_Source") -> str:
        """Return the text of a file. Raises what `_reason` knows."""
        kind = source.file.type
        data = _call_in_thread(source.load, self._seconds + source.download_seconds)
        if not data:
            raise ValueError("is empty")
        if kind in PLAIN_TYPES:
            text = _call_in_thread(partial(plain_as_markdown, data, kind), self._seconds)
        else:
            text = self._read_document(source.file, data)
        if not text.strip():
            raise ValueError("no text could be read from it")
        return text

    def _read_document(self, file: FileInput, data: bytes) -> str:
        """Return the text of a document or an image, read in another process, once per content."""
        if file.type == "image":
            media_type_of(data)
            job = Job("image", program=ocr_program())
        else:
            check_signature(data, file.type)
            pages = tuple(sorted(file.page_numbers))
            job = Job(file.type, pages, file.sheet, file.range)
        key = (hashlib.sha256(data).digest(), job)
        if key not in self._texts:
            text = self._workers.read(job, data, self._seconds)
            if len(self._texts) >= MAX_KEPT_TEXTS:
                self._texts.clear()
            self._texts[key] = text
        return self._texts[key]

    @property
    def _seconds(self) -> float:
        return self.processing_timeout_ms / 1000

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


async def process_in_thread(files: FileReader, file: FileInput) -> ProcessedFileInput:
    """Run `process_file` in a thread, without blocking the event loop.

    What a processor of the caller's own raises becomes the `error` of its result.
    """
    try:
        return await run_in_thread(partial(files.process_file, file), name="holodeck-file")
    except Exception as error:  # noqa: BLE001 - the caller's code may raise anything
        return ProcessedFileInput(original=file, markdown_content="", error=describe(error))


class _Source:
    """Where the content of a file comes from, and what is known about it."""

    def __init__(self, file: FileInput, base_dir: Path, rules: DownloadRules) -> None:
        self.file = file
        self.cached_path: str | None = None
        self.metadata: dict[str, str | int] = {
            "path" if file.url is None else "url": file.shown_path,
            "type": file.type,
        }
        selected = {"pages": file.pages, "sheet": file.sheet, "range": file.range}
        self.metadata |= {
            f"{name}_extracted": ", ".join(map(str, value)) if name == "pages" else str(value)
            for name, value in selected.items()
            if value is not None
        }
        self._base_dir = base_dir
        self._rules = replace(rules, cache_dir=None) if file.cache is False else rules

    @property
    def download_seconds(self) -> float:
        """The time that a download may take in addition."""
        return 0.0 if self.file.url is None else self._rules.timeout

    def load(self) -> bytes:
        """Return the content."""
        if self.file.url is None:
            return self._load_from_disk()
        found = asyncio.run(download(self.file.url, self._rules))
        self.metadata["size_bytes"] = len(found.data)
        if found.media_type is not None:
            self.metadata["media_type"] = found.media_type
        self.cached_path = None if found.cached_path is None else str(found.cached_path)
        return found.data

    def _load_from_disk(self) -> bytes:
        path = file_inside(self.file.shown_path, self._base_dir)
        size = path.stat().st_size
        self.metadata["size_bytes"] = size
        if size > MAX_BYTES:
            raise ValueError(
                f"is {size / 1e6:,.1f} MB large; at most {MAX_BYTES / 1e6:,.0f} MB are read"
            )
        with path.open("rb") as file:
            return file.read(MAX_BYTES)


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
