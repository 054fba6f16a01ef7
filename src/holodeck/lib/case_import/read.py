"""Finds out what a source of test cases is, a log or a recorded run for example, and reads it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from holodeck.config.cases.suite_files import is_yaml
from holodeck.config.yaml.source import Source, read_file
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import (
    CONVERSATION_KEYS,
    LOOSELY,
    Imported,
    ImportedCase,
    Located,
    LoggedCall,
    LoggedTurn,
    is_message,
)
from holodeck.lib.case_import.promptfoo import KEYS, PromptfooReader
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.support.text import one_line, plural
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult, ToolInvocation, TurnResult

_LISTS = ("messages", "conversations", "conversation", "input")
"""The keys under which logs write the messages of a conversation."""
_ENVELOPES = ("request", "body", "kwargs", "params")
"""The keys under which logs write the request, with the messages in it."""
_EXPECTED = ("ideal", "target", "expected", "expected_output", "ground_truth")
"""The keys under which evaluations write the right answer, or several."""
_CHOICES = "choices"
"""The answers to choose from, as texts; in the responses of OpenAI, the answers themselves."""
_NAMES = ("name", "title", "custom_id", "id", *CONVERSATION_KEYS)
_READ_KEYS = {
    *_LISTS, *_ENVELOPES, *_NAMES, _CHOICES, "output", "response", "completion",
}  # fmt: skip
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
        imported.add(values[0][0], values)
        return
    left_out: dict[str, list[str]] = {}
    for location, value in values:
        messages = value if isinstance(value, list) else _messages(value)
        if messages is None:
            text = ", ".join(value) if isinstance(value, Mapping) else repr(value)
            imported.note(location, f"no conversation, left out: {one_line(text, 80)}")
            continue
        written = value if isinstance(value, Mapping) else {}
        name = next((written[key] for key in _NAMES if isinstance(written.get(key), str)), None)
        said = ((location, message) for message in [*messages, *_answers(value)])
        before = len(imported.cases)
        imported.add(location, said, name)
        for case in imported.cases[before:]:
            _add_expectations(case, written, imported)
        for key in _other_keys(written):
            left_out.setdefault(key, []).append(location)
    for key, locations in left_out.items():
        more = f", nor in {plural(len(locations) - 1, 'further line')}" if locations[1:] else ""
        imported.note(locations[0], f"{key!r} is not imported{more}")


def _add_expectations(case: ImportedCase, written: Mapping[str, Any], imported: Imported) -> None:
    """Add what an evaluation has beside the messages: choices, and the right answer."""
    choices = _texts_in(written.get(_CHOICES))
    if len(choices) > len(ascii_uppercase):
        imported.note(case.location, f"{_CHOICES!r} are not imported: there are too many")
    elif choices:
        lettered = [f"{ascii_uppercase[at]}) {text}" for at, text in enumerate(choices)]
        case.turns[-1].user += "\n\n" + "\n".join(lettered)
        imported.note(case.location, f"{_CHOICES!r} are written below the message, as A), B), …")
    for key in _EXPECTED:
        texts = _texts_in(written.get(key))
        if texts:
            several = {"values": texts} if len(texts) > 1 else {}
            case.evaluations.append({"metric": "exact_match", **LOOSELY, **several})
            case.keys |= {} if several else {"ground_truth": texts[0]}
            return


def _texts_in(value: object) -> list[str]:
    """Return a text, or the texts of a list; empty for anything else."""
    items = value if isinstance(value, list) else [value]
    plain = [item for item in items if isinstance(item, str | int | float) and str(item).strip()]
    return [str(item) for item in plain] if len(plain) == len(items) else []


def _other_keys(written: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a conversation that hold something and are not read."""
    expected = next((key for key in _EXPECTED if _texts_in(written.get(key))), None)
    for key, value in written.items():
        if key in _ENVELOPES and isinstance(value, Mapping):
            yield from _other_keys(value, f"{prefix}{key}.")
        elif value not in (None, "", [], {}) and key not in _READ_KEYS and key != expected:
            yield f"{prefix}{key}"


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
        imported.add(messages[0][0], messages, key or None)


