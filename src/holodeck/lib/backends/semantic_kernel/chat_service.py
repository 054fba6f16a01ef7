"""A Semantic Kernel chat service with one client per event loop, retries and rate limits."""

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from pydantic import PrivateAttr
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents.function_call_content import FunctionCallContent

from holodeck.lib.backends.frameworks.semantic_kernel.messages import token_counts
from holodeck.lib.backends.parsing import requested_call, unique_call_id
from holodeck.lib.backends.semantic_kernel.invocation import KernelTurn, current_turn
from holodeck.lib.llm.client import RequestSender
from holodeck.lib.llm.http_body import Decoder, TooLarge, too_large
from holodeck.lib.llm.limiter import Limiter, Limiters, apply_rate_limits
from holodeck.lib.llm.provider_errors import (
    NOT_A_COMPLETION,
    MalformedResponse,
    malformed_on_error,
    request_error,
    status_of,
)
from holodeck.lib.observability import names, span
from holodeck.lib.tools.base import IMAGES_OF_TOOLS
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.contents.chat_message_content import ChatMessageContent
    from semantic_kernel.contents.streaming_chat_message_content import (
        StreamingChatMessageContent,
    )

SCHEMA = "holodeck_schema"
"""The key of a function's metadata for the schema of all its parameters."""

ServiceFactory = Callable[[], ChatCompletionClientBase]


class TurnChat(ChatCompletionClientBase):
    """A chat service that notes in the running turn what it requests and gets."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True

    _takes_images: bool = PrivateAttr(default=False)

    async def prepare(self) -> None:
        """Download and load what is needed before the first request."""

    async def close(self) -> None:
        """Close the client of the running event loop; the next request opens a new one."""

    async def _complete(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings"
    ) -> "list[ChatMessageContent]":
        """Return the model's response, retried where that may help. Raises RequestError."""
        raise NotImplementedError

    async def _inner_get_chat_message_contents(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings"
    ) -> "list[ChatMessageContent]":
        turn = current_turn_of(chat_history)
        if self._takes_images:
            _add_images(chat_history, turn)
        messages = await self._complete(chat_history, settings)
        note_calls(turn, messages[0])
        return messages


