"""A chat service that keeps its nerve: one client per event loop, retries, limits, counts."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from pydantic import PrivateAttr
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents.function_call_content import FunctionCallContent

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.arguments import parse_arguments
from holodeck.lib.backends.semantic_kernel.bounds import current_limiter
from holodeck.lib.backends.semantic_kernel.calls import AgentCall, current_call
from holodeck.lib.backends.semantic_kernel.faults import (
    NOT_A_COMPLETION,
    MalformedAnswer,
    describe,
    is_overload,
    is_transient,
    malformed_on_error,
    retry_after,
    status_of,
)
from holodeck.lib.backends.semantic_kernel.local import LocalChatCompletion
from holodeck.lib.backends.semantic_kernel.usage import usage_of
from holodeck.lib.chat.faults import why_unreachable
from holodeck.lib.limiter import Limiters
from holodeck.lib.observability import names, span
from holodeck.lib.retry import RetryConfig, backoff_delay, first_delay, retry
from holodeck.models.outcome import Attempt

if TYPE_CHECKING:
    from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.contents.chat_message_content import ChatMessageContent
    from semantic_kernel.contents.streaming_chat_message_content import (
        StreamingChatMessageContent,
    )

ServiceMaker = Callable[[], ChatCompletionClientBase]


class ResilientChat(ChatCompletionClientBase):
    """Passes requests on to the real service and tries again what is transient.

    It retries single requests, not whole invocations: a tool that has run does not run again
    because the request after it failed.
    """

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True

    _make: ServiceMaker = PrivateAttr()
    _first: ChatCompletionClientBase = PrivateAttr()
    _first_is_taken: bool = PrivateAttr(default=False)
    _limiters: Limiters = PrivateAttr(default_factory=Limiters)
    _endpoint: str = PrivateAttr(default="")
    _of_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, ChatCompletionClientBase]" = (
        PrivateAttr(default_factory=WeakKeyDictionary)
    )

    @classmethod
    def around(cls, make: ServiceMaker) -> "ResilientChat":
        """A service on top of the ones that `make` gives, one for each event loop."""
        first = make()
        chat = cls(ai_model_id=first.ai_model_id, service_id=first.service_id)
        chat._make, chat._first = make, first
        return chat

    @classmethod
    def over(cls, chat: ChatCompletionClientBase) -> "ResilientChat":
        """A service on top of the one that somebody else made, on whatever loop."""
        return cls.around(lambda: chat)

    def limited_by(self, limiters: Limiters, endpoint: str) -> "ResilientChat":
        """The same service, its requests sharing the endpoint's slots with all others."""
        self._limiters, self._endpoint = limiters, endpoint
        return self

    def service(self) -> ChatCompletionClientBase:
        """The real service of the running event loop: a client must not be shared by two loops."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = self._make() if self._first_is_taken else self._first
            self._first_is_taken = True
        return self._of_loop[loop]

    async def prepare(self) -> None:
        """Make the model ready where that takes time: a local one is fetched and loaded."""
        service = self.service()
        if isinstance(service, LocalChatCompletion):
            await service.load()

    async def close(self) -> None:
        """Close the running loop's client; the next request makes a new one."""
        service = self._of_loop.pop(asyncio.get_running_loop(), None)
        client = getattr(service, "async_client", None) or getattr(service, "client", None)
        close = getattr(client, "close", None) or getattr(client, "aclose", None)
        if close is not None:
            await close()

    def get_prompt_execution_settings_class(self) -> "type[PromptExecutionSettings]":
        return self._first.get_prompt_execution_settings_class()

    def _verify_function_choice_settings(self, settings: "PromptExecutionSettings") -> None:
        self._first._verify_function_choice_settings(settings)  # noqa: SLF001

    def _update_function_choice_settings_callback(self) -> Any:
        return self._first._update_function_choice_settings_callback()  # noqa: SLF001

    def _reset_function_choice_settings(self, settings: "PromptExecutionSettings") -> None:
        self._first._reset_function_choice_settings(settings)  # noqa: SLF001

    async def _inner_get_chat_message_contents(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings"
    ) -> "list[ChatMessageContent]":
        call = _call()
        _remember(call, chat_history)
        messages = await self._retried(call, lambda: self._ask(chat_history, settings, call))
        _count(call, messages)
        return messages

    async def _ask(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings", call: AgentCall
    ) -> "list[ChatMessageContent]":
        limiter = self._limiters.of(self._endpoint)
        async with limiter.slot() as slot:
            call.waited_s += slot.waited_s
            token = current_limiter.set(limiter)
            try:
                messages = await self._answered(chat_history, settings, call)
                self._limiters.note_reached(self._endpoint)
                return messages
            except Exception as error:
                if status_of(error) is not None:
                    self._limiters.note_reached(self._endpoint)
                if is_overload(error):
                    limiter.overloaded(slot, retry_after(error))
                raise
            finally:
                current_limiter.reset(token)

    async def _answered(
        self, chat_history: "ChatHistory", settings: "PromptExecutionSettings", call: AgentCall
    ) -> "list[ChatMessageContent]":
        labels = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: self.ai_model_id}
        with span(names.chat(self.ai_model_id), labels, kind="client") as current:
            service = self.service()
            async with asyncio.timeout(call.attempt_timeout):
                with malformed_on_error():
                    messages = await service._inner_get_chat_message_contents(  # noqa: SLF001
                        chat_history, settings
                    )
            if not messages:
                raise MalformedAnswer(NOT_A_COMPLETION)
            usage = usage_of(messages[0].metadata)
            spent = (usage.prompt_tokens, usage.completion_tokens)
            current.set(dict(zip((names.INPUT_TOKENS, names.OUTPUT_TOKENS), spent, strict=True)))
        return messages

    async def _retried(
        self, call: AgentCall, ask: Callable[[], Awaitable["list[ChatMessageContent]"]]
    ) -> "list[ChatMessageContent]":
        """What `ask` gives, tried as often as the call allows; each failed try is noted."""
        tries = count(1)

        async def once() -> "list[ChatMessageContent]":
            number = next(tries)
            call.requests += 1
            try:
                return await ask()
            except Exception as error:
                call.attempts.append(Attempt(number=number, error=describe(error)))
                raise

        try:
            return await retry(
                once,
                attempts=call.retry.max_retries + 1,
                is_transient=is_transient,
                delay_for=lambda error, attempt: (
                    first_delay(attempt, call.retry)
                    if self._is_down(error)
                    else _wait(call, error, attempt)
                ),
                on_retry=lambda _error, _attempt, wait: _note_wait(call, wait),
                is_down=self._is_down,
                describe=describe,
            )
        except Exception as error:
            call.found_no_server = self._is_down(error)
            raise

    def _is_down(self, error: Exception) -> bool:
        """Whether no connection could be made to a server that has not answered in this run."""
        is_unreachable = status_of(error) is None and why_unreachable(error) is not None
        return is_unreachable and not self._limiters.was_reached(self._endpoint)

    async def _inner_get_streaming_chat_message_contents(
        self,
        chat_history: "ChatHistory",
        settings: "PromptExecutionSettings",
        function_invoke_attempt: int = 0,
    ) -> AsyncGenerator["list[StreamingChatMessageContent]", Any]:
        """The real service's stream; not tried again, since pieces may have been shown already."""
        call = _call()
        _remember(call, chat_history)
        call.requests += 1
        stream = self.service()._inner_get_streaming_chat_message_contents(  # noqa: SLF001
            chat_history, settings, function_invoke_attempt
        )
        async for pieces in stream:
            for piece in pieces[:1]:
                call.usage += usage_of(piece.metadata)
            yield pieces


