"""Load the earlier messages of a test case, from the case or from a transcript file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holodeck.config.cases.rows import Rows, parse_json_document, parse_json_lines, to_node
from holodeck.config.yaml.nodes import Node, compose, decode_text
from holodeck.config.yaml.source import (
    Locations,
    NodeSource,
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
    try:
        source, found = _read_transcript(path, history.file)
        indices = [index for index, one in enumerate(found) if not _is_left_out(one, history)]
        return _validate([found[index] for index in indices], _SelectedMessages(source, indices))
    except ConfigError as error:
        raise ConfigError(location, str(error)) from error


def _read_transcript(path: Path, name: str) -> tuple[NodeSource, list[Any]]:
    """Return the file and its list of messages; variables are not substituted."""
    source, found = _parse(path, decode_text(read_bytes(path, name), name), name)
    if not isinstance(found, list):
        raise ConfigError(f"{name}:1:1", "expected a list of messages")
    return source, found


def _parse(path: Path, text: str, name: str) -> tuple[NodeSource, Any]:
    if path.suffix == ".jsonl":
        lines = parse_json_lines(text, name)
        return Source(name, _to_list_node(lines)), list(lines.values)
    if path.suffix == ".json":
        return parse_json_document(text, name)
    source = Source(name, compose(text, name))
    return source, source.value()


def _to_list_node(lines: Rows) -> Node:
    nodes = [to_node(*value) for value in zip(lines.values, lines.lines, strict=True)]
    return Node(nodes, 1, 1)


def _is_left_out(message: Any, history: TranscriptFile) -> bool:
    return isinstance(message, dict) and message.get("role") in history.leave_out


class _SelectedMessages:
    """The locations of the messages that are not left out."""

    def __init__(self, source: NodeSource, indices: Sequence[int]) -> None:
        self.name = source.name
        self._source = source
        self._indices = indices

    def find(self, path: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], Node]:
        """Return the node at a path, and its path without parts that the file does not have."""
        match path:
            case (int(index), *rest):
                return self._source.find((self._indices[index], *rest))
        return self._source.find(path)

    def forget_items(self) -> None:
        """Keep only what locations need."""
        self._source.forget_items()


def _validate(messages: list[Any], source: _SelectedMessages) -> list[EarlierMessage]:
    try:
        return _HISTORY.validate_python(messages)
    except ValidationError as error:
        raise config_error(error, Locations(source), EarlierMessage) from None