class ResilientChat(TurnChat):
    """Passes requests on to the real service and retries those that failed for a transient reason.

    It retries single requests, not whole invocations: a tool that has run does not run again
    because the request after it failed.
    """

    _factory: ServiceFactory = PrivateAttr()
    _first: ChatCompletionClientBase = PrivateAttr()
    _first_is_taken: bool = PrivateAttr(default=False)
    _limiters: Limiters = PrivateAttr(default_factory=Limiters)
    _endpoint: str = PrivateAttr(default="")
    _services: "WeakKeyDictionary[asyncio.AbstractEventLoop, ChatCompletionClientBase]" = (
        PrivateAttr(default_factory=WeakKeyDictionary)
    )

    @classmethod
    def wrap(
        cls,
        factory: ServiceFactory,
        limiters: Limiters | None = None,
        endpoint: str = "",
        *,
        takes_images: bool = False,
    ) -> "ResilientChat":
        """Return a service that calls the services that `factory` returns, one per event loop.

        Its requests share the limiter of the endpoint. With `takes_images`, images of tools are
        sent to the model.
        """
        first = factory()
        chat = cls(ai_model_id=first.ai_model_id, service_id=first.service_id)
        chat._factory, chat._first = factory, first
        if limiters is not None:
            chat._limiters = limiters
        chat._endpoint, chat._takes_images = endpoint, takes_images
        return chat

    @classmethod
    def wrap_existing(cls, chat: ChatCompletionClientBase) -> "ResilientChat":
        """Return a service that calls one that the user made, on every event loop."""
        return cls.wrap(lambda: chat)

    def service(self) -> ChatCompletionClientBase:
        """Return the real service of the running event loop, as loops cannot share a client."""
        loop = asyncio.get_running_loop()
        if loop not in self._services:
            self._services[loop] = self._factory() if self._first_is_taken else self._first
            self._first_is_taken = True
        return self._services[loop]

    async def close(self) -> None:
        service = self._services.pop(asyncio.get_running_loop(), None)
        client = getattr(service, "async_client", None) or getattr(service, "client", None)
        close = getattr(client, "close", None) or getattr(client, "aclose", None)
        if close is not None:
            await close()

    def get_prompt_execution_settings_class(self) -> "type[PromptExecutionSettings]":
        return self._first.get_prompt_execution_settings_class()

    def _verify_function_choice_settings(self, settings: "PromptExecutionSettings") -> None:
        self._first._verify_function_choice_settings(settings)  # noqa: SLF001

    def _update_function_choice_settings_callback(self) -> Any:
        return with_server_schemas(
            self._first._update_function_choice_settings_callback()  # noqa: SLF001
        )

    def _reset_function_choice_settings(self, settings: "PromptExecutionSettings") -> None:
        self._first._reset_function_choice_settings(settings)  # noqa: SLF001

    async def _complete(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings"
    ) -> "list[ChatMessageContent]":
        turn = current_turn_of(chat_history)
        sender = RequestSender(self._endpoint, self._limiters, classify=request_error)
        request = partial(self._request, chat_history, settings, turn)
        messages = await sender.send(request, turn.retry, turn)
        turn.meter.add(_usage_of(messages[0]), self.ai_model_id)
        return messages

    async def _request(
        self,
        chat_history: "ChatHistory",
        settings: "PromptExecutionSettings",
        turn: KernelTurn,
        limiter: Limiter,
    ) -> "list[ChatMessageContent]":
        """Send the request once."""
        token = current_limiter.set(limiter)
        try:
            messages = await self._send(chat_history, settings, turn.attempt_timeout)
        except Exception as error:
            if status_of(error) is not None:
                self._limiters.note_reached(self._endpoint)
            raise
        finally:
            current_limiter.reset(token)
        self._limiters.note_reached(self._endpoint)
        return messages

    async def _send(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings", limit: float | None
    ) -> "list[ChatMessageContent]":
        labels = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider(self._endpoint),
            names.REQUEST_MODEL: self.ai_model_id,
        }
        with span(names.chat(self.ai_model_id), labels, kind="client") as current:
            service = self.service()
            async with asyncio.timeout(limit):
                with malformed_on_error():
                    messages = await service._inner_get_chat_message_contents(  # noqa: SLF001
                        chat_history, settings
                    )
            if not messages:
                raise MalformedResponse(NOT_A_COMPLETION)
            usage = _usage_of(messages[0])
            current.set({names.INPUT_TOKENS: usage.prompt_tokens})
            current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        return messages

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: "PromptExecutionSettings",
        function_invoke_attempt: int = 0,
    ) -> AsyncGenerator["list[StreamingChatMessageContent]", Any]:
        """Yield the real service's stream; never retried, as the user may have seen pieces."""
        turn = current_turn_of(chat_history)
        stream = self.service()._inner_get_streaming_chat_message_contents(  # noqa: SLF001
            chat_history, settings, function_invoke_attempt
        )
        async for pieces in stream:
            for piece in pieces[:1]:
                usage = _usage_of(piece)
                if usage.total_tokens:
                    turn.meter.add(usage, self.ai_model_id)
            yield pieces


def with_server_schemas(update: Callable[..., None]) -> Callable[..., None]:
    """Return what writes the tools into the settings, with the schemas of servers unchanged."""

    def update_settings(configuration: Any, settings: Any, kind: Any) -> None:
        update(configuration, settings, kind)
        schemas = {
            function.fully_qualified_name: function.additional_properties[SCHEMA]
            for function in configuration.available_functions or ()
            if SCHEMA in (function.additional_properties or {})
        }
        if schemas:
            _set_schemas(getattr(settings, "tools", None) or (), schemas)

    return update_settings


def _set_schemas(tools: Iterable[dict[str, Any]], schemas: Mapping[str, dict[str, Any]]) -> None:
    for tool in tools:
        function = tool.get("function", tool)
        if function["name"] in schemas:
            key = "input_schema" if "input_schema" in function else "parameters"
            function[key] = schemas[function["name"]]


