"""Load the earlier messages of a test case, from the case or from a transcript file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holodeck.config.cases.rows import parse_json_document, parse_json_lines, to_node
from holodeck.config.yaml.nodes import Node, compose, decode_text
from holodeck.config.yaml.source import (
    Locations,
    NodeSource,
    Origin,
    Source,
    find_file,
    location_of,
    read_bytes,
)
from holodeck.config.yaml.validation_errors import config_error
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.cases.history import EarlierMessage, Messages, TranscriptFile

SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
_HISTORY: TypeAdapter[list[EarlierMessage]] = TypeAdapter(
    Messages, config=ConfigDict(defer_build=True)
)


def load_history(agent: Agent, index: int) -> Sequence[EarlierMessage]:
    """Return the messages before the case with this index; empty for a new conversation.

    Raises FileNotFoundError, or ConfigError with the location in the transcript.
    """
    history = (agent.test_cases or [])[index].history
    if not isinstance(history, TranscriptFile):
        return history or ()
    location = location_of(agent, "test_cases", index, "history", "file")
    path = find_file(history.file, agent.base_dir, location)
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            location, f"unknown file type {history.file!r}; use {', '.join(SUFFIXES)}"
        )
    return _load(path, history, location)


def _load(path: Path, history: TranscriptFile, location: str) -> list[EarlierMessage]:
    """Return the messages of a file; variables are not substituted."""
    try:
        rows = _read_transcript(path, history.file)
        kept = [(message, at) for message, at in rows if not _is_left_out(message, history)]
        try:
            return _HISTORY.validate_python([message for message, _ in kept])
        except ValidationError as error:
            first = Source(history.file, Node(None, 1, 1))
            locations = Locations(first, [at for _, at in kept])
            raise config_error(error, locations, EarlierMessage, ("test_cases",)) from None
    except ConfigError as error:
        raise ConfigError(location, str(error)) from error


def _read_transcript(path: Path, name: str) -> list[tuple[Any, Origin]]:
    """Return the messages of a file, each with its origin."""
    text = decode_text(read_bytes(path, name), name)
    source: NodeSource
    if path.suffix == ".jsonl":
        rows = parse_json_lines(text, name)
        values = [row.value for row in rows]
        source = Source(name, Node([to_node(row.value, row.line) for row in rows], 1, 1))
    elif path.suffix == ".json":
        source, values = parse_json_document(text, name)
    else:
        source = Source(name, compose(text, name))
        values = source.value()
    if not isinstance(values, list):
        raise ConfigError(f"{name}:1:1", "expected a list of messages")
    return [(value, Origin(source, (index,))) for index, value in enumerate(values)]


def _is_left_out(message: Any, history: TranscriptFile) -> bool:
    return isinstance(message, dict) and message.get("role") in history.leave_out
