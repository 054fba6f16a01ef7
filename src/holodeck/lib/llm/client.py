"""Client for chat completions: slots, retries, time limits and errors in one place."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holodeck.lib.llm.completion import Completion
from holodeck.lib.llm.endpoint import Endpoint
from holodeck.lib.llm.errors import RequestError, no_answer_within, status_error
from holodeck.lib.llm.formats import parse_completion, read_stream
from holodeck.lib.llm.http_client import HttpClient
from holodeck.lib.llm.http_connection import Response, Server
from holodeck.lib.llm.limiter import Limiter, Limiters, apply_rate_limits, time_limit
from holodeck.lib.llm.limits import CallLimits
from holodeck.lib.llm.model import note_request
from holodeck.lib.llm.request_handler import (
    AGENT,
    RequestHandler,
    StreamedResponse,
    answer_with,
    request_handler,
)
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, connection_delay
from holodeck.lib.llm.retry import retry as retry_request
from holodeck.lib.observability import names, span
from holodeck.models.results.outcome import Attempt
from holodeck.models.token_usage import TokenUsage, UsageMeter

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATH = "/chat/completions"


@dataclass
class RequestStats:
    """Failed attempts, token usage and waits of some requests; readable after a failure."""

    attempts: list[Attempt] = field(default_factory=list)
    """Attempts that failed."""
    meter: UsageMeter = field(default_factory=UsageMeter)
    waited_s: float = 0.0
    """Seconds that requests waited for a slot."""


class RequestSender:
    """Sends requests to one endpoint: each in a slot of its limiter, and again after an error that
    may pass.

    Args:
        endpoint: The name that requests with one rate limit share.
        limiters: The limiters of the run.
        kind: The kind of work; each kind has slots of its own.
        classify: Returns the RequestError for an exception of another type; None if it is no error
            of the request.
        jitter: The share of a wait asked for by the server that may be added at random.
        timeout: Seconds for all attempts of a request together, not counting the waits between
            them; None for requests of an agent, whose whole call has a limit.
    """

    def __init__(
        self,
        endpoint: str,
        limiters: Limiters,
        kind: str = AGENT,
        classify: Callable[[Exception], RequestError | None] = lambda _: None,
        jitter: float = 0.1,
        timeout: float | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._limiters = limiters
        self._kind = kind
        self._classify = classify
        self._jitter = jitter
        self._timeout = timeout

    async def send(
        self,
        request: Callable[[Limiter], Awaitable[T]],
        config: RetryConfig,
        stats: RequestStats,
    ) -> T:
        """Return what `request` returns; it is called for each attempt. Raises RequestError.

        Every failed attempt is noted in `stats`. A server to which an earlier request found no
        connection gets one attempt.
        """
        was_down = self._limiters.was_down(self._endpoint)
        limit = time_limit(self._timeout)
        try:
            async with limit:
                return await retry_request(
                    partial(self._attempt, request, stats, count(1)),
                    attempts=1 if was_down else config.max_retries + 1,
                    is_transient=lambda error: (
                        isinstance(error, RequestError) and error.is_transient
                    ),
                    delay_for=partial(self._delay, config),
                    sleep=partial(_sleep_unlimited, limit),
                    on_retry=partial(_note_wait, stats),
                    is_down=self._is_down,
                    describe=str,
                )
        except RequestError as error:
            if self._is_down(error):
                self._limiters.note_down(self._endpoint)
                error.give_up()
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestError(no_answer_within(self._timeout), is_transient=True) from error

    async def _attempt(
        self,
        request: Callable[[Limiter], Awaitable[T]],
        stats: RequestStats,
        numbers: "Iterator[int]",
    ) -> T:
        number = next(numbers)
        limiter = self._limiters.of(self._endpoint, self._kind)
        async with limiter.slot() as slot:
            stats.waited_s += slot.waited_s
            note_request()
            try:
                return await request(limiter)
            except Exception as error:
                failure = error if isinstance(error, RequestError) else self._classify(error)
                if failure is None:
                    raise
                stats.attempts.append(Attempt(number=number, error=str(failure)))
                if failure.is_overload:
                    limiter.note_overload(slot, failure.retry_after)
                if failure is error:
                    raise
                raise failure from error

    def _is_down(self, error: Exception) -> bool:
        """Whether no connection could be made to a server that has not answered in this run."""
        is_unreachable = isinstance(error, RequestError) and error.is_unreachable
        return is_unreachable and not self._limiters.was_reached(self._endpoint)

    def _delay(self, config: RetryConfig, error: Exception, attempt: int) -> float:
        """Seconds until the next attempt: what the server asks for, else growing backoff."""
        if self._is_down(error):
            return connection_delay(attempt, config)
        wait = error.retry_after if isinstance(error, RequestError) else None
        if wait is None:
            return backoff_delay(attempt, config)
        if wait > config.max_delay:
            raise RequestError(
                f"{error}; the server asks to wait {wait:.0f} s, longer than the maximum of"
                f" {config.max_delay:.0f} s"
            ) from error
        return wait * random.uniform(1, 1 + self._jitter)  # noqa: S311 - spreads load only


async def _sleep_unlimited(limit: time_limit, seconds: float) -> None:
    with limit.paused():
        await asyncio.sleep(seconds)


def _note_wait(stats: RequestStats, _error: Exception, _attempt: int, wait: float) -> None:
    last = stats.attempts.pop()
    stats.attempts.append(last.model_copy(update={"retry_after_ms": round(wait * 1000)}))


class _Metered(Protocol):
    @property
    def usage(self) -> TokenUsage: ...


M = TypeVar("M", bound=_Metered)


class ChatClient:
    """Requests chat completions, or other answers of a model, from one endpoint.

    Args:
        endpoint: Where to send requests.
        model: The model's name in traces.
        limits: Time limits and retries.
        limiters: The limiters of the run, shared by all requests to the endpoint.
        kind: The kind of work; each kind has slots of its own.
        parse: Returns the completion in the body of a response; raises RequestError.
        operation: What is requested, in traces.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        limits: CallLimits,
        limiters: Limiters,
        kind: str = AGENT,
        parse: Callable[[bytes], Completion] = parse_completion,
        operation: str = names.CHAT,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._span_name = f"{operation} {model}"
        self._span_attributes = {
            names.OPERATION: operation,
            names.PROVIDER: names.provider(endpoint.name),
            names.REQUEST_MODEL: model,
            names.SERVER_ADDRESS: endpoint.server.host,
            names.SERVER_PORT: endpoint.server.port,
        }
        self._retry = RetryConfig(max_retries=limits.retries, base_delay=limits.retry_delay)
        self._limiters = limiters
        self._kind = kind
        self._path = _path_below(endpoint.server)
        timeout = None if kind == AGENT else limits.timeout
        self._sender = RequestSender(endpoint.name, limiters, kind, timeout=timeout)
        self._http = HttpClient(
            endpoint.server,
            endpoint.headers,
            limits.answer_bytes,
            limits.attempt_timeout,
            endpoint.token,
        )
        self._parse = parse

    async def complete(
        self, body: str, stats: RequestStats, retry: RetryConfig | None = None
    ) -> Completion:
        """Return the completion for a request body (JSON). Raises RequestError."""
        return await self.send(body, self._parse, stats, retry)

    async def send(
        self,
        body: str,
        parse: Callable[[bytes], M],
        stats: RequestStats,
        retry: RetryConfig | None = None,
    ) -> M:
        """Return what `parse` reads in the body of the response. Raises RequestError."""
        answer = await self._sender.send(
            partial(self._post, body.encode(), parse), retry or self._retry, stats
        )
        stats.meter.add(answer.usage, self._model)
        return answer

    async def complete_body(
        self, body: Mapping[str, Any], stats: RequestStats, retry: RetryConfig | None = None
    ) -> Completion:
        """Return the completion for a request. Raises RequestError."""
        return await self.complete(json.dumps(body), stats, retry)

    async def stream_body(
        self, body: Mapping[str, Any], stats: RequestStats, retry: RetryConfig | None = None
    ) -> AsyncIterator[str | Completion]:
        """Yield the text of a streamed response in pieces, and at the end the completion.

        The request is sent again only until the response begins, because the caller may have shown
        its pieces. Raises RequestError.
        """
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        body_bytes = json.dumps(streamed).encode()
        async with AsyncExitStack() as stack:
            begin = partial(self._begin, body_bytes, stack)
            response = await self._sender.send(begin, retry or self._retry, stats)
            async for part in read_stream(response.body):
                if isinstance(part, Completion):
                    await stack.aclose()
                    stats.meter.add(part.usage, self._model)
                yield part

    async def close(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        await self._http.close()

    async def _begin(
        self, body: bytes, stack: AsyncExitStack, limiter: Limiter
    ) -> StreamedResponse:
        """Send the request once, and return the response that has begun. Raises RequestError.

        The stack closes the response.
        """
        opened = answer_with(self._handler, "POST", self._path, body, self._open)
        response = await stack.enter_async_context(opened)
        self._limiters.note_reached(self._endpoint.name)
        headers = _by_name(response)
        apply_rate_limits(limiter, headers)
        if response.status == 200:
            return response
        refused = await response.read()
        await stack.aclose()
        raise status_error(response.status, headers, refused)

    @property
    def _handler(self) -> RequestHandler | None:
        """What answers the requests of the running case."""
        return request_handler(self._kind)

    @asynccontextmanager
    async def _open(self, body: bytes) -> AsyncIterator[StreamedResponse]:
        """Yield the response of the server, whose body is decoded. Raises RequestError."""
        response = await self._http.begin(self._http.encode(body))
        try:
            head = response.head
            lines = [line for line in head.event.headers if line[0] != b"content-encoding"]
            yield StreamedResponse(head.status, lines, self._http.read(response))
        finally:
            response.finish()

    async def _exchange(self, body: bytes) -> Response:
        """Return the whole response to a request. Raises RequestError."""
        handler = self._handler
        if handler is None:
            return await self._http.send(self._http.encode(body))
        async with handler.answer("POST", self._path, body, self._open) as response:
            content = await response.read()
        return Response(response.status, _by_name(response), content)

    async def _post(self, body: bytes, parse: Callable[[bytes], M], limiter: Limiter) -> M:
        """Send the request once."""
        with span(self._span_name, self._span_attributes, kind="client") as current:
            response = await self._exchange(body)
            self._limiters.note_reached(self._endpoint.name)
            apply_rate_limits(limiter, response.headers)
            if response.status != 200:
                raise status_error(response.status, response.headers, response.body)
            answer = parse(response.body)
            if current.is_recorded:
                usage = answer.usage
                current.set({names.INPUT_TOKENS: usage.prompt_tokens})
                current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
            return answer


def _path_below(server: Server) -> str:
    """Return the path below the base URL, which recordings know a request by."""
    path = server.parts.path
    return PATH if path.endswith(PATH) else f"/{path.rpartition('/')[2]}"


def _by_name(response: StreamedResponse) -> dict[str, str]:
    """Return the headers of a response by their names in lower case."""
    lines = response.headers
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in lines}