def current_turn_of(history: "ChatHistory") -> KernelTurn:
    """Return the running turn; a new one for a kernel that is used directly."""
    turn = current_turn.get() or KernelTurn()
    if turn.history is not history:
        turn.history, turn.first_new = history, len(history.messages)
    return turn


def note_calls(turn: KernelTurn, message: "ChatMessageContent") -> None:
    """Give each tool call of a response a unique id and readable arguments.

    Arguments that cannot be parsed are replaced by the reason, for the model to read; Semantic
    Kernel would fail on them.
    """
    calls = [item for item in message.items if isinstance(item, FunctionCallContent)]
    turn.tool_rounds += bool(calls)
    for item in calls:
        # Some providers send no ids, faulty ones the same id twice.
        item.id = unique_call_id(item.id or "", turn.calls)
        if turn.runs_every_tool and item.name is not None:
            item.plugin_name, item.function_name = None, item.name  # it may have a hyphen
        call = requested_call(item.name or "", item.arguments, item.id)
        turn.calls[item.id] = call
        if "error" in call:
            is_text = isinstance(item.arguments, str)
            item.arguments = f"<{call['error']}>" if is_text else {"unreadable": call["error"]}


def _add_images(history: "ChatHistory", turn: KernelTurn) -> None:
    """Add a message with the images that tools returned, whose own messages hold text only."""
    if not turn.images:
        return
    # Imported here because few tools return images.
    from semantic_kernel.contents import ChatMessageContent, ImageContent, TextContent
    from semantic_kernel.contents.utils.author_role import AuthorRole

    items: list[Any] = [TextContent(text=IMAGES_OF_TOOLS)]
    items += [ImageContent(data_uri=image.data_uri) for image in turn.images]
    history.add_message(ChatMessageContent(role=AuthorRole.USER, items=items))
    turn.images.clear()


def _usage_of(message: "ChatMessageContent") -> TokenUsage:
    """Return the token usage of a request; zero if its response reports none."""
    prompt, completion = token_counts(message.metadata.get("usage"))
    return TokenUsage.of(prompt or 0, completion or 0)


current_limiter: ContextVar[Limiter | None] = ContextVar("holodeck_limiter", default=None)
"""The limiter of the running request."""


def client_options(max_bytes: int) -> dict[str, Any]:
    """Return options for the client of a provider's library, which limit the size of a response.

    The libraries read responses of any size, and follow redirects to any host. A hook sees each
    response before its body is read; it works for clients on httpx and on httpx2, whose responses
    are alike.
    """

    async def limit(response: Any) -> None:
        limiter = current_limiter.get()
        if limiter is not None:
            apply_rate_limits(limiter, response.headers)
        coding = response.headers.pop("content-encoding", "identity").lower()
        decoder = None if coding == "identity" else Decoder(coding, max_bytes)
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length[:16]) > max_bytes:
            raise TooLarge(too_large(max_bytes))
        kinds = type(response.stream).__mro__
        base = next(kind for kind in kinds if kind.__name__ == "AsyncByteStream")
        response.stream = _limited_stream(base)(response.stream, max_bytes, decoder)

    # A response that is compressed all the same is decoded here, up to the limit of its size.
    headers = {"Accept-Encoding": "identity"}
    hooks = {"response": [limit]}
    return {"headers": headers, "event_hooks": hooks, "follow_redirects": False}


@functools.cache
def _limited_stream(base: type) -> Any:
    """Return the class of a limited stream, based on the library's own class, as it requires."""

    class LimitedStream(base):  # type: ignore[misc]  # only known at run time
        def __init__(self, stream: Any, max_bytes: int, decoder: Decoder | None) -> None:
            self._stream = stream
            self._max_bytes = max_bytes
            self._decoder = decoder

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = self._max_bytes
            async for piece in self._stream:
                left -= len(piece)
                if left < 0:
                    raise TooLarge(too_large(self._max_bytes))
                yield piece if self._decoder is None else self._decoder.feed(piece)
            if self._decoder is not None:
                self._decoder.end()

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream
