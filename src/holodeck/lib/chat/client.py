"""The one thin client for chat completions: slots, tries, time limits and faults in one place."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holodeck.lib.chat.completion import Completion, parse_completion
from holodeck.lib.chat.connection import Connections, proxy_header
from holodeck.lib.chat.endpoint import Endpoint
from holodeck.lib.chat.faults import ChatFault, connection_fault, malformed_fault, refusal_fault
from holodeck.lib.chat.http import MalformedHttp, TooLarge
from holodeck.lib.chat.limits import CallLimits
from holodeck.lib.chat.rate_limits import apply_rate_limits
from holodeck.lib.chat.request_counting import note_request
from holodeck.lib.limiter import Limiter, Limiters
from holodeck.lib.observability import names, span
from holodeck.lib.retry import RetryConfig, backoff_delay, first_delay, retry
from holodeck.models.outcome import Attempt
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holodeck.lib.observability.spans import Span


@dataclass
class RequestStats:
    """What requests cost and met on their way; stays readable after a failure."""

    attempts: list[Attempt] = field(default_factory=list)
    """Tries that did not work."""
    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    unmetered: int = 0
    """Responses that came without their token usage."""
    waited_s: float = 0.0
    """Seconds that requests waited for a slot."""


class ChatClient:
    """Asks one endpoint for chat completions; one set of connections per event loop.

    Args:
        endpoint: Where to ask.
        model: What traces call the model.
        limits: How long a try may take, and how often it is made again.
        limiters: The slots that requests share with all others of the endpoint.
        kind: The kind of work, each of which has slots of its own.
        read: What makes a completion of an answer's body; raises ChatFault.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        limits: CallLimits,
        limiters: Limiters,
        kind: str = "agent",
        read: Callable[[bytes], Completion] = parse_completion,
    ) -> None:
        self._endpoint = endpoint
        self._labels = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model}
        self._span = names.chat(model)
        self._limits = limits
        self._retry = RetryConfig(max_retries=limits.retries, base_delay=limits.retry_delay)
        self._limiters = limiters
        self._kind = kind
        self._read = read
        self._head = _head(endpoint)
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = (
            WeakKeyDictionary()
        )

    async def complete(self, body: str, request_stats: RequestStats) -> Completion:
        """The completion that a request (JSON) gets in the end.

        Raises ChatFault; every try that did not work is noted in the trail.
        """
        data = body.encode()
        request = self._head + b"Content-Length: %d\r\n\r\n" % len(data) + data
        try:
            completion = await retry(
                partial(self._tried, request, request_stats, count(1)),
                attempts=self._retry.max_retries + 1,
                is_transient=lambda error: isinstance(error, ChatFault) and error.is_transient,
                delay_for=self._delay,
                on_retry=partial(_note_wait, request_stats),
                is_down=self._is_down,
                describe=str,
            )
        except ChatFault as error:
            if self._is_down(error):
                error.give_up()
            raise
        request_stats.usage += completion.usage
        request_stats.unmetered += not completion.usage.total_tokens
        return completion

    async def close(self) -> None:
        """Close the connections of the running event loop; a later request opens others."""
        connections = self._of_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()

    async def _tried(
        self, request: bytes, request_stats: RequestStats, tries: "Iterator[int]"
    ) -> Completion:
        number = next(tries)
        try:
            return await self._in_slot(request, request_stats)
        except ChatFault as error:
            request_stats.attempts.append(Attempt(number=number, error=str(error)))
            raise

    async def _in_slot(self, request: bytes, request_stats: RequestStats) -> Completion:
        limiter = self._limiters.of(self._endpoint.name, self._kind)
        async with limiter.slot() as slot:
            request_stats.waited_s += slot.waited_s
            note_request()
            try:
                with span(self._span, self._labels, kind="client") as current:
                    return await self._asked(request, limiter, current)
            except ChatFault as error:
                if error.is_overload:
                    limiter.overloaded(slot, error.asked_wait)
                raise

    async def _asked(self, request: bytes, limiter: Limiter, current: "Span") -> Completion:
        completion = await self._answer(request, limiter)
        if current.is_recorded:
            usage = completion.usage
            current.set({names.INPUT_TOKENS: usage.prompt_tokens})
            current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        return completion

    async def _answer(self, request: bytes, limiter: Limiter) -> Completion:
        """One try. Raises ChatFault."""
        try:
            async with self._attempt_limit():
                response = await self._connections().exchange(request)
        except TooLarge as error:
            raise ChatFault(str(error)) from error
        except MalformedHttp as error:
            raise malformed_fault(f"is no HTTP answer: {error}") from error
        except TimeoutError as error:
            raise ChatFault("no answer in time", is_transient=True) from error
        except OSError as error:
            raise connection_fault(error, self._endpoint.server) from error
        self._limiters.note_reached(self._endpoint.name)
        apply_rate_limits(limiter, response.headers)
        if response.status != 200:
            raise refusal_fault(response)
        return self._read(response.body)

    def _attempt_limit(self) -> AbstractAsyncContextManager[object]:
        """The time of one try; nothing where there is no limit, as each timeout costs a little."""
        if self._limits.attempt_timeout is None:
            return nullcontext()
        return asyncio.timeout(self._limits.attempt_timeout)

    def _connections(self) -> Connections:
        loop = asyncio.get_running_loop()
        found = self._of_loop.get(loop)
        if found is None:
            found = self._of_loop[loop] = Connections(
                self._endpoint.server, self._limits.answer_bytes
            )
        return found

    def _is_down(self, error: Exception) -> bool:
        """Whether no connection could be made to a server that has not answered in this run."""
        is_unreachable = isinstance(error, ChatFault) and error.is_unreachable
        return is_unreachable and not self._limiters.was_reached(self._endpoint.name)

    def _delay(self, error: Exception, attempt: int) -> float:
        """Seconds until the next try: what the provider asks, else growing with each try."""
        if self._is_down(error):
            return first_delay(attempt, self._retry)
        asked = error.asked_wait if isinstance(error, ChatFault) else None
        if asked is None:
            return backoff_delay(attempt, self._retry)
        if asked > self._retry.max_delay:
            raise ChatFault(
                f"{error}; the provider asks to wait {asked:.0f} s, longer than the "
                f"{self._retry.max_delay:.0f} s that are waited at most"
            ) from error
        return asked * random.uniform(1, 1.1)  # noqa: S311 - spreads load, guards nothing


def _head(endpoint: Endpoint) -> bytes:
    """The lines that all requests have in common."""
    server = endpoint.server
    own = {"Host": server.authority, "Content-Type": "application/json"}
    own |= {"Accept-Encoding": "identity", "User-Agent": "holodeck", **endpoint.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in own.items())
    if server.proxy is not None and not server.is_secure:
        lines += proxy_header(server.proxy)
    return f"POST {server.target} HTTP/1.1\r\n{lines}".encode()


def _note_wait(request_stats: RequestStats, _error: Exception, _attempt: int, wait: float) -> None:
    last = request_stats.attempts.pop()
    request_stats.attempts.append(last.model_copy(update={"retry_after_ms": round(wait * 1000)}))


def to_json(value: Any) -> str:
    """A value as JSON, whatever characters it holds."""
    return json.dumps(value)
