"""Turns as messages: what the judge of a conversation reads."""

import json
from collections.abc import Iterable, Iterator, Sequence

from holodeck.lib.conversation.messages import UNSEEN_CALLS
from holodeck.lib.conversation.messages import Message as JudgeMessage
from holodeck.lib.test_runner.tool_checks import NO_RESULT
from holodeck.models.test_result import ProcessedFileInput, ToolInvocation, TurnResult


def messages_of(turns: Iterable[TurnResult]) -> list[JudgeMessage]:
    """All that was said in the turns, tool calls and their results included."""
    return [one for number, turn in enumerate(turns, 1) for one in _exchange(turn, number)]


def _exchange(turn: TurnResult, number: int) -> Iterator[JudgeMessage]:
    yield {"role": "user", "content": with_files(turn.input, turn.processed_files)}
    yield from answer_of(turn, number)


def with_files(text: str, files: Sequence[ProcessedFileInput]) -> str:
    """Return the message to the agent: the text of the files, then what the user says."""
    texts = [
        "\n".join(filter(None, [f"File: {file.original.path}", file.original.description]))
        + f"\n{file.markdown_content}"
        for file in files
    ]
    return "\n\n".join([*texts, text])


def answer_of(turn: TurnResult, number: int) -> list[JudgeMessage]:
    """What the agent did in the turn of that number: calls, their results, its answer."""
    names = [f"call_{number}_{at}" for at in range(1, len(turn.tool_invocations) + 1)]
    calls = list(zip(names, turn.tool_invocations, strict=True))
    messages: list[JudgeMessage] = []
    if calls:
        called = [_call(name, call) for name, call in calls]
        messages.append({"role": "assistant", "content": None, "tool_calls": called})
    # An agent that does not tell what its tools gave has done nothing wrong.
    messages += [_result(name, call) for name, call in calls if call.error != NO_RESULT]
    answer: JudgeMessage = {"role": "assistant", "content": turn.agent_response or ""}
    if turn.evidence.tool_calls is None:
        answer[UNSEEN_CALLS] = True
    return [*messages, answer]


def _call(name: str, call: ToolInvocation) -> JudgeMessage:
    function = {"name": call.name, "arguments": _text(call.args)}
    return {"id": name, "type": "function", "function": function}


def _result(name: str, call: ToolInvocation) -> JudgeMessage:
    told = f"error: {call.error}" if call.error is not None else call.result
    content = told if isinstance(told, str) else _text(told)
    return {"role": "tool", "tool_call_id": name, "name": call.name, "content": content}


def _text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deep to be shown)"