def _call() -> AgentCall:
    """The call that is being made; one of its own for a kernel that is used directly."""
    return current_call.get() or AgentCall(retry=RetryConfig())


def _remember(call: AgentCall, history: "ChatHistory") -> None:
    if call.history is not history:
        call.history, call.first_new = history, len(history.messages)


def _count(call: AgentCall, messages: "list[ChatMessageContent]") -> None:
    call.meter(usage_of(messages[0].metadata))
    calls = [item for item in messages[0].items if isinstance(item, FunctionCallContent)]
    if calls:
        call.tool_rounds += 1
    for item in calls:
        _give_unique_id(call, item)
        _read_arguments(call, item)


def _give_unique_id(call: AgentCall, item: FunctionCallContent) -> None:
    """Some providers send no ids and faulty ones send the same twice; results need one to go by."""
    if not item.id or item.id in call.ids:
        item.id = f"{item.id or 'call'}_{len(call.ids) + 1}"
    call.ids.add(item.id)


def _read_arguments(call: AgentCall, item: FunctionCallContent) -> None:
    """Read the arguments here, where nothing is lost yet; in place of those that cannot be read the
    model gets back why, and Semantic Kernel has nothing to stumble over."""
    assert item.id is not None  # noqa: S101 - it was just given one
    call.arguments[item.id] = _, error = parse_arguments(item.arguments)
    if error is not None:
        is_text = isinstance(item.arguments, str)
        item.arguments = f"<{error}>" if is_text else {"unreadable": error}


def _wait(call: AgentCall, error: Exception, attempt: int) -> float:
    """Seconds until the next try: what the provider asks, else growing with each try."""
    asked = retry_after(error)
    if asked is None:
        return backoff_delay(attempt, call.retry)
    if asked > call.retry.max_delay:
        raise BackendSessionError(
            f"{describe(error)}; the provider asks to wait {asked:.0f} s, longer than the "
            f"{call.retry.max_delay:.0f} s that are waited at most"
        ) from error
    return asked * random.uniform(1, 1.1)  # noqa: S311 - spreads load, guards nothing


def _note_wait(call: AgentCall, wait: float) -> None:
    last = call.attempts.pop()
    call.attempts.append(last.model_copy(update={"retry_after_ms": round(wait * 1000)}))