def _messages(value: object) -> list[Any] | None:
    """Return the messages of a conversation; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    for key in _LISTS:
        if isinstance(value.get(key), list) and any(map(is_message, value[key])):
            return list(value[key])
    # Of the Responses API, and of an evaluation.
    if isinstance(value.get("input"), str) and not value.keys().isdisjoint(("output", *_EXPECTED)):
        return [{"role": "user", "content": value["input"]}]
    for key in _ENVELOPES:
        messages = _messages(value.get(key))
        if messages is not None:
            return messages
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
    inner = (_answers(value.get(key)) for key in ("response", "body", "completion"))
    return next(filter(None, inner), [])


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
    is_json = False
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip("\ufeff \t\r"):
            continue
        try:
            value = json.loads(line.strip("\ufeff"))
        except (ValueError, RecursionError) as error:
            imported.note(f"{name}:{number}", f"left out: cannot be read as JSON: {error}")
            continue
        is_json = True
        yield f"{name}:{number}", value
    if not is_json:
        raise ConfigError(name, "holds neither JSON nor JSON Lines")


def read_results(run: str, results: Sequence[TestResult], imported: Imported) -> None:
    """Add a case for each recorded result."""
    for number, result in enumerate(results, 1):
        location = f"{run}: test {number}" + (f" ({result.location})" if result.location else "")
        shown = result.repeats.runs[-1] if result.repeats and result.repeats.runs else result
        if shown.outcome is Outcome.SKIPPED:
            imported.note(location, "left out: it was not run")
            continue
        if shown.processed_files or any(turn.processed_files for turn in shown.turns):
            imported.note(location, "files are not imported")
        history = [message.model_dump(exclude_none=True) for message in shown.history or ()]
        before = f"{location}: 'history'"
        imported.cases.append(
            ImportedCase(
                location=location,
                turns=[_turn(part) for part in shown.parts],
                name=result.written_name,
                tags=list(result.tags),
                history=imported.read_turns((before, message) for message in history),
            )
        )


def _turn(part: TestResult | TurnResult) -> LoggedTurn:
    calls = [_call(call) for call in part.tool_invocations]
    return LoggedTurn(part.input, part.agent_response, calls)


def _call(call: ToolInvocation) -> LoggedCall:
    arguments = None if "args" in call.unknown else dict(call.args)
    result = str(call.result) if call.is_result_known and call.error is None else call.error
    return LoggedCall(call.full_name, arguments, result)


Format = Literal["openai", "jsonl", "record", "promptfoo"]
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
    if not path.is_file() and written_as not in (None, "record"):
        raise ConfigError(source, "no such file")
    if not path.is_file() or written_as == "record":
        _read_run(source, store, imported)
    elif written_as == "promptfoo" or (written_as is None and is_yaml(path)):
        configuration = Source.read(path)
        if not any(key in configuration.data() for key in KEYS):
            raise ConfigError(source, f"is no configuration of promptfoo; expected {_KINDS}")
        PromptfooReader(configuration, path.absolute().parent, imported).read()
    else:
        _read_json(path, store, imported, written_as)
    return imported


def _read_run(name: str, store: RunStore, imported: Imported) -> None:
    run = store.read(name)
    for warning in run.warnings:
        imported.note(name, warning)
    read_results(run.id, run.results, imported)


def _read_json(path: Path, store: RunStore, imported: Imported, written_as: Format | None) -> None:
    name = str(path)
    text = read_file(path, name, MAX_LOG_BYTES)
    values = list(json_values(text, name, imported))
    first = values[0][1] if values and written_as is None else None
    first = first if isinstance(first, dict) else {}
    if {"event", "schema_version"} <= first.keys():
        _read_run(name, store, imported)
    elif written_as == "jsonl" or (
        # The first line is a message that names its conversation.
        any(first.get(key) is not None for key in CONVERSATION_KEYS)
        and is_message(first)
        and _messages(first) is None
    ):
        read_transcripts(values, imported)
    elif written_as == "openai" or any(
        isinstance(value, list) or is_message(value) or _messages(value) is not None
        for _, value in values
    ):
        read_conversations(values, imported)
    else:
        raise ConfigError(name, f"its format is unknown; expected {_KINDS}; name it with --from")
