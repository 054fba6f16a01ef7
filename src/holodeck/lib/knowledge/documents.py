"""Documents of a source: finding files, and reading them as sections of text."""

import glob
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from holodeck.errors import ConfigError
from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.files.remote_files import MAX_BYTES
from holodeck.lib.knowledge.chunking import Section
from holodeck.lib.support.safe_paths import file_inside, path_inside
from holodeck.lib.support.text import did_you_mean
from holodeck.models.test_case import FileInput, FileType

MOST_FILES = 10_000
TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".rst", ".csv", ".json", ".jsonl")
CONVERTED_SUFFIXES: Mapping[str, FileType] = {
    ".pdf": "pdf",
    ".docx": "word",
    ".xlsx": "excel",
    ".pptx": "powerpoint",
}
RECORD_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl")
DOCUMENT_SUFFIXES = (*TEXT_SUFFIXES, *CONVERTED_SUFFIXES)
_PAGE = re.compile(r"^<!-- (?:Page|Slide) number: (\d+) -->\n", re.MULTILINE)
"""The line above each page in the text of a document."""


@dataclass(frozen=True)
class Document:
    """A document of a source: a file, or one record of a file."""

    id: str
    """Its path relative to the agent.yaml; of a record, with `#` and the record's id."""
    digest: str
    """Hash of its content."""
    read: Callable[[], list[Section]]
    """Returns its text; may block. Raises ValueError with the reason, or OSError."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Of a record: the fields that are returned with it."""


def find_files(source: str, base_dir: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a source, sorted; relative paths start from `base_dir`.

    Raises ConfigError or FileNotFoundError without a location: the source names no file, too many,
    or one outside of the agent's folder.
    """
    path = _local_path(source)
    # before a folder elsewhere, which may be the whole disk, is searched
    fixed = itertools.takewhile(lambda part: not glob.has_magic(part), Path(path).parts)
    path_inside(Path(*fixed), base_dir)
    whole = base_dir / path
    if whole.is_dir():
        paths = _files_below(whole, suffixes)
    elif glob.has_magic(path) and not whole.exists():
        # unlike Path.glob, it leaves out hidden files
        names = glob.iglob(path, root_dir=base_dir, recursive=True)  # noqa: PTH207
        paths = (file for name in names if _is_wanted(file := base_dir / name, suffixes))
    else:
        return [_single_file(path, base_dir, suffixes)]
    files = sorted(itertools.islice(paths, MOST_FILES + 1))
    if not files:
        raise ConfigError(source, f"has no file that ends with {', '.join(suffixes)}")
    if len(files) > MOST_FILES:
        raise ConfigError(source, f"has more than {MOST_FILES:,} files; name a smaller folder")
    return [file_inside(file, base_dir) for file in files]


def _local_path(source: str) -> str:
    """Return the path in a source. Raises ConfigError for another place."""
    scheme, has_scheme, _ = source.partition("://")
    if not has_scheme:
        return source
    if scheme == "file":
        return unquote(urlsplit(source).path)
    raise ConfigError(
        source, f"{scheme}:// is not supported; write a path, or an https, s3 or az URL"
    )


def _files_below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(parent, name)
            if not name.startswith(".") and _is_wanted(file, suffixes):
                yield file


def _is_wanted(file: Path, suffixes: tuple[str, ...]) -> bool:
    return file.suffix.lower() in suffixes and file.is_file()


def _single_file(path: str, base_dir: Path, suffixes: tuple[str, ...]) -> Path:
    file = file_inside(path, base_dir)
    if file.suffix.lower() not in suffixes:
        hint = did_you_mean(file.suffix, suffixes, f"; known: {', '.join(suffixes)}")
        raise ConfigError(path, f"files that end with {file.suffix!r} cannot be read{hint}")
    return file


def name_of(file: Path, base_dir: Path) -> str:
    """Return the path of a file relative to the folder, if it lies inside."""
    try:
        return file.relative_to(base_dir.resolve()).as_posix()
    except ValueError:
        return file.as_posix()


def as_document(file: Path, name: str, processor: FileProcessor) -> Document:
    """Return the document that a file is; reads the file. Raises ValueError or OSError."""
    size = file.stat().st_size
    if size > MAX_BYTES:
        most = f"{MAX_BYTES / 1e6:,.0f}"
        raise ValueError(f"is {size / 1e6:,.1f} MB large; at most {most} MB are read")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Document(name, digest, partial(read_sections, file, processor))


def read_sections(file: Path, processor: FileProcessor) -> list[Section]:
    """Return the text of a file, one section for each page if it has pages; [] without text.

    Raises ValueError with the reason.
    """
    if not file.stat().st_size:
        return []
    return sections_of(read_text(input_of(file), processor))


def input_of(file: Path) -> FileInput:
    """Return what a processor needs to know of a file."""
    return FileInput(path=str(file), type=CONVERTED_SUFFIXES.get(file.suffix.lower(), "text"))


def remote_input(url: str, suffixes: tuple[str, ...]) -> FileInput:
    """Return what a processor needs to know of a remote file. Raises ConfigError for its type."""
    suffix = PurePosixPath(urlsplit(url).path).suffix.lower()
    if suffix not in suffixes:
        raise ConfigError(url, f"its path must end with {', '.join(suffixes)}")
    return FileInput(url=url, type=CONVERTED_SUFFIXES.get(suffix, "text"))


def is_remote(source: str) -> bool:
    """Whether a source is the URL of a file to download."""
    return source.lower().startswith(("http://", "https://"))


def sections_of(text: str) -> list[Section]:
    """Return the parts of a text, one for each page if it has pages; [] without text."""
    before, *pages = _PAGE.split(text)
    numbered = zip(pages[::2], pages[1::2], strict=True)
    sections = [Section(before), *(Section(page, page=int(at)) for at, page in numbered)]
    return [section for section in sections if section.text.strip()]


def read_text(file: FileInput, processor: FileProcessor) -> str:
    """Return the text of a file; downloads a remote one. Raises ValueError with the reason."""
    read = processor.process_file(file)
    if read.error is not None:
        raise ValueError(read.error)
    return read.markdown_content


def digest_of(value: Any) -> str:
    """Return a hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def reading_error(location: str, name: str, error: Exception) -> ConfigError:
    """Return the error for a document that cannot be read."""
    reason = str(error)
    if isinstance(error, OSError):
        reason = f"cannot be read: {error.strerror or error}"
    return ConfigError(location, reason if reason.startswith(name) else f"{name}: {reason}")
