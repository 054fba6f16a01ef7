"""Finds out what a source of test cases is, and reads it."""

from pathlib import Path
from typing import Literal, get_args

from holodeck.config.source import Source, read_bytes
from holodeck.config.suite_files import is_yaml
from holodeck.config.yaml_nodes import decode_text
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import Imported
from holodeck.lib.case_import.logs import (
    has_messages,
    json_values,
    read_conversations,
    read_transcripts,
)
from holodeck.lib.case_import.messages import CONVERSATION_KEYS, is_message
from holodeck.lib.case_import.promptfoo import KEYS, read_promptfoo
from holodeck.lib.case_import.records import read_results
from holodeck.lib.records.run_store import RunStore

Format = Literal["openai", "jsonl", "record", "promptfoo"]
FORMATS: tuple[Format, ...] = get_args(Format)
MAX_LOG_BYTES = 500_000_000
_KINDS = (
    "a chat log (openai), a transcript (jsonl), a run record (record) or a configuration of"
    " promptfoo (promptfoo)"
)


def read_source(source: str, store: RunStore, written_as: Format | None = None) -> Imported:
    """Return the cases of a file or recorded run, and what of it they lack.

    Args:
        source: The path of a file, or the ID of a run.
        store: The recorded runs.
        written_as: The format; None means to find it out.

    Raises ConfigError if the source cannot be read, or if its format is unknown.
    """
    imported, path = Imported(), Path(source)
    if not path.is_file() or written_as == "record":
        if written_as not in (None, "record"):
            raise ConfigError(source, "no such file")
        _read_run(source, store, imported)
    elif written_as == "promptfoo" or (written_as is None and is_yaml(path)):
        _read_yaml(path, imported)
    else:
        _read_json(path, store, imported, written_as)
    return imported


def _read_run(name: str, store: RunStore, imported: Imported) -> None:
    run = store.read(name)
    for warning in run.warnings:
        imported.note(name, warning)
    read_results(run.id, run.results, imported)


def _read_yaml(path: Path, imported: Imported) -> None:
    source = Source.read(path)
    if not any(key in source.data() for key in KEYS):
        raise ConfigError(str(path), f"is no configuration of promptfoo; expected {_KINDS}")
    read_promptfoo(source, path.absolute().parent, imported)


def _read_json(path: Path, store: RunStore, imported: Imported, written_as: Format | None) -> None:
    name = str(path)
    text = decode_text(read_bytes(path, name, MAX_LOG_BYTES), name)
    values = list(json_values(text, name, imported))
    first = values[0][1] if values else None
    if (
        written_as is None
        and isinstance(first, dict)
        and {"event", "schema_version"} <= first.keys()
    ):
        _read_run(name, store, imported)
    elif written_as == "jsonl" or (written_as is None and _is_transcript(first)):
        read_transcripts(values, imported)
    elif written_as == "openai" or any(has_messages(one) or is_message(one) for _, one in values):
        read_conversations(values, imported)
    else:
        raise ConfigError(name, f"its format is unknown; expected {_KINDS}; name it with --from")


def _is_transcript(value: object) -> bool:
    """Whether the first line is a message that names its conversation."""
    return (
        is_message(value)
        and isinstance(value, dict)
        and any(value.get(key) is not None for key in CONVERSATION_KEYS)
        and not has_messages(value)
    )
