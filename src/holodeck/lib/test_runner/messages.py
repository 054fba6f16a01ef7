"""The messages of a case and before it, in the forms that agents, judges and metrics need."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat, takewhile
from typing import Any

from holodeck.config.cases.rows import load_history
from holodeck.config.yaml.source import location_of
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import AgentBackend, Method, capabilities_of
from holodeck.lib.backends.parsing import parse_arguments
from holodeck.lib.evaluators.base import Observation, Turn
from holodeck.lib.evaluators.inputs import exchanges_in
from holodeck.models.agent import Agent
from holodeck.models.cases.messages import (
    EarlierMessage,
    Image,
    Message,
    messages_of,
    text_of,
    tool_arguments,
    tool_call,
    tool_calls_in,
    tool_name,
)
from holodeck.models.results.evidence import Unknown
from holodeck.models.test_result import NO_RESULT, ProcessedFileInput, ToolInvocation, TurnResult

History = Sequence[EarlierMessage]


def histories_of(agent: Agent) -> dict[int, History]:
    """Return the earlier messages of each case that has some, by its index. Raises ConfigError."""
    cases = enumerate(agent.test_cases or [])
    return {at: load_history(agent, at) for at, case in cases if case.history is not None}


def require_history_support(agent: Agent, backend: AgentBackend) -> None:
    """Raise ConfigError if a case has earlier messages and the backend does not accept them."""
    for index, case in enumerate(agent.test_cases or []):
        if case.history is None:
            continue
        method: Method = "invoke_once" if case.input else "create_session"
        problem = capabilities_of(backend).history_problems.get(method)
        if problem is not None:
            raise ConfigError(location_of(agent, "test_cases", index, "history"), problem)


def to_agent_messages(history: History) -> list[Message]:
    """Return the messages as a backend accepts them."""
    return [message.to_message() for message in history]


def to_judge_messages(history: History) -> list[Message]:
    """Return the messages for judges and simulated users, marked as earlier."""
    return [{**message, "earlier": True} for message in messages_of(history)]


def history_key(history: History) -> Iterator[str]:
    """Return everything that distinguishes a history from others."""
    for message in history:
        yield from (message.role, message.text, message.name or "", message.tool_call_id or "")
        for call in message.tool_calls or ():
            yield from (call.id, call.function.name, call.function.arguments_text)


def to_turns(messages: Sequence[Message], observed: Sequence[TurnResult] = ()) -> tuple[Turn, ...]:
    """Return the messages as metrics see them, instructions omitted.

    Tool calls belong to the response that follows them, or to an empty one if none follows. Those
    of the `observed` turns are the observed ones, whose results are more than text.
    """
    calls_by_id = {
        _call_id(number, at): call
        for number, turn in enumerate(observed, 1)
        for at, call in enumerate(turn.tool_invocations, 1)
    }
    return tuple(_turns(messages, calls_by_id))


def _turns(
    messages: Sequence[Message], calls_by_id: Mapping[str, ToolInvocation]
) -> Iterator[Turn]:
    calls: list[ToolInvocation] = []
    is_earlier = False
    for at, message in enumerate(messages):
        role, text, was_earlier = message.get("role"), text_of(message), is_earlier
        is_earlier = bool(message.get("earlier"))
        if role == "user":
            if calls:
                yield Turn("assistant", "", tuple(calls), earlier=was_earlier)
                calls = []
            yield Turn("user", text, earlier=is_earlier)
        if role != "assistant":
            continue
        requested = list(tool_calls_in(message))
        observed = {} if is_earlier else calls_by_id
        # Of this message only: others may use the same ids.
        following = takewhile(
            lambda message: message.get("role") == "tool", islice(messages, at + 1, None)
        )
        results = {str(result.get("tool_call_id")): text_of(result) for result in following}
        calls += [
            observed.get(str(call.get("id"))) or _invocation(call, results) for call in requested
        ]
        if text.strip() or not requested:
            known = None if message.get("unseen_tool_calls") else tuple(calls)
            yield Turn("assistant", text, known, earlier=is_earlier)
            calls = []
    if calls:
        yield Turn("assistant", "", tuple(calls), earlier=is_earlier)


def _invocation(call: Mapping[str, Any], results: Mapping[str, str]) -> ToolInvocation:
    args, error = parse_arguments(tool_arguments(call))
    result = results.get(str(call.get("id")))
    error = error or (NO_RESULT if result is None else None)
    size = len(json.dumps(result))
    return ToolInvocation(name=tool_name(call), args=args, result=result, bytes=size, error=error)


def observed_conversation(messages: Sequence[Message]) -> Observation | None:
    """Return a conversation up to its last response as metrics see it; None without a response."""
    exchanges = exchanges_in(turns := to_turns(messages))
    if not exchanges:
        return None
    last = exchanges[-1]
    turns = turns[: max(at for at, turn in enumerate(turns, 1) if turn.role == "assistant")]
    is_unknown = any(turn.tool_calls is None for turn in turns)
    calls = tuple(call for turn in turns for call in turn.tool_calls or ())
    return Observation(
        response=last.response.content,
        input=last.input or None,
        tool_calls=Unknown("tool_calls") if is_unknown else calls,
        turns=turns,
        tools=Unknown("tools"),
    )


def conversation_of(
    history: History, turns: Sequence[TurnResult], messages: Sequence[Message] = ()
) -> tuple[Turn, ...]:
    """Return the conversation up to the last response of the agent, as metrics see it.

    Args:
        history: The messages before the case.
        turns: The turns with the agent.
        messages: The messages of the case, if others than those of the turns are among them.
    """
    earlier = to_judge_messages(history)
    if not messages:
        return to_turns(earlier) + tuple(
            message for turn in turns for message in turn_messages(turn)
        )
    conversation = to_turns([*earlier, *messages], turns)
    response = (turns[-1].agent_response or "") if turns else ""
    last = [
        at
        for at, turn in enumerate(conversation, 1)
        if turn.role == "assistant" and turn.content == response
    ]
    return conversation[: last[-1]] if last else conversation


def turn_messages(turn: TurnResult) -> tuple[Turn, ...]:
    """Return the messages of the user and the agent in a turn."""
    known = turn.evidence.tool_calls is not None
    calls = tuple(turn.tool_invocations) if known else None
    response, passages = turn.agent_response or "", tuple(turn.retrieval_context or ())
    return Turn("user", turn.input), Turn("assistant", response, calls, passages=passages)


def messages_beyond_turns(messages: list[Message], turns: Sequence[TurnResult]) -> list[Message]:
    """Return the messages of a case; none if the turns contain all of them."""
    return [] if conversation_messages(turns) == messages else messages


def conversation_messages(
    turns: Iterable[TurnResult], images: Sequence[Sequence[Image]] = ()
) -> list[Message]:
    """Return the messages of the turns, tool calls and their results included.

    `images` are those of each turn; they become parts of the user's messages.
    """
    shown = chain(images, repeat(()))
    return [
        message
        for number, (turn, of_turn) in enumerate(zip(turns, shown, strict=False), 1)
        for message in _exchange(turn, of_turn, number)
    ]


def _exchange(turn: TurnResult, images: Sequence[Image], number: int) -> Iterator[Message]:
    text = with_files(turn.input, turn.processed_files)
    parts = [{"type": "text", "text": text}, *(image.part for image in images)]
    yield {"role": "user", "content": parts if images else text}
    yield from response_messages(turn, number)


def count_images(turn: TurnResult) -> int:
    """Return how many images the agent got in a turn."""
    return sum((file.metadata or {}).get("sent_as") == "image" for file in turn.processed_files)


def with_files(text: str, files: Sequence[ProcessedFileInput]) -> str:
    """Return the message to the agent: the text of the files, then what the user says."""
    texts = [
        "\n".join(filter(None, [f"File: {file.original.shown_path}", file.original.description]))
        + f"\n{file.markdown_content}"
        for file in files
        if file.error is None
    ]
    return "\n\n".join([*texts, text])


def response_messages(turn: TurnResult, number: int) -> list[Message]:
    """Return tool calls, their results and the response of a turn; `number` makes ids unique."""
    names = [_call_id(number, at) for at in range(1, len(turn.tool_invocations) + 1)]
    calls = list(zip(names, turn.tool_invocations, strict=True))
    messages: list[Message] = []
    if calls:
        called = [_call(name, call) for name, call in calls]
        messages.append({"role": "assistant", "content": None, "tool_calls": called})
    # A missing result is no fault of the agent: its backend may not report results.
    messages += [_result(name, call) for name, call in calls if call.error != NO_RESULT]
    answer: Message = {"role": "assistant", "content": turn.agent_response or ""}
    if turn.evidence.tool_calls is None:
        answer["unseen_tool_calls"] = True
    return [*messages, answer]


def _call_id(turn: int, at: int) -> str:
    return f"call_{turn}_{at}"


def _call(name: str, call: ToolInvocation) -> dict[str, Any]:
    requested = tool_call(name, call.name, _text(call.args))
    return requested if call.agent is None else {**requested, "agent": call.agent}


def _result(name: str, call: ToolInvocation) -> Message:
    result = f"error: {call.error}" if call.error is not None else call.result
    content = result if isinstance(result, str) else _text(result)
    return {"role": "tool", "tool_call_id": name, "name": call.name, "content": content}


def _text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deep to be shown)"
