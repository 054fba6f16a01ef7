"""The chat service of Anthropic's models; the only module that imports anthropic."""

from typing import TYPE_CHECKING, Any

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion
from semantic_kernel.contents import ImageContent
from semantic_kernel.contents.utils.author_role import AuthorRole

from holodeck.lib.backends.semantic_kernel.chat_service import client_options
from holodeck.lib.backends.semantic_kernel.invocation import current_turn
from holodeck.lib.llm.endpoint import missing_api_key
from holodeck.lib.llm.limits import CallLimits
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory, ChatMessageContent


def anthropic_service(llm: LLMProvider, limits: CallLimits) -> "AnthropicChat":
    """Return a service with a client of its own. Raises ConfigError without a key."""
    if llm.api_key is None:
        raise missing_api_key(llm)
    key, timeout = llm.api_key.get_secret_value(), limits.attempt_timeout
    http_client = DefaultAsyncHttpxClient(timeout=timeout, **client_options(limits.answer_bytes))
    client = AsyncAnthropic(
        base_url=llm.endpoint, api_key=key, max_retries=0, timeout=timeout, http_client=http_client
    )
    return AnthropicChat(ai_model_id=llm.name, api_key=key, async_client=client)


class AnthropicChat(AnthropicChatCompletion):
    """Sends the images of messages, and which results of tools are errors."""

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
