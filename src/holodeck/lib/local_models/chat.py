"""Chat with local models: replies for agents, and the chat model of judges and users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holodeck.lib.llm.completion import read_tokens
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
from holodeck.lib.processes.threads import run_in_thread
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

DEFAULT = ChatSettings()


@dataclass(frozen=True)
class Reply:
    """A model's reply: `text`, or a tool call."""

    text: str
    call: ToolChoice | None
    call_id: str
    """The number of the call in the conversation, so that it is the same in every run."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    queued_ms: float
    """Time spent waiting for other requests."""


async def reply_to(
    model: LocalModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    settings: ChatSettings = DEFAULT,
    time_limit: float | None = None,
) -> Reply:
    """Return the model's answer, or its one tool call, to messages in OpenAI's shape.

    `time_limit` applies to each computation, of which there are at most two.
    """
    settings = replace(settings, small=settings.small or is_small(model.path))
    reply = await _complete(model, messages, tools, settings, time_limit)
    if reply.call is None:
        return reply
    call = (reply.call.name, reply.call.arguments)
    results = PromptConversation.of(messages).turns[-1].results
    if not any((result.tool, result.arguments) == call for result in results):
        return reply
    # The call was made already: without tools, the model has to answer.
    answer = await _complete(model, messages, (), settings, time_limit)
    return replace(
        answer,
        prompt_tokens=reply.prompt_tokens + answer.prompt_tokens,
        completion_tokens=reply.completion_tokens + answer.completion_tokens,
        queued_ms=reply.queued_ms + answer.queued_ms,
    )


async def _complete(
    model: LocalModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    settings: ChatSettings,
    time_limit: float | None,
) -> Reply:
    request = chat_request(messages, tools, settings)
    completion = await model.acomplete(request, time_limit)
    first = completion["choices"][0]
    text = first["message"]["content"]
    choice = parse_choice(text) if offers_tools(request) else Answer(text)
    call = choice if isinstance(choice, ToolChoice) else None
    return Reply(
        text=choice.text if isinstance(choice, Answer) else "",
        call=call,
        call_id=f"call_{PromptConversation.of(messages).calls + 1}" if call else "",
        finish_reason="tool_calls" if call else first["finish_reason"],
        prompt_tokens=completion["usage"]["prompt_tokens"],
        completion_tokens=completion["usage"]["completion_tokens"],
        queued_ms=completion["timings"]["queued_ms"],
    )


_MAX_STRING = 1000
"""Characters of each string in a JSON answer, so that a small model cannot go on forever."""
_MAX_TOKENS = 1024


class LocalChatModel:
    """A chat model that llama.cpp computes in this process, one request at a time.

    Args:
        llm: The model, with its sampling settings.
        path_of: Returns the weights of a model by its name, and downloads them if necessary.
        time_limit: Seconds that computing one answer may take; None for no limit.
    """

    def __init__(
        self, llm: LLMProvider, path_of: Callable[[str], Path], time_limit: float | None = None
    ) -> None:
        self._llm = llm
        self._path_of = path_of
        self._time_limit = time_limit
        self._limiters = Limiters(max_slots=1, initial_slots=1)

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self._llm.provider.value}/{self._llm.name}"

    async def answer(self, question: ChatRequest) -> ChatResponse:
        """Return the model's answer. Raises BackendError, ModelStoreError and MissingExtra."""
        model = await run_in_thread(
            lambda: LocalModel.load(self._path_of(self._llm.name)), name="holodeck-model"
        )
        # The limiter stops the callers' clocks: waiting for other requests is not slowness.
        async with self._limiters.of(self.name).slot() as slot:
            note_request()
            completion = await model.acomplete(self._request(question), self._time_limit)
        choice, usage = completion["choices"][0], completion["usage"]
        return ChatResponse(
            choice["message"]["content"],
            TokenUsage.of(usage["prompt_tokens"], usage["completion_tokens"]),
            read_tokens(choice.get("logprobs")),
            choice["finish_reason"] == "length",
            slot.waited_s + completion["timings"]["queued_ms"] / 1000,
        )

    async def close(self) -> None:
        """Do nothing: the model stays loaded for further requests."""

    def _request(self, question: ChatRequest) -> dict[str, Any]:
        request: dict[str, Any] = {
            "messages": [dict(message) for message in question.messages],
            "temperature": self._llm.temperature,
            "top_p": self._llm.top_p,
            "max_tokens": question.max_tokens or self._llm.max_tokens or _MAX_TOKENS,
        }
        if question.schema is not None:
            schema = bound_schema(question.schema, _MAX_STRING)
            json_schema = {"name": "answer", "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        elif question.is_json:
            request["response_format"] = {"type": "json_object"}
        if question.top_logprobs is not None:
            request |= {"logprobs": True, "top_logprobs": question.top_logprobs}
        return {name: value for name, value in request.items() if value is not None}
