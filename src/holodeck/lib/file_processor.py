"""The files of a test case, as text or images for the agent."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support import environment
from holodeck.lib.support.text import describe
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import FileInput
from holodeck.models.test_result import ProcessedFileInput

if TYPE_CHECKING:
    from holodeck.lib.files.reader import DocumentReader
    from holodeck.models.cases.messages import Image

__all__ = ["FileProcessor", "FileReader", "ImageReader", "load_file"]


class FileReader(Protocol):
    """What a `file_processor` of the caller's own has to have."""

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read. May block."""
        ...


@runtime_checkable
class ImageReader(Protocol):
    """A processor that can read an image for a model that takes images."""

    def read_image(self, file_input: FileInput) -> "tuple[ProcessedFileInput, Image | None]":
        """Return the image; None together with the `error` why it cannot be read. May block."""
        ...


class FileProcessor:
    """Converts files to text. Its parts are imported for the first file.

    Args:
        cache_dir: The folder for downloaded files; None to keep none.
        download_timeout_ms: Milliseconds the download of a file may take, retries included.
        max_retries: Further attempts of a download after an error that may pass.
        processing_timeout_ms: Milliseconds the conversion of a file may take.
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
        self.cache_dir = cache_dir
        self.download_timeout_ms = download_timeout_ms
        self.max_retries = max_retries
        self.processing_timeout_ms = processing_timeout_ms
        self.base_dir = base_dir
        self.allowed_hosts = allowed_hosts

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
        if config.cache_enabled is False:
            cache_dir = None
        elif cache_dir is None:
            folder = config.path_of("cache_dir", base_dir or Path()) or environment.cache_dir()
            cache_dir = str(folder / "files")
        timeouts = {
            "download_timeout_ms": config.download_timeout,
            "processing_timeout_ms": config.file_timeout,
        }
        return cls(
            cache_dir=cache_dir,
            max_retries=max_retries,
            base_dir=base_dir,
            allowed_hosts=tuple(config.allowed_hosts or ()),
            **{
                name: round(timeout * 1000)
                for name, timeout in timeouts.items()
                if timeout is not None
            },
        )

    def process_file(self, file_input: FileInput) -> ProcessedFileInput:
        """Return the file's text, or the `error` why it cannot be read; never raises. Blocks."""
        return self._reader.read_text(file_input, self.base_dir or Path.cwd())

    def read_image(self, file_input: FileInput) -> "tuple[ProcessedFileInput, Image | None]":
        """Return an image for a model; None together with the `error`. Never raises; blocks."""
        return self._reader.read_image(file_input, self.base_dir or Path.cwd())

    def close(self) -> None:
        """End the processes that read documents; the processor can still be used."""
        if "_reader" in self.__dict__:
            self._reader.close()

    @cached_property
    def _reader(self) -> "DocumentReader":
        from holodeck.lib.files.reader import DocumentReader  # noqa: PLC0415 - few cases have files

        return DocumentReader(
            self.processing_timeout_ms / 1000,
            download_seconds=self.download_timeout_ms / 1000,
            max_retries=self.max_retries,
            allowed_hosts=self.allowed_hosts,
            cache_dir=None if self.cache_dir is None else Path(self.cache_dir),
        )


@dataclass(frozen=True)
class LoadedFile:
    """A file of a turn, as it goes to the agent."""

    processed: ProcessedFileInput
    image: "Image | None" = None
    """The image itself; None if only its text is sent."""


async def load_file(files: FileReader, file: FileInput, *, accepts_images: bool) -> LoadedFile:
    """Read a file in a thread, without blocking the event loop.

    An image becomes text by OCR unless the agent accepts images. What a processor of the caller's
    own raises becomes the `error` of its result.
    """
    is_image = file.type == "image" and accepts_images and not file.ocr
    try:
        if is_image and isinstance(files, ImageReader):
            image = await run_in_thread(partial(files.read_image, file), name="holodeck-file")
            return LoadedFile(*image)
        text = await run_in_thread(partial(files.process_file, file), name="holodeck-file")
        return LoadedFile(text)
    except Exception as error:  # noqa: BLE001 - the caller's code may raise anything
        reason = describe(error)
        return LoadedFile(ProcessedFileInput(original=file, markdown_content="", error=reason))
