"""The documents of a tool: one for each file of its source, or for each record."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from holodeck.errors import ConfigError
from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.knowledge.chunking import Section
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
from holodeck.lib.support.text import did_you_mean_or_list, instance_of, to_text
from holodeck.models.tools.knowledge import KnowledgeTool, VectorstoreTool

MOST_RECORDS = 200_000
_DELIMITERS = ",;\t|"
_MISSING = object()
JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A record, and the objects around it that have further fields."""

    place: str
    """Such as `record 3` or `line 7`."""
    own: JsonObject
    around: Sequence[JsonObject] = ()
    """The objects that contain it, innermost first."""

    def get(self, name: str, prefix: str) -> Any:
        """Return the value of a field, `_MISSING` without it; a name may be a path with dots."""
        short = name.removeprefix(prefix)
        for fields, key in ((self.own, short), *((around, name) for around in self.around)):
            value = fields.get(key, _MISSING)
            value = _value_at(fields, key) if value is _MISSING and "." in key else value
            if value is not _MISSING:
                return value
        return _MISSING


def record_documents(text: str, name: str, config: VectorstoreTool) -> list[Document]:
    """Return a document for each record of a file with this text and name.

    Raises ValueError, which says which record has no id or a field that is not there.
    """
    documents: dict[str, Document] = {}
    for record in _records(text, PurePosixPath(name).suffix.lower(), config):
        if len(documents) == MOST_RECORDS:
            raise ValueError(f"has more than {MOST_RECORDS:,} records")
        document = _document(record, name, config)
        if document.id in documents:
            key = document.id.removeprefix(f"{name}#")
            raise ValueError(f"{record.place}: the {config.id_field} {key!r} is used twice")
        documents[document.id] = document
    return list(documents.values())


def _document(record: Record, name: str, config: VectorstoreTool) -> Document:
    prefix = config.record_prefix or ""
    key = _text_of(record, config.id_field or "", prefix)
    if not key.strip():
        raise ValueError(f"{record.place}: the {config.id_field} is empty")
    texts = [_text_of(record, field, prefix) for field in config.vector_fields]
    text = config.field_separator.join(filter(None, texts))
    metadata = _metadata(record, config, prefix)
    sections = [Section(text)] if text.strip() else []
    return Document(f"{name}#{key}", digest_of(text), lambda: sections, metadata=metadata)


def _metadata(record: Record, config: VectorstoreTool, prefix: str) -> dict[str, Any]:
    if config.meta_fields is None:
        used = {
            field.removeprefix(prefix) for field in (*config.vector_fields, config.id_field or "")
        }
        others = {key: value for key, value in record.own.items() if key not in used}
        return {f"{prefix}{key}": value for key, value in others.items() if value is not None}
    values = {field: _field(record, field, prefix) for field in config.meta_fields}
    return {f"{config.meta_prefix or ''}{field}": value for field, value in values.items()}


def _field(record: Record, name: str, prefix: str) -> Any:
    value = record.get(name, prefix)
    if value is _MISSING:
        known = [f"{prefix}{field}" for field in record.own]
        hint = did_you_mean_or_list(name, known)
        raise ValueError(f"{record.place}: there is no field {name!r}{hint}")
    return value


def _text_of(record: Record, name: str, prefix: str) -> str:
    value = _field(record, name, prefix)
    return "" if value is None else to_text(value)


def _records(text: str, suffix: str, config: VectorstoreTool) -> Iterator[Record]:
    match suffix:
        case ".jsonl":
            return _json_lines(text)
        case ".json":
            return _json_records(text, config.record_path)
    return _csv_records(text, "\t" if suffix == ".tsv" else config.delimiter)


def _csv_records(text: str, delimiter: str | None) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or _delimiter_of(text))
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if not any(row):
                continue
            place = f"line {reader.line_num}"
            if len(row) != len(header):
                raise ValueError(f"{place}: has {len(row)} columns, and the header {len(header)}")
            yield Record(place, dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from error


def _delimiter_of(text: str) -> str:
    """Return the separator of the columns that is most frequent in the first line."""
    first = text.partition("\n")[0]
    return max(_DELIMITERS, key=first.count)


def _json_lines(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            place = f"line {number}"
            yield Record(place, _require_object(_parse(line, f"{place}: "), place))


def _json_records(text: str, path: str | None) -> Iterator[Record]:
    document = _parse(text, "")
    number = 0
    for value, around in _descend(document, path.split(".") if path else [], ()):
        for item in _items(value, path):
            number += 1
            place = f"record {number}"
            yield Record(place, _require_object(item, place), around)


def _descend(
    value: Any, keys: Sequence[str], around: tuple[JsonObject, ...]
) -> Iterator[tuple[Any, tuple[JsonObject, ...]]]:
    """Yield the values at a path, which leads through lists, with the objects on the way."""
    if not keys:
        yield value, around
        return
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or keys[0] not in item:
            known = list(item) if isinstance(item, dict) else []
            hint = did_you_mean_or_list(keys[0], known)
            raise ValueError(f"record_path: there is no {keys[0]!r}{hint}")
        yield from _descend(item[keys[0]], keys[1:], (item, *around))


def _items(value: Any, path: str | None) -> list[Any]:
    if isinstance(value, list):
        return value
    if path is not None or not isinstance(value, dict):
        shown = f"record_path {path!r} leads to" if path else "contains"
        raise ValueError(f"{shown} {instance_of(value)}; a list of records is needed")
    lists = [key for key, item in value.items() if isinstance(item, list)]
    hint = f", such as 'record_path: {lists[0]}'" if lists else ""
    raise ValueError(f"contains an object; write where its list of records is{hint}")


def _require_object(value: Any, place: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - an error of the file
            f"{place}: is {instance_of(value)} instead of an object"
        )
    return value


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{place}is nested too deep") from error
    except json.JSONDecodeError as error:
        at = place or f"line {error.lineno}: "
        raise ValueError(f"{at}is not JSON: {error.msg} (column {error.colno})") from error


def _value_at(fields: JsonObject, path: str) -> Any:
    value: Any = fields
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


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
        documents = list(_documents(config, base_dir, processor, location, objects))
    except ConfigError as error:
        if error.field == location:
            raise
        raise ConfigError(location, str(error)) from error
    if not documents:
        raise ConfigError(location, f"{config.source} has no records")
    return documents


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
            text, name = read_text(file, processor), file.shown_path.partition("?")[0]
            if is_structured(config):
                yield from record_documents(text, name, config)
            else:
                yield Document(name, digest_of(text), partial(sections_of, text))
        return
    if objects is not None:
        files = [(stored.file, stored.url) for stored in objects]
    else:
        paths = find_files(config.source, base_dir, suffixes_of(config))
        files = [(path, name_of(path, base_dir)) for path in paths]
    for path, name in files:
        with _reading(location, name):
            if is_structured(config):
                yield from record_documents(read_text(input_of(path), processor), name, config)
            else:
                yield as_document(path, name, processor)


@contextmanager
def _reading(location: str, name: str) -> Iterator[None]:
    """Name the tool and the file in errors of reading it."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise reading_error(location, name, error) from error
