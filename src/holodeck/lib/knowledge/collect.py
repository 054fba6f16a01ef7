"""The documents of a tool: one for each file of its source, or for each record."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeGuard

from holodeck.errors import ConfigError
from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.knowledge.documents import (
    DOCUMENT_SUFFIXES,
    RECORD_SUFFIXES,
    Document,
    as_document,
    digest_of,
    find_files,
    input_of,
    is_remote,
    name_of,
    read_text,
    reading_error,
    remote_input,
    sections_of,
)
from holodeck.lib.knowledge.objects import StoredObject
from holodeck.lib.knowledge.records import record_documents
from holodeck.models.test_case import FileInput
from holodeck.models.tools.knowledge import KnowledgeTool, VectorstoreTool


def collect_documents(
    config: KnowledgeTool,
    base_dir: Path,
    processor: FileProcessor,
    objects: Sequence[StoredObject] | None = None,
) -> list[Document]:
    """Return the documents of a tool; reads or downloads its files, and blocks.

    `objects` are those of a source in object storage, which `processor` can read. Raises
    ConfigError, which names the tool and the file.
    """
    location = f"tools.{config.name}.source"
    try:
        found = list(_documents(config, base_dir, processor, location, objects))
    except ConfigError as error:
        if error.field == location:
            raise
        raise ConfigError(location, str(error)) from error
    if not found:
        raise ConfigError(location, f"{config.source} has no records")
    return found


def suffixes_of(config: KnowledgeTool) -> tuple[str, ...]:
    """Return how the names of a tool's files end."""
    return RECORD_SUFFIXES if is_structured(config) else DOCUMENT_SUFFIXES


def is_structured(config: KnowledgeTool) -> TypeGuard[VectorstoreTool]:
    """Whether the files of a tool hold records."""
    return isinstance(config, VectorstoreTool) and bool(config.vector_fields)


def _documents(
    config: KnowledgeTool,
    base_dir: Path,
    processor: FileProcessor,
    location: str,
    objects: Sequence[StoredObject] | None,
) -> Iterator[Document]:
    if is_remote(config.source):
        file = remote_input(config.source, suffixes_of(config))
        with _reading(location, file.shown_path):
            yield from _remote_documents(config, file, processor)
        return
    for path, name in _files(config, base_dir, objects):
        with _reading(location, name):
            if is_structured(config):
                yield from record_documents(read_text(input_of(path), processor), name, config)
            else:
                yield as_document(path, name, processor)


def _files(
    config: KnowledgeTool, base_dir: Path, objects: Sequence[StoredObject] | None
) -> Iterator[tuple[Path, str]]:
    """Yield the files of a source with the names of their documents."""
    if objects is not None:
        for one in objects:
            yield one.file, one.url
        return
    for path in find_files(config.source, base_dir, suffixes_of(config)):
        yield path, name_of(path, base_dir)


def _remote_documents(
    config: KnowledgeTool, file: FileInput, processor: FileProcessor
) -> Iterable[Document]:
    text = read_text(file, processor)
    name = file.shown_path.partition("?")[0]
    if is_structured(config):
        return record_documents(text, name, config)
    return [Document(name, digest_of(text), partial(sections_of, text))]


@contextmanager
def _reading(location: str, name: str) -> Iterator[None]:
    """Name the tool and the file in errors of reading it."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise reading_error(location, name, error) from error
