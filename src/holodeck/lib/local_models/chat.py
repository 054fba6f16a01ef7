"""Chat with local models: replies for agents, and the chat model of judges and users."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.formats import read_tokens
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.model import ChatRequest, ChatResponse, note_request
from holodeck.lib.llm.request_handler import answer_json
from holodeck.lib.local_models.chat_request import (
    Answer,
    ChatSettings,
    PromptConversation,
    bound_schema,
    chat_request,
    is_small,
    offers_tools,
    parse_choice,
)
from holodeck.lib.local_models.runtime import LocalModel
from holodeck.lib.processes.threads import run_in_thread
from holodeck.models.cases.messages import Message
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

DEFAULT = ChatSettings()


async def reply_to(
    model: LocalModel,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    settings: ChatSettings = DEFAULT,
) -> Completion:
    """Return the model's answer, or its one tool call, to messages in OpenAI's shape."""
    settings = replace(settings, small=settings.small or is_small(model.path))
    choice = await _complete(model, messages, tools, settings)
    results = PromptConversation.of(messages).turns[-1].results
    known = [(result.tool, result.arguments) for result in results]
    if all((call.name, json.loads(call.arguments)) not in known for call in choice.calls):
        return choice
    # The call was made already: without tools, the model has to answer.
    answer = await _complete(model, messages, (), settings)
    return replace(answer, usage=choice.usage + answer.usage)


async def _complete(
    model: LocalModel,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    settings: ChatSettings,
) -> Completion:
    request = chat_request(messages, tools, settings)
    completion = await model.acomplete(request)
    first, counts = completion["choices"][0], completion["usage"]
    usage = TokenUsage.of(counts["prompt_tokens"], counts["completion_tokens"])
    text = first["message"]["content"]
    choice = parse_choice(text) if offers_tools(request) else Answer(text)
    if isinstance(choice, Answer):
        return Completion(choice.text, (), usage, finish_reason=first["finish_reason"])
    # the number of the call in the conversation, so that it is the same in every run
    number = f"call_{PromptConversation.of(messages).calls + 1}"
    call = RawToolCall(number, choice.name, json.dumps(choice.arguments))
    return Completion("", (call,), usage, finish_reason="tool_calls")


_MAX_STRING = 1000
"""Characters of each string in a JSON answer, so that a small model cannot go on forever."""
_MAX_TOKENS = 1024


class LocalChatModel:
    """A chat model that llama.cpp computes in this process, one request at a time.

    Args:
        llm: The model, with its sampling settings.
        path_of: Returns the weights of a model by its name, and downloads them if necessary.
        time_limit: Seconds that computing an answer may take; None for no limit.
        kind: The kind of work.
    """

    def __init__(
        self,
        llm: LLMProvider,
        path_of: Callable[[str], Path],
        time_limit: float | None = None,
        kind: str = "judge",
    ) -> None:
        self._kind = kind
        self._llm = llm
        self._path_of = path_of
        self._time_limit = time_limit
        self._limiters = Limiters(max_slots=1, initial_slots=1)

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._llm.label

    async def answer(self, question: ChatRequest) -> ChatResponse:
        """Return the model's answer. Raises BackendError, ModelStoreError and MissingExtra."""
        request, waited = self._request(question), 0.0

        async def compute() -> Mapping[str, Any]:
            nonlocal waited
            model = await run_in_thread(
                lambda: LocalModel.load(self._path_of(self._llm.name)), name="holodeck-model"
            )
            # The limiter stops the callers' clocks: waiting for other requests is not slowness.
            async with self._limiters.of(self.name).slot() as slot:
                note_request()
                computed = await model.acomplete(request, self._time_limit)
            waited = slot.waited_s + computed["timings"]["queued_ms"] / 1000
            return computed

        body = {"model": self._llm.name, **request}
        completion = json.loads(await answer_json(self._kind, body, compute))
        choice, usage = completion["choices"][0], completion["usage"]
        return ChatResponse(
            choice["message"]["content"],
            TokenUsage.of(usage["prompt_tokens"], usage["completion_tokens"]),
            read_tokens(choice.get("logprobs")),
            choice["finish_reason"] == "length",
            waited,
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
