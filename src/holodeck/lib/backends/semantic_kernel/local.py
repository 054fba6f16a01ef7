"""Semantic Kernel's chat service for a local model, which runs in the process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PrivateAttr
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_calling_utils import (
    kernel_function_metadata_to_function_call_format,
)
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import (
    AuthorRole,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    StreamingChatMessageContent,
    StreamingTextContent,
    TextContent,
)

from holodeck.lib.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.local_models.chat import Reply
    from holodeck.lib.local_models.runtime import LocalModel
    from holodeck.lib.local_models.store import ModelStore

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LocalWeights:
    """Finds and downloads the weights of local models."""

    store: "ModelStore"
    base_dir: Path
    progress: Progress

    def path_of(self, name: str) -> Path:
        """Return the weights of a model, downloaded if missing. Raises ModelStoreError."""
        return self.store.resolve(name, self.base_dir, self.progress)


class LocalSettings(PromptExecutionSettings):
    """Settings of a request to a local model."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None


class LocalChatCompletion(ChatCompletionClientBase):
    """Returns responses of a model in the process; a grammar constrains its tool calls."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True

    _weights: LocalWeights = PrivateAttr()
    _model: "LocalModel | None" = PrivateAttr(default=None)

    @classmethod
    def of(cls, name: str, weights: LocalWeights) -> "LocalChatCompletion":
        """Return the service of a known model or of a GGUF file, loaded at first use."""
        service = cls(ai_model_id=name, service_id="local")
        service._weights = weights
        return service

    async def load(self) -> "LocalModel":
        """Download and load the model. Raises ModelStoreError and MissingExtra."""
        if self._model is None:
            self._model = await run_in_thread(self._load, name="holodeck-model")
        return self._model

    def _load(self) -> "LocalModel":
        from holodeck.lib.local_models.runtime import LocalModel

        return LocalModel.load(self._weights.path_of(self.ai_model_id))

    def get_prompt_execution_settings_class(self) -> type[PromptExecutionSettings]:
        return LocalSettings

    def _update_function_choice_settings_callback(self) -> Any:
        def update(configuration: Any, settings: Any, _: Any) -> None:
            settings.tools = [
                kernel_function_metadata_to_function_call_format(function)
                for function in configuration.available_functions or []
            ] or None

        return update

    def _reset_function_choice_settings(self, settings: PromptExecutionSettings) -> None:
        if isinstance(settings, LocalSettings):
            settings.tools = None

    async def _inner_get_chat_message_contents(
        self, chat_history: "ChatHistory", settings: PromptExecutionSettings
    ) -> list[ChatMessageContent]:
        reply = await self._reply(chat_history, settings)
        item = TextContent(text=reply.text) if reply.call is None else _tool_call_of(reply)
        return [
            ChatMessageContent(
                role=AuthorRole.ASSISTANT,
                ai_model_id=self.ai_model_id,
                items=[item],
                metadata=_metadata(reply),
            )
        ]

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: PromptExecutionSettings,
        function_invoke_attempt: int = 0,
    ) -> "AsyncGenerator[list[StreamingChatMessageContent], Any]":
        """Yield the whole response as one piece, as the grammar's output cannot be split."""
        reply = await self._reply(chat_history, settings)
        text = StreamingTextContent(text=reply.text, choice_index=0)
        yield [
            StreamingChatMessageContent(
                role=AuthorRole.ASSISTANT,
                choice_index=0,
                ai_model_id=self.ai_model_id,
                items=[text if reply.call is None else _tool_call_of(reply)],
                metadata=_metadata(reply),
                function_invoke_attempt=function_invoke_attempt,
            )
        ]

    async def _reply(
        self, chat_history: "ChatHistory", settings: PromptExecutionSettings
    ) -> "Reply":
        from holodeck.lib.local_models.chat import reply_to
        from holodeck.lib.local_models.chat_request import ChatSettings

        assert isinstance(settings, LocalSettings)  # noqa: S101 - the class named above
        wanted = ChatSettings(
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            response_format=settings.response_format,
        )
        model = await self.load()
        return await reply_to(model, _openai_history(chat_history), settings.tools or (), wanted)


def _tool_call_of(reply: "Reply") -> FunctionCallContent:
    assert reply.call is not None  # noqa: S101 - checked by the callers
    arguments = json.dumps(reply.call.arguments)
    return FunctionCallContent(id=reply.call_id, name=reply.call.name, arguments=arguments)


def _metadata(reply: "Reply") -> dict[str, Any]:
    usage = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
    }
    return {"usage": usage, "finish_reason": reply.finish_reason}


def _openai_history(history: "ChatHistory") -> list[dict[str, Any]]:
    return [message for content in history.messages for message in _openai_messages(content)]


def _openai_messages(content: ChatMessageContent) -> list[dict[str, Any]]:
    results = [item for item in content.items if isinstance(item, FunctionResultContent)]
    if results:
        return [
            {
                "role": "tool",
                "tool_call_id": item.id,
                "name": item.name,
                "content": str(item.result),
            }
            for item in results
        ]
    message: dict[str, Any] = {"role": content.role.value, "content": content.content}
    calls = [item for item in content.items if isinstance(item, FunctionCallContent)]
    if calls:
        message["tool_calls"] = [_openai_tool_call(item) for item in calls]
    return [message]


def _openai_tool_call(item: FunctionCallContent) -> dict[str, Any]:
    arguments = item.arguments if isinstance(item.arguments, str) else json.dumps(item.arguments)
    return {
        "id": item.id,
        "type": "function",
        "function": {"name": item.name, "arguments": arguments},
    }
