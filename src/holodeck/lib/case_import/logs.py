"""Chat logs in JSON and JSON Lines: one conversation a document or line, or one message a line."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import Imported
from holodeck.lib.case_import.messages import (
    CONVERSATION_KEYS,
    ConversationReader,
    Located,
    is_message,
)
from holodeck.lib.support.text import one_line

_LISTS = ("messages", "conversations", "conversation", "input")
"""The keys under which logs write the messages of a conversation."""
_ENVELOPES = ("request", "body", "kwargs", "params")
"""The keys under which logs write the request, with the messages in it."""
_NAMES = ("name", "title", "custom_id", "id", *CONVERSATION_KEYS)
_DECODER = json.JSONDecoder()


def json_values(text: str, name: str, imported: Imported) -> Iterator[Located]:
    """Yield the values of a JSON list or of JSON Lines, each with its line.

    A line that is no JSON is noted. Raises ConfigError if nothing can be read.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        yield from _items(text, name)
        return
    try:
        yield f"{name}:1", json.loads(start)
    except (ValueError, RecursionError):
        yield from _lines(text, name, imported)


def read_conversations(values: list[Located], imported: Imported) -> None:
    """Add a case for each conversation; values are conversations, or the messages of one."""
    if values and all(is_message(value) and _messages(value) is None for _, value in values):
        ConversationReader(values[0][0], imported).read(values)
        return
    for location, value in values:
        messages = value if isinstance(value, list) else _messages(value)
        if messages is None:
            found = ", ".join(value) if isinstance(value, Mapping) else repr(value)
            imported.note(location, f"no conversation, left out: {one_line(found, 80)}")
            continue
        messages = [*messages, *_answers(value)]
        name = _name(value) if isinstance(value, Mapping) else None
        ConversationReader(location, imported, name).read((location, one) for one in messages)


def read_transcripts(values: list[Located], imported: Imported) -> None:
    """Add a case for each conversation of a file with one message a line."""
    conversations: dict[str, list[Located]] = {}
    for location, value in values:
        if not is_message(value):
            imported.note(location, f"no message, left out: {one_line(repr(value), 80)}")
            continue
        keys = (value[key] for key in CONVERSATION_KEYS if value.get(key) is not None)
        conversations.setdefault(str(next(keys, "")), []).append((location, value))
    if len(conversations) > 1 and "" in conversations:
        for location, _ in conversations.pop(""):
            imported.note(location, "left out: it does not say to which conversation it belongs")
    for key, messages in conversations.items():
        ConversationReader(messages[0][0], imported, key or None).read(messages)


def has_messages(value: object) -> bool:
    """Whether a value is a conversation."""
    return isinstance(value, list) or _messages(value) is not None


def _messages(value: object) -> list[Any] | None:
    """Return the messages of a conversation; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    for key in _LISTS:
        if isinstance(value.get(key), list) and any(map(is_message, value[key])):
            return list(value[key])
    if isinstance(value.get("input"), str) and "output" in value:  # of the Responses API
        return [{"role": "user", "content": value["input"]}]
    for key in _ENVELOPES:
        found = _messages(value.get(key))
        if found is not None:
            return found
    return None


def _answers(value: object) -> list[Any]:
    """Return what the model answered, where a log keeps request and response apart."""
    if not isinstance(value, Mapping):
        return []
    choices, output = value.get("choices"), value.get("output")
    if isinstance(choices, list):
        first = choices[0] if choices and isinstance(choices[0], Mapping) else {}
        return [first["message"]] if isinstance(first.get("message"), Mapping) else []
    if isinstance(output, list):
        return output
    for key in ("response", "body", "completion"):
        if isinstance(value.get(key), Mapping):
            found = _answers(value[key])
            if found:
                return found
    return []


def _name(value: Mapping[str, Any]) -> str | None:
    return next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)


def _items(text: str, name: str) -> Iterator[Located]:
    """Yield the items of a JSON list, each with its line."""
    position, line, counted = text.index("[") + 1, 1, 0
    while True:
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        line += text.count("\n", counted, position)
        counted = position
        if position < len(text) and text[position] == "]":
            return
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}:{line}", f"cannot be read as JSON: {error}") from error
        yield f"{name}:{line}", value


def _lines(text: str, name: str, imported: Imported) -> Iterator[Located]:
    found = False
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip("\ufeff \t\r"):
            continue
        try:
            value = json.loads(line.strip("\ufeff"))
        except (ValueError, RecursionError) as error:
            imported.note(f"{name}:{number}", f"left out: cannot be read as JSON: {error}")
            continue
        found = True
        yield f"{name}:{number}", value
    if not found:
        raise ConfigError(name, "holds neither JSON nor JSON Lines")
