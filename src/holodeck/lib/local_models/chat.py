"""One reply of a local model in a conversation with tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holodeck.lib.local_models.conversation import Conversation
from holodeck.lib.local_models.runtime import LocalModel
from holodeck.lib.local_models.tool_grammar import (
    Answer,
    ChatSettings,
    ToolChoice,
    chat_request,
    is_small,
    offers_tools,
    parse_choice,
)

DEFAULT = ChatSettings()


@dataclass(frozen=True)
class Reply:
    """What a model said; `call` None means that it answered with `text`."""

    text: str
    call: ToolChoice | None
    call_id: str
    """The id of the call: its number in the conversation, so that it is the same in every run."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    queued_ms: float
    """How long it waited for other requests."""


async def reply_to(
    model: LocalModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    settings: ChatSettings = DEFAULT,
    time_limit: float | None = None,
) -> Reply:
    """The model's answer, or the one tool call that it wants, to OpenAI-shaped messages.

    `time_limit` holds for each computation, of which there are at most two.
    """
    settings = replace(settings, small=settings.small or is_small(model.path))
    reply = await _ask(model, messages, tools, settings, time_limit)
    if reply.call is None or not _was_made(reply.call, messages):
        return reply
    answered = await _ask(model, messages, (), settings, time_limit)
    return replace(
        answered,
        prompt_tokens=reply.prompt_tokens + answered.prompt_tokens,
        completion_tokens=reply.completion_tokens + answered.completion_tokens,
        queued_ms=reply.queued_ms + answered.queued_ms,
    )


async def _ask(
    model: LocalModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    settings: ChatSettings,
    time_limit: float | None,
) -> Reply:
    request = chat_request(messages, tools, settings)
    completion = await model.acomplete(request, time_limit)
    said = completion["choices"][0]
    text = said["message"]["content"]
    choice = parse_choice(text) if offers_tools(request) else Answer(text)
    call = choice if isinstance(choice, ToolChoice) else None
    return Reply(
        text=choice.text if isinstance(choice, Answer) else "",
        call=call,
        call_id=f"call_{Conversation.of(messages).calls + 1}" if call else "",
        finish_reason="tool_calls" if call else said["finish_reason"],
        prompt_tokens=completion["usage"]["prompt_tokens"],
        completion_tokens=completion["usage"]["completion_tokens"],
        queued_ms=completion["timings"]["queued_ms"],
    )


def _was_made(call: ToolChoice, messages: Sequence[Mapping[str, Any]]) -> bool:
    facts = Conversation.of(messages).turns[-1].facts
    return any((one.tool, one.arguments) == (call.name, call.arguments) for one in facts)
