"""A model in the process, as Semantic Kernel's chat service."""

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
    TextContent,
)

from holodeck.lib.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.local_models.runtime import LocalModel
    from holodeck.lib.local_models.store import ModelStore

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LocalWeights:
    """Where the weights of local models come from."""

    store: "ModelStore"
    base_dir: Path
    progress: Progress

    def path_of(self, name: str) -> Path:
        """The weights of a model, fetched if they are not there yet. Raises ModelStoreError."""
        return self.store.resolve(name, self.base_dir, self.progress)


class LocalSettings(PromptExecutionSettings):
    """What a request to a local model can say."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None


class LocalChatCompletion(ChatCompletionClientBase):
    """Answers from a model in the process; tools are chosen through a grammar."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True

    _weights: LocalWeights = PrivateAttr()
    _model: "LocalModel | None" = PrivateAttr(default=None)

    @classmethod
    def of(cls, name: str, weights: LocalWeights) -> "LocalChatCompletion":
        """The service of a known model or of a GGUF file; loads at first use."""
        service = cls(ai_model_id=name, service_id="local")
        service._weights = weights
        return service

    async def load(self) -> "LocalModel":
        """The model, its weights fetched and loaded. Raises ModelStoreError and MissingExtra."""
        if self._model is None:
            self._model = await in_thread(self._load, name="holodeck-model")
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
        from holodeck.lib.local_models.tool_grammar import chat_request, parse_choice

        assert isinstance(settings, LocalSettings)  # noqa: S101 - the class named above
        wanted = settings.model_dump(
            include={"temperature", "top_p", "max_tokens", "response_format"}, exclude_none=True
        )
        request = chat_request(_as_openai(chat_history), settings.tools or [], wanted)
        model = await self.load()
        answer = await model.acomplete(request)
        return [self._message(answer, parse_choice(answer, request))]

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: PromptExecutionSettings,
        function_invoke_attempt: int = 0,
    ) -> "AsyncGenerator[list[StreamingChatMessageContent], Any]":
        """The whole answer as one piece: what the grammar yields means nothing until it is done."""
        [message] = await self._inner_get_chat_message_contents(chat_history, settings)
        yield [
            StreamingChatMessageContent(
                role=AuthorRole.ASSISTANT,
                choice_index=0,
                items=message.items,
                metadata=message.metadata,
                function_invoke_attempt=function_invoke_attempt,
            )
        ]


def _as_openai(history: "ChatHistory") -> list[dict[str, Any]]:
    return [message for content in history.messages for message in _messages(content)]


def _messages(content: ChatMessageContent) -> list[dict[str, Any]]:
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
        message["tool_calls"] = [_call(item) for item in calls]
    return [message]


def _call(item: FunctionCallContent) -> dict[str, Any]:
    arguments = item.arguments if isinstance(item.arguments, str) else json.dumps(item.arguments)
    return {
        "id": item.id,
        "type": "function",
        "function": {"name": item.name, "arguments": arguments},
    }


__all__ = ["LocalChatCompletion", "LocalSettings", "LocalWeights", "TextContent"]
