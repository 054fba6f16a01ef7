"""Semantic Kernel's chat service over our own path to models, and over a model in the process."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from semantic_kernel.connectors.ai.function_calling_utils import (
    update_settings_from_function_call_configuration,
)
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import (
    AuthorRole,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    ImageContent,
    StreamingChatMessageContent,
    StreamingTextContent,
    TextContent,
)
from semantic_kernel.contents.utils.finish_reason import FinishReason

from holodeck.lib.backends.semantic_kernel.chat_service import (
    TurnChat,
    current_turn_of,
    note_calls,
    with_server_schemas,
)
from holodeck.lib.llm.completion import Completion, to_document
from holodeck.lib.llm.formats import parse_completion
from holodeck.lib.llm.request_handler import AGENT, answer_json, needs_model
from holodeck.lib.processes.threads import run_in_thread

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.llm.client import ChatClient, RequestStats
    from holodeck.lib.llm.retry import RetryConfig
    from holodeck.lib.local_models.runtime import LocalModel

Body = dict[str, Any]
"""Of a request for a chat completion, in OpenAI's names."""


FindWeights = Callable[[str], Path]
"""Returns the weights of a local model, downloaded if missing. Raises ModelStoreError."""


class RequestSettings(PromptExecutionSettings):
    """Settings of a request, in OpenAI's names."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | None = None

    def body(self) -> Body:
        """Return what is set."""
        values = ((name, getattr(self, name)) for name in _BODY_KEYS)
        return {name: value for name, value in values if value is not None}


_BODY_KEYS = sorted(
    RequestSettings.model_fields.keys() - PromptExecutionSettings.model_fields.keys()
)
_FINISH_REASONS = {reason.value: reason for reason in FinishReason}


class ModelChat(TurnChat):
    """Requests completions from our own client of the model."""

    _source: "ChatClient | LocalCompletions" = PrivateAttr()

    @classmethod
    def of(
        cls, model: str, source: "ChatClient | LocalCompletions", *, takes_images: bool
    ) -> "ModelChat":
        """Return the service of a model; with `takes_images`, it is sent images of tools."""
        chat = cls(ai_model_id=model, service_id=model)
        chat._source, chat._takes_images = source, takes_images
        return chat

    async def prepare(self) -> None:
        if isinstance(self._source, LocalCompletions):
            await self._source.prepare()

    async def close(self) -> None:
        await self._source.close()

    def get_prompt_execution_settings_class(self) -> type[PromptExecutionSettings]:
        return RequestSettings

    def _update_function_choice_settings_callback(self) -> Any:
        return with_server_schemas(update_settings_from_function_call_configuration)

    def _reset_function_choice_settings(self, settings: PromptExecutionSettings) -> None:
        if isinstance(settings, RequestSettings):
            settings.tools = settings.tool_choice = None

    async def _complete(
        self, chat_history: "ChatHistory", settings: PromptExecutionSettings
    ) -> list[ChatMessageContent]:
        turn = current_turn_of(chat_history)
        body = self._body(chat_history, settings)
        completion = await self._source.complete_body(body, turn, turn.retry)
        text = [TextContent(text=completion.text)] if completion.text else []
        items = [*_calls_of(completion), *text]
        facts = self._facts(completion)
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=items, **facts)]

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: PromptExecutionSettings,
        function_invoke_attempt: int = 0,
    ) -> AsyncGenerator[list[StreamingChatMessageContent], Any]:
        turn = current_turn_of(chat_history)
        body = self._body(chat_history, settings)
        common: dict[str, Any] = {
            "role": AuthorRole.ASSISTANT,
            "ai_model_id": self.ai_model_id,
            "choice_index": 0,
            "function_invoke_attempt": function_invoke_attempt,
        }
        async for piece in self._source.stream_body(body, turn, turn.retry):
            if isinstance(piece, str):
                text = StreamingTextContent(text=piece, choice_index=0)
                yield [StreamingChatMessageContent(items=[text], **common)]
                continue
            calls: list[Any] = [*_calls_of(piece)]
            message = StreamingChatMessageContent(items=calls, **common | self._facts(piece))
            note_calls(turn, message)
            yield [message]

    def _body(self, history: "ChatHistory", settings: PromptExecutionSettings) -> Body:
        if not isinstance(settings, RequestSettings):
            settings = self.get_prompt_execution_settings_from_settings(settings)
        assert isinstance(settings, RequestSettings)  # noqa: S101 - the class named above
        return {"model": self.ai_model_id, **settings.body(), "messages": [*_messages(history)]}

    def _facts(self, completion: Completion) -> dict[str, Any]:
        usage = {
            "prompt_tokens": completion.usage.prompt_tokens,
            "completion_tokens": completion.usage.completion_tokens,
        }
        return {
            "ai_model_id": self.ai_model_id,
            "metadata": {"usage": usage if completion.usage.total_tokens else None},
            "finish_reason": _FINISH_REASONS.get(completion.finish_reason or ""),
        }


def _calls_of(completion: Completion) -> list[FunctionCallContent]:
    return [
        FunctionCallContent(id=call.id, index=index, name=call.name, arguments=call.arguments)
        for index, call in enumerate(completion.calls)
    ]


def _messages(history: "ChatHistory") -> Iterator[Body]:
    """Yield the messages of a conversation in OpenAI's shape.

    Semantic Kernel notes the results of parallel calls as they come; a request has them in the
    order of the calls, so that the same conversation makes the same request.
    """
    order: dict[str | None, int] = {}
    results: list[Body] = []
    for content in history.messages:
        found = [item for item in content.items if isinstance(item, FunctionResultContent)]
        if found:
            results += [_result(item) for item in found]
            continue
        yield from _sorted(results, order)
        results = []
        message = _message(content)
        order = {call["id"]: number for number, call in enumerate(message.get("tool_calls", ()))}
        yield message
    yield from _sorted(results, order)


def _sorted(results: list[Body], order: Mapping[str | None, int]) -> list[Body]:
    return sorted(results, key=lambda result: order.get(result["tool_call_id"], len(order)))


def _result(item: FunctionResultContent) -> Body:
    return {"role": "tool", "tool_call_id": item.id or "", "content": str(item.result)}


def _message(content: ChatMessageContent) -> Body:
    message: Body = {"role": content.role.value, "content": _content(content)}
    if content.name:
        message["name"] = content.name
    calls = [item for item in content.items if isinstance(item, FunctionCallContent)]
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [_tool_call(item) for item in calls]
    return message


def _content(content: ChatMessageContent) -> str | list[Body]:
    """Return the text of a message; its parts, if it has images."""
    images = [item for item in content.items if isinstance(item, ImageContent)]
    if not images:
        return content.content
    texts = [item for item in content.items if isinstance(item, TextContent)]
    return [
        *({"type": "text", "text": item.text} for item in texts),
        *({"type": "image_url", "image_url": {"url": str(item)}} for item in images),
    ]


def _tool_call(item: FunctionCallContent) -> Body:
    arguments = item.arguments if isinstance(item.arguments, str) else json.dumps(item.arguments)
    function = {"name": item.name, "arguments": arguments or "{}"}
    return {"id": item.id, "type": "function", "function": function}


class LocalCompletions:
    """Completes conversations with a known model or a GGUF file; a grammar limits its calls.

    Args:
        name: The model, loaded at first use.
        find_weights: Finds its weights.
    """

    def __init__(self, name: str, find_weights: FindWeights) -> None:
        self._name = name
        self._find_weights = find_weights
        self._model: LocalModel | None = None

    async def prepare(self) -> None:
        """Download and load the model, if it is asked. Raises ModelStoreError and MissingExtra."""
        if needs_model():
            await self._load()

    async def close(self) -> None:
        """Do nothing: the model stays loaded for further requests."""

    async def complete_body(
        self, body: Mapping[str, Any], stats: "RequestStats", _: "RetryConfig | None" = None
    ) -> Completion:
        """Return the completion for the body of a request."""
        from holodeck.lib.local_models.chat import reply_to
        from holodeck.lib.local_models.chat_request import ChatSettings

        settings = ChatSettings(
            temperature=body.get("temperature"),
            max_tokens=body.get("max_tokens"),
            top_p=body.get("top_p"),
            response_format=body.get("response_format"),
        )

        async def compute() -> Mapping[str, Any]:
            model = await self._load()
            reply = await reply_to(model, body["messages"], body.get("tools") or (), settings)
            return to_document(reply)

        request = {**body, "model": self._name}
        completion = parse_completion(await answer_json(AGENT, request, compute))
        stats.meter.add(completion.usage, self._name)
        return completion

    async def stream_body(
        self, body: Mapping[str, Any], stats: "RequestStats", retry: "RetryConfig | None" = None
    ) -> AsyncIterator[str | Completion]:
        """Yield the whole text as one piece, as the grammar's output cannot be split."""
        completion = await self.complete_body(body, stats, retry)
        if completion.text:
            yield completion.text
        yield completion

    async def _load(self) -> "LocalModel":
        if self._model is None:
            self._model = await run_in_thread(self._load_now, name="holodeck-model")
        return self._model

    def _load_now(self) -> "LocalModel":
        from holodeck.lib.local_models.runtime import LocalModel

        return LocalModel.load(self._find_weights(self._name))
