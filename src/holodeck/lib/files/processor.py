"""The files of a test case, as text for the agent."""

import contextvars
import threading
import time
from functools import partial
from pathlib import Path

from holodeck.errors import ConfigError, MissingExtra, NotSupportedYet
from holodeck.lib.files.documents import as_markdown
from holodeck.lib.files.text import decoded
from holodeck.lib.safe_paths import file_inside
from holodeck.lib.threads import run_in_thread
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import FileInput
from holodeck.models.test_result import ProcessedFileInput

MOST_BYTES = 50_000_000
_NATIVE = frozenset({"text", "csv"})


class FileProcessor:
    """Turns files into text.

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
        """A processor with the time limit of the settings."""
        if config.file_timeout is None:
            return cls(base_dir=base_dir)
        return cls(processing_timeout_ms=round(config.file_timeout * 1000), base_dir=base_dir)

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """The file's text, or the `error` that kept it from being read; never raises.

        Blocks; a conversion that takes too long is left behind in a thread of its own.
        """
        started = time.perf_counter()
        reading = _Reading(file_input, self.base_dir or Path.cwd())
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

    async def process_file_async(self, file_input: FileInput) -> ProcessedFileInput:
        """`process_file` beside the event loop."""
        return await run_in_thread(partial(self.process_file, file_input), name="holodeck-file")


class _Reading(threading.Thread):
    """One file being read; a daemon, so that a hanging parser does not keep the program alive."""

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
        text = decoded(data) if kind in _NATIVE else as_markdown(data, kind)
        if not text.strip():
            raise ValueError("no text could be read from it" if data else "is empty")
        return text
