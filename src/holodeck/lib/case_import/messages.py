"""Messages of chat completions, items of responses, and lines of transcripts, as conversations."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from holodeck.lib.backends.parsing import parse_arguments
from holodeck.lib.case_import.case import Imported, ImportedCase, LoggedCall, LoggedTurn
from holodeck.lib.support.text import one_line

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
Located = tuple[str, Any]
"""Where a value is, and the value."""


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


class ConversationReader:
    """Collects the messages of one conversation."""

    def __init__(self, location: str, imported: Imported, name: str | None = None) -> None:
        self._case = ImportedCase(location, [], name)
        self._imported = imported
        self._calls: dict[str, LoggedCall] = {}

    def read(self, messages: Iterable[Located]) -> None:
        """Add messages, and the case of the conversation once they are all read."""
        for location, message in messages:
            if isinstance(message, Mapping):
                self._add(location, message)
            else:
                self._note(location, f"no message, left out: {_shown(message)}")
        if self._case.turns:
            self._imported.cases.append(self._case)
        else:
            self._note(self._case.location, "no message of a user, so no test case")

    def _note(self, location: str, text: str) -> None:
        self._imported.note(location, text)

    def _add(self, location: str, message: Mapping[str, Any]) -> None:
        kind = message.get("type")
        for key in message:
            if key not in _USED_KEYS | _UNIMPORTANT_KEYS and message[key]:
                self._note(location, f"{key!r} is not imported")
        if kind == "function_call":
            self._add_call(location, message.get("call_id"), message)
        elif kind == "function_call_output":
            self._add_result(location, message.get("call_id"), message.get("output"))
        elif kind == "reasoning":
            return
        elif role_of(message) is None:
            what = message.get("type") if kind not in (None, "message") else message.get("role")
            self._note(location, f"left out: {_shown(what)} is no known role or type of a message")
        else:
            self._add_message(location, message)

    def _add_message(self, location: str, message: Mapping[str, Any]) -> None:
        role = role_of(message)
        content = next((message[key] for key in TEXT_KEYS if key in message), None)
        text = self._text(location, content)
        if role == "system":
            self._note(location, "instructions are left out; they belong in the agent.yaml")
        elif role == "tool":
            self._add_result(location, message.get("tool_call_id") or message.get("name"), text)
        elif role == "user":
            self._add_user(location, text)
        elif self._case.turns:
            self._add_answer(location, message, text)
        else:
            self._note(location, "left out: the agent speaks before the user")

    def _add_user(self, location: str, text: str) -> None:
        if not text.strip():
            self._note(location, "left out: the message of the user has no text")
            return
        turns = self._case.turns
        if turns and turns[-1].answer is None and not turns[-1].calls:
            self._note(location, "joined with the message before it, which has no answer")
            turns[-1].user += f"\n\n{text}"
            return
        turns.append(LoggedTurn(text))

    def _add_answer(self, location: str, message: Mapping[str, Any], text: str) -> None:
        turn = self._case.turns[-1]
        if text.strip():
            turn.answer = text if turn.answer is None else f"{turn.answer}\n\n{text}"
        calls = message.get("tool_calls") or []
        if isinstance(message.get("function_call"), Mapping):
            calls = [
                {"id": message["function_call"].get("name"), "function": message["function_call"]}
            ]
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function", call) if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                self._add_call(location, call.get("id"), function)
            else:
                self._note(location, f"a tool call cannot be read: {_shown(call)}")

    def _add_call(self, location: str, call_id: object, call: Mapping[str, Any]) -> None:
        if not self._case.turns:
            self._note(location, "left out: a tool call before the user speaks")
            return
        name, written = call.get("name"), call.get("arguments", call.get("args", {}))
        if not isinstance(name, str) or not name:
            self._note(location, "a tool call without a name is left out")
            return
        arguments = _arguments(written)
        if arguments is None:
            self._note(location, f"the arguments of {name!r} cannot be read: {_shown(written)}")
        found = LoggedCall(name, arguments, str(call_id) if call_id else None)
        self._case.turns[-1].calls.append(found)
        if call_id:
            self._calls[str(call_id)] = found

    def _add_result(self, location: str, call_id: object, result: object) -> None:
        call = self._calls.get(str(call_id))
        if call is None:
            self._note(
                location, f"the result of an unknown tool call is left out: {_shown(call_id)}"
            )
            return
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
            text = part if isinstance(part, str) else None
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                text = part["text"]
            if text is None:
                kind = part.get("type") if isinstance(part, Mapping) else part
                self._note(location, f"a part of the message is left out: {_shown(kind)}")
            else:
                texts.append(text)
        return "\n".join(texts)


def _arguments(written: Any) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they are no mapping, or nested too deep."""
    arguments, problem = parse_arguments(written)
    return arguments if problem is None else None


def _shown(value: object) -> str:
    return one_line(repr(value), 80)
