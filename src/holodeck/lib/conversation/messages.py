"""From what somebody returned to messages, and copies of them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from holodeck.lib.conversation.roles import AgentRole, Message
from holodeck.lib.text import one_line

WANTED = (
    "return a text, a message such as {'role': 'assistant', 'content': '…'}, a list of messages,"
    " or a ScenarioResult"
)
ROLE_NAMES = {AgentRole.USER: "user", AgentRole.AGENT: "assistant", AgentRole.JUDGE: "assistant"}
"""As whom a bare text is said."""


@runtime_checkable
class _Dumpable(Protocol):
    """A library's own message."""

    role: str

    def model_dump(self, **options: Any) -> dict[str, Any]: ...


def messages_of(returned: Any, role: AgentRole) -> list[Message]:
    """The messages that a returned value stands for. Raises ValueError for anything else."""
    if isinstance(returned, list):
        return [_message(one, role) for one in returned]
    return [_message(returned, role)]


def fixed_message(content: Any, role: AgentRole) -> Message:
    """The message that a script lets a role say. Raises ValueError for an empty one."""
    step = role.value.lower()
    try:
        message = _message(content, role)
    except ValueError as error:
        raise ValueError(f"{step}(…): {error}") from error
    said = message.get("content")
    if isinstance(said, str) and not said.strip() and not message.get("tool_calls"):
        raise ValueError(
            f"{step}({content!r}): the text is empty; write what the {ROLE_NAMES[role]} says,"
            f" or {step}() to let them speak"
        )
    return message


def _message(value: Any, role: AgentRole) -> Message:
    if isinstance(value, str):
        return {"role": ROLE_NAMES[role], "content": value}
    if isinstance(value, Mapping) and isinstance(value.get("role"), str):
        return _through_json(dict(value))
    if isinstance(value, _Dumpable):
        dumped = value.model_dump(exclude_none=True)
        # Providers refuse empty lists such as that of tool calls; defaults that say more are kept.
        told = {name: one for name, one in dumped.items() if one not in ([], {})}
        return _through_json({"role": value.role, **told})
    raise ValueError(f"{_shown(value)} is no answer; {WANTED}")


def _through_json(message: dict[str, Any]) -> Message:
    """The message as JSON holds it, which makes it a copy."""
    try:
        copied: Message = json.loads(json.dumps(message))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the message {_shown(message)} cannot be written as JSON ({error}); {WANTED}"
        ) from error
    return copied


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    return f"{type(value).__name__} {one_line(repr(value), 80)}"


def copied(value: Any) -> Any:
    """A copy of a JSON value, all the way down."""
    if isinstance(value, dict):
        # Most of it is text, which needs no call.
        return {key: one if type(one) is str else copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one) for one in value]
    return value


def text_of(message: Message) -> str:
    """The text of a message, or of its refusal; what is not text is named in brackets."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):
        return "\n".join(_part(one) for one in content)
    return content if isinstance(content, str) else str(content)


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"
    return str(part)


def calls_in(message: Message) -> Iterator[dict[str, Any]]:
    """The tool calls of a message, as it has them; the one call of an older format as the last."""
    for call in message.get("tool_calls") or []:
        if isinstance(call, dict):
            yield call
    if isinstance(message.get("function_call"), dict):
        yield {"type": "function", "function": message["function_call"]}


def tool_name(call: Mapping[str, Any]) -> str:
    """The name of the tool that a call is for."""
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def arguments_of(call: Mapping[str, Any]) -> str:
    """The arguments of a call as text; JSON if the model wrote some."""
    function = call.get("function")
    given = function.get("arguments", "") if isinstance(function, Mapping) else ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
