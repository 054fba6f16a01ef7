"""One reply of a local model in a conversation with tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holodeck.lib.llm.completion import token_probabilities
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.model import ChatRequest, ChatResponse, note_request
from holodeck.lib.local_models.chat_request import (
    Answer,
    ChatSettings,
    PromptConversation,
    ToolChoice,
    bound_schema,
    chat_request,
    is_small,
    offers_tools,
    parse_choice,
)
from holodeck.lib.local_models.runtime import LocalModel
from holodeck.lib.threads import run_in_thread
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

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
        call_id=f"call_{PromptConversation.of(messages).calls + 1}" if call else "",
        finish_reason="tool_calls" if call else said["finish_reason"],
        prompt_tokens=completion["usage"]["prompt_tokens"],
        completion_tokens=completion["usage"]["completion_tokens"],
        queued_ms=completion["timings"]["queued_ms"],
    )


def _was_made(call: ToolChoice, messages: Sequence[Mapping[str, Any]]) -> bool:
    facts = PromptConversation.of(messages).turns[-1].facts
    return any((one.tool, one.arguments) == (call.name, call.arguments) for one in facts)


MOST_CHARACTERS = 1000
"""Of each text inside a JSON answer, so that a small model cannot run on for ever."""
MOST_TOKENS = 1024


class LocalChatModel:
    """Answers through llama.cpp in the process, one question at a time.

    Args:
        llm: The model; its sampling settings hold for every question.
        path_of: Name → the weights, fetched if they are not there yet.
        time_limit: Seconds that computing one answer may take; None for no limit.
    """

    def __init__(
        self, llm: LLMProvider, path_of: Callable[[str], Path], time_limit: float | None = None
    ) -> None:
        self._llm = llm
        self._path_of = path_of
        self._time_limit = time_limit
        self._turns = Limiters(max_slots=1, initial_slots=1)

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self._llm.provider.value}/{self._llm.name}"

    async def answer(self, question: ChatRequest) -> ChatResponse:
        """The model's answer. Raises BackendError, ModelStoreError and MissingExtra."""
        model = await run_in_thread(self._load, name="holodeck-model")
        # The model answers one after the other; waiting for one's turn is nobody's slowness.
        async with self._turns.of(self.name).slot() as slot:
            note_request()
            completion = await model.acomplete(self._request(question), self._time_limit)
        choice, usage = completion["choices"][0], completion["usage"]
        return ChatResponse(
            choice["message"]["content"],
            TokenUsage.of(usage["prompt_tokens"], usage["completion_tokens"]),
            token_probabilities(choice.get("logprobs")),
            choice["finish_reason"] == "length",
            slot.waited_s + completion["timings"]["queued_ms"] / 1000,
        )

    async def close(self) -> None:
        """Nothing to let go of: the model stays loaded for whoever asks next."""

    def _load(self) -> LocalModel:
        return LocalModel.load(self._path_of(self._llm.name))

    def _request(self, question: ChatRequest) -> dict[str, Any]:
        request: dict[str, Any] = {
            "messages": [dict(one) for one in question.messages],
            "temperature": self._llm.temperature,
            "top_p": self._llm.top_p,
            "max_tokens": question.max_tokens or self._llm.max_tokens or MOST_TOKENS,
        }
        if question.schema is not None:
            schema = bound_schema(question.schema, MOST_CHARACTERS)
            wanted = {"name": "answer", "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif question.is_json:
            request["response_format"] = {"type": "json_object"}
        if question.top_logprobs is not None:
            request |= {"logprobs": True, "top_logprobs": question.top_logprobs}
        return {name: value for name, value in request.items() if value is not None}
