"""The chat service of Anthropic's models; the only module that imports anthropic."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion
from semantic_kernel.contents import ImageContent, TextContent
from semantic_kernel.contents.utils.author_role import AuthorRole

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.base import ToolResult
from holodeck.lib.backends.parsing import requested_call
from holodeck.lib.backends.semantic_kernel.chat_service import client_options
from holodeck.lib.backends.semantic_kernel.invocation import KernelTurn, current_turn
from holodeck.lib.llm.endpoint import missing_api_key
from holodeck.lib.llm.limits import CallLimits
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from anthropic.types import Message
    from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
    from semantic_kernel.contents import (
        ChatHistory,
        ChatMessageContent,
        StreamingChatMessageContent,
    )


WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
"""The tool with which Anthropic itself searches the web while a model answers."""


def anthropic_service(
    llm: LLMProvider, limits: CallLimits, *, searches_web: bool = False
) -> "AnthropicChat":
    """Return a service with a client of its own. Raises ConfigError without a key."""
    if llm.api_key is None:
        raise missing_api_key(llm)
    key, timeout = llm.api_key.get_secret_value(), limits.attempt_timeout
    http_client = DefaultAsyncHttpxClient(timeout=timeout, **client_options(limits.answer_bytes))
    client = AsyncAnthropic(
        base_url=llm.endpoint, api_key=key, max_retries=0, timeout=timeout, http_client=http_client
    )
    chat = AnthropicChat(ai_model_id=llm.name, api_key=key, async_client=client)
    chat.searches_web = searches_web
    return chat


class AnthropicChat(AnthropicChatCompletion):
    """Sends the images of messages, which results of tools are errors, and the web search."""

    searches_web: bool = False

    async def _inner_get_chat_message_contents(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings"
    ) -> "list[ChatMessageContent]":
        settings = self._with_web_search(settings)
        messages: list[ChatMessageContent] = await super()._inner_get_chat_message_contents(
            chat_history, settings
        )
        return messages

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: "PromptExecutionSettings",
        function_invoke_attempt: int = 0,
    ) -> "AsyncGenerator[list[StreamingChatMessageContent], Any]":
        settings = self._with_web_search(settings)
        stream = super()._inner_get_streaming_chat_message_contents(
            chat_history, settings, function_invoke_attempt
        )
        async for pieces in stream:
            yield pieces

    def _with_web_search(self, settings: "PromptExecutionSettings") -> "PromptExecutionSettings":
        if not self.searches_web:
            return settings
        chosen = self.get_prompt_execution_settings_from_settings(settings)
        tools = [*(getattr(chosen, "tools", None) or ()), WEB_SEARCH]
        return chosen.model_copy(update={"tools": tools})

    def _create_chat_message_content(
        self, response: "Message", response_metadata: dict[str, Any]
    ) -> "ChatMessageContent":
        """Return the message with one text: a model that searches writes it in several blocks."""
        if response.stop_reason == "pause_turn":
            raise BackendSessionError(
                "Anthropic paused the response, because the model searched the web for too long"
            )
        turn = current_turn.get()
        if turn is not None:
            note_searches(turn, response)
        message = super()._create_chat_message_content(response, response_metadata)
        texts = [item for item in message.items if isinstance(item, TextContent)]
        if len(texts) > 1:
            others = [item for item in message.items if item not in texts]
            message.items = [*others, TextContent(text="".join(text.text for text in texts))]
        return message

    def _prepare_chat_history_for_request(
        self,
        chat_history: "ChatHistory",
        role_key: str = "role",
        content_key: str = "content",
        stream: bool = False,
    ) -> tuple[list[dict[str, Any]], str | None]:
        messages, system = super()._prepare_chat_history_for_request(
            chat_history, role_key, content_key, stream
        )
        # Results of tools are messages of the user, too, but hold no plain text.
        of_users = (message for message in messages if isinstance(message[content_key], str))
        sources = (item for item in chat_history.messages if item.role is AuthorRole.USER)
        for message, source in zip(of_users, sources, strict=True):
            if images := _image_blocks(source):
                message[content_key] = [{"type": "text", "text": message[content_key]}, *images]
        _mark_failed_results(messages, content_key)
        return messages, system


def note_searches(turn: KernelTurn, response: "Message") -> None:
    """Note the web searches in a response, which Anthropic ran."""
    for block in response.content:
        if block.type == "server_tool_use":
            turn.calls[block.id] = requested_call(block.name, block.input, block.id)
        elif block.type == "web_search_tool_result":
            found, call_id = block.content, block.tool_use_id
            returned = ToolResult(name=WEB_SEARCH["name"], call_id=call_id)
            if isinstance(found, list):
                returned["result"] = [{"title": page.title, "url": page.url} for page in found]
            else:
                returned["result"], returned["is_error"] = found.error_code, True
            turn.results_of_provider[call_id] = returned


def _mark_failed_results(messages: list[dict[str, Any]], content_key: str) -> None:
    """Tell the model which of its tools failed in this turn; Semantic Kernel does not."""
    turn = current_turn.get()
    failed = {call_id for call_id, run in turn.tool_runs.items() if run.error} if turn else set()
    for message in messages:
        blocks = message[content_key]
        for block in blocks if isinstance(blocks, list) else ():
            if block.get("type") == "tool_result" and block.get("tool_use_id") in failed:
                block["is_error"] = True


def _image_blocks(message: "ChatMessageContent") -> list[dict[str, Any]]:
    """Return the images of a message as Anthropic's API takes them."""
    return [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": item.mime_type, "data": item.data_string},
        }
        for item in message.items
        if isinstance(item, ImageContent)
    ]
