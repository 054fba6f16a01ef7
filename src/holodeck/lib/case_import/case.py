"""Imported test cases, and the messages of logs, of which they are made."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holodeck.lib.backends.parsing import parse_arguments
from holodeck.lib.support.text import one_line

_MAX_NAME = 60
ROLE_KEYS = ("role", "speaker", "from", "author", "sender")
TEXT_KEYS = ("content", "text", "message", "value")
CONVERSATION_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "conversation")
ROLES = {
    **dict.fromkeys(("user", "human", "customer"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "agent", "model", "gpt"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
"""What logs call a role → the role."""
_USED_KEYS = {
    *ROLE_KEYS, *TEXT_KEYS, *CONVERSATION_KEYS, "type", "id", "name", "tool_calls", "tool_call_id",
    "function_call", "call_id", "arguments", "output", "status",
}  # fmt: skip
_UNIMPORTANT_KEYS = {
    "refusal", "annotations", "audio", "timestamp", "created_at", "created", "ts", "turn", "index",
    "logprobs", "phase", "reasoning_content", "metadata", "date", "time",
}  # fmt: skip
"""Keys of messages that say nothing about what was said."""
LOOSELY = {"ignore_case": True, "normalize_whitespace": True}
"""Options of `exact_match` for expectations that come from elsewhere."""
Located = tuple[str, Any]
"""Where a value is, and the value."""


@dataclass
class LoggedCall:
    """A tool call of the agent."""

    name: str
    arguments: dict[str, Any] | None
    """None if they cannot be read."""
    result: str | None = None
    """None if the log does not hold it."""


@dataclass
class LoggedTurn:
    """A message of the user, and what the agent did."""

    user: str
    answer: str | None = None
    """None if the log holds no answer."""
    calls: list[LoggedCall] = field(default_factory=list)


@dataclass
class ImportedCase:
    """A conversation, and what is known to be expected of its last response."""

    location: str
    """Where it comes from, such as `chats.jsonl:3`."""
    turns: list[LoggedTurn]
    name: str | None = None
    """None if the source has no name for it."""
    tags: list[str] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    criteria: list[str] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=dict)
    """Further keys of the case, such as `ground_truth` and `expected_tools`."""
    todo: list[str] = field(default_factory=list)
    """What is still to be written; a case without any expectation always has one."""
    history: list[LoggedTurn] = field(default_factory=list)
    """The turns before."""

    @property
    def label(self) -> str:
        """The name, else the beginning of what the user says first."""
        return one_line(self.name or self.turns[0].user, _MAX_NAME)

    @property
    def has_checks(self) -> bool:
        """Whether something is expected of the last response."""
        return bool(self.evaluations or self.criteria or "expected_tools" in self.keys)


@dataclass
class Imported:
    """The test cases of a source, and its parts that they lack."""

    cases: list[ImportedCase] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    """Each once, in order: several tests of a source may use the same part of it."""

    def note(self, location: str, text: str) -> None:
        """Note a part of the source that is not imported, or only with a change."""
        self.notes[f"{location}: {text}"] = None

    def add(self, location: str, messages: Iterable[Located], name: str | None = None) -> None:
        """Add a case for the messages of a conversation."""
        turns = self.read_turns(messages)
        if turns:
            self.cases.append(ImportedCase(location, turns, name))
        else:
            self.note(location, "no message of a user, so no test case")

    def read_turns(self, messages: Iterable[Located]) -> list[LoggedTurn]:
        """Return the turns of a conversation, and note what is left out of them."""
        reader = _ConversationReader(self)
        for location, message in messages:
            reader.read(location, message)
        return reader.turns


def role_of(message: Mapping[str, Any]) -> str | None:
    """Return the role of a message; None if it has none that is known."""
    written = next((message[key] for key in ROLE_KEYS if key in message), None)
    if isinstance(written, Mapping):  # exports write {"author": {"role": …}}
        written = written.get("role")
    return ROLES.get(written.lower()) if isinstance(written, str) else None


def is_message(value: object) -> bool:
    """Whether a value is a message: it has a role, or is an item of a response."""
    if not isinstance(value, Mapping):
        return False
    is_item = value.get("type") in {"function_call", "function_call_output", "reasoning"}
    return is_item or any(key in value for key in ROLE_KEYS)


class _ConversationReader:
    """Collects the turns of a conversation from its messages."""

    def __init__(self, imported: Imported) -> None:
        self.turns: list[LoggedTurn] = []
        self._note = imported.note
        self._calls: dict[str, LoggedCall] = {}
        """The calls by their ids."""

    def read(self, location: str, message: object) -> None:
        """Add a message."""
        if not isinstance(message, Mapping):
            self._note(location, f"no message, left out: {_shown(message)}")
            return
        for key in message:
            if key not in _USED_KEYS | _UNIMPORTANT_KEYS and message[key]:
                self._note(location, f"{key!r} is not imported")
        kind = message.get("type")
        if kind == "function_call":
            self._add_call(location, message.get("call_id"), message)
        elif kind == "function_call_output":
            self._add_result(location, message.get("call_id"), message.get("output"))
        elif kind != "reasoning":
            self._add_message(location, message)

    def _add_message(self, location: str, message: Mapping[str, Any]) -> None:
        kind, role = message.get("type"), role_of(message)
        if role is None:
            what = kind if kind not in (None, "message") else message.get("role")
            self._note(location, f"left out: {_shown(what)} is no known role or type of a message")
            return
        content = next((message[key] for key in TEXT_KEYS if key in message), None)
        text = self._text(location, content)
        if role == "system":
            self._note(location, "instructions are left out; they belong in the agent.yaml")
        elif role == "tool":
            self._add_result(location, message.get("tool_call_id") or message.get("name"), text)
        elif role == "user":
            self._add_user(location, text)
        elif self.turns:
            self._add_answer(location, message, text)
        else:
            self._note(location, "left out: the agent speaks before the user")

    def _add_user(self, location: str, text: str) -> None:
        if not text.strip():
            self._note(location, "left out: the message of the user has no text")
        elif self.turns and self.turns[-1].answer is None and not self.turns[-1].calls:
            self._note(location, "joined with the message before it, which has no answer")
            self.turns[-1].user += f"\n\n{text}"
        else:
            self.turns.append(LoggedTurn(text))

    def _add_answer(self, location: str, message: Mapping[str, Any], text: str) -> None:
        turn = self.turns[-1]
        if text.strip():
            turn.answer = text if turn.answer is None else f"{turn.answer}\n\n{text}"
        calls = message.get("tool_calls") or []
        older = message.get("function_call")
        if isinstance(older, Mapping):
            calls = [{"id": older.get("name"), "function": older}]
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function", call) if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                self._add_call(location, call.get("id"), function)
            else:
                self._note(location, f"a tool call cannot be read: {_shown(call)}")

    def _add_call(self, location: str, call_id: object, call: Mapping[str, Any]) -> None:
        name, written = call.get("name"), call.get("arguments", call.get("args", {}))
        if not self.turns:
            self._note(location, "left out: a tool call before the user speaks")
        elif not isinstance(name, str) or not name:
            self._note(location, "a tool call without a name is left out")
        else:
            arguments, problem = parse_arguments(written)
            logged = LoggedCall(name, arguments if problem is None else None)
            if problem is not None:
                self._note(location, f"the arguments of {name!r} cannot be read: {_shown(written)}")
            self.turns[-1].calls.append(logged)
            if call_id:
                self._calls[str(call_id)] = logged

    def _add_result(self, location: str, call_id: object, result: object) -> None:
        call = self._calls.get(str(call_id))
        if call is None:
            text = f"the result of an unknown tool call is left out: {_shown(call_id)}"
            self._note(location, text)
        else:
            call.result = result if isinstance(result, str) else json.dumps(result)

    def _text(self, location: str, content: object) -> str:
        """Return the text of a content, which may be a list of parts."""
        if content is None or isinstance(content, str):
            return content or ""
        if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
            content = content["parts"]
        if not isinstance(content, list):
            self._note(location, f"the content cannot be read: {_shown(content)}")
            return ""
        texts = []
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                texts.append(text)
            else:
                kind = part.get("type") if isinstance(part, Mapping) else part
                self._note(location, f"a part of the message is left out: {_shown(kind)}")
        return "\n".join(texts)


def _shown(value: object) -> str:
    return one_line(repr(value), 80)
