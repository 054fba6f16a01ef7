"""Agents behind a URL: `backend: {type: http, url: …}`."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.call_limits import call_with_limit
from holodeck.lib.backends.case_context import CaseContext
from holodeck.lib.backends.history_support import NO_MESSAGES, Method
from holodeck.lib.backends.http_exchange import Exchange, ExchangeFault
from holodeck.lib.backends.json_paths import (
    Step,
    fill_template,
    has_placeholder,
    parse_path,
    value_at,
)
from holodeck.lib.backends.returned_values import parse_tool_calls, parse_usage, text_of
from holodeck.lib.chat.limits import call_limits, limiters_for
from holodeck.lib.chat.rate_limits import apply_rate_limits
from holodeck.lib.limiter import Limiter
from holodeck.lib.retry import RetryConfig, backoff_delay, first_delay, retry
from holodeck.models.agent import HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.outcome import Attempt

LONGEST_WAIT_S = 60.0


class HttpBackend:
    """Posts every input to a URL and reads the answer out of the JSON that comes back.

    In the strings of the request, `{input}` becomes what is said, `{conversation_id}` an id of the
    conversation, and a string that is just `{messages}` the list of everything said so far, one
    that is just `{context}` the context of the case.

    Args:
        config: URL, headers, request and where the answer stands.
        execution: Time limits and retries; their defaults if not given.

    Raises:
        ConfigError: The URL, the request or a path makes no sense. Nothing is sent.
    """

    def __init__(self, config: HttpBackendConfig, execution: ExecutionConfig | None = None) -> None:
        _check_url(config.url)
        if not (
            has_placeholder(config.request, "input") or has_placeholder(config.request, "messages")
        ):
            raise ConfigError(
                "backend.request", "has no place for the input; write '{input}' where it belongs"
            )
        self._request = config.request
        self._paths = _paths(config)
        self._limits = call_limits(execution)
        headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._exchange = Exchange(config.url, headers, self._limits.answer_bytes)
        self._url = config.url
        self._limiters = limiters_for(execution)
        self._context: CaseContext = {}

    def in_context(self, context: CaseContext) -> "HttpBackend":
        """The same for a case with a context. Raises ConfigError if the request has no place."""
        if not has_placeholder(self._request, "context"):
            raise ConfigError(
                "backend.request", "has no place for the context of a case; write '{context}'"
            )
        bound = copy(self)
        bound._context = context  # noqa: SLF001 - a copy of its own class
        return bound

    async def initialize(self) -> None:
        """Nothing to make ready: whether the URL answers is seen when it is asked."""

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """The answer to one message, in a conversation of its own. Raises BackendError."""
        return await self.ask(message, context or (), conversation_id=_new_id())

    async def create_session(self, context: Sequence[Message] | None = None) -> "HttpSession":
        """A conversation with an id of its own, after the earlier messages."""
        return HttpSession(self, context or ())

    def why_forgetful(self, method: Method) -> str | None:  # noqa: ARG002 - both tell the same
        """Why it cannot be told what was said before; None if it can."""
        return None if has_placeholder(self._request, "messages") else NO_MESSAGES

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._exchange.close()

    async def ask(
        self, message: str, history: Sequence[Message], conversation_id: str, *, known: bool = False
    ) -> ExecutionResult:
        """The answer after the earlier messages; `known` says that the server has seen those.

        Raises BackendError.
        """
        body = self._body(message, history, conversation_id, known=known)
        attempts: list[Attempt] = []
        waits: list[float] = []
        call = partial(self._tried, body, attempts, waits)
        answer = await call_with_limit(call, self._limits.timeout, attempts)
        try:
            result = self._read(answer, attempts)
            result.waited_ms = round(sum(waits) * 1000)
            return result
        except BackendSessionError as error:
            raise BackendSessionError(str(error), attempts) from error

    def _body(
        self, message: str, history: Sequence[Message], conversation_id: str, *, known: bool
    ) -> Any:
        by_id = known and has_placeholder(self._request, "conversation_id")
        if history and not by_id and not has_placeholder(self._request, "messages"):
            raise BackendSessionError(
                "the request has no place for what was said before; write '{messages}'"
                " or '{conversation_id}' in backend.request"
            )
        messages = [*history, {"role": "user", "content": message}]
        values = {
            "input": message,
            "conversation_id": conversation_id,
            "messages": messages,
            "context": self._context,
        }
        return fill_template(self._request, values)

    async def _in_slot(self, body: Any, waits: list[float]) -> Any:
        """One try, once the URL has a slot for it."""
        limiter = self._limiters.of(self._url)
        async with limiter.slot() as slot:
            waits.append(slot.waited_s)
            try:
                return await self._exchange.post(
                    body, self._limits.attempt_timeout, partial(self._note_headers, limiter)
                )
            except ExchangeFault as error:
                if error.is_overload:
                    limiter.overloaded(slot, error.asked_wait)
                raise

    def _note_headers(self, limiter: Limiter, headers: Mapping[str, str]) -> None:
        self._limiters.note_reached(self._url)
        apply_rate_limits(limiter, headers)

    def _is_down(self, error: Exception) -> bool:
        """Whether no connection could be made to a server that has not answered in this run."""
        is_unreachable = isinstance(error, ExchangeFault) and error.is_unreachable
        return is_unreachable and not self._limiters.was_reached(self._url)

    async def _tried(self, body: Any, attempts: list[Attempt], waits: list[float]) -> Any:
        """The JSON that came back in the end; every failed try is noted in `attempts`."""
        try:
            return await retry(
                partial(self._in_slot, body, waits),
                attempts=self._limits.retries + 1,
                is_transient=_is_transient,
                delay_for=self._delay_for,
                on_retry=lambda error, number, delay: attempts.append(
                    Attempt(number=number, error=str(error), retry_after_ms=round(delay * 1000))
                ),
                is_down=self._is_down,
                describe=str,
            )
        except ExchangeFault as error:
            attempts.append(Attempt(number=len(attempts) + 1, error=str(error)))
            if self._is_down(error):
                error.give_up()
            tries = f" (after {len(attempts)} tries)" if len(attempts) > 1 else ""
            raise BackendSessionError(f"{error}{tries}", attempts, refusal=error.refusal) from error

    def _delay_for(self, error: Exception, attempt: int) -> float:
        asked = error.asked_wait if isinstance(error, ExchangeFault) else None
        if asked is not None:
            if asked > LONGEST_WAIT_S:
                raise ExchangeFault(f"{error}; it asks to wait {asked:g} s, which is too long")
            return asked
        if self._limits.retry_delay == 0:
            return 0.0
        waits = RetryConfig(base_delay=self._limits.retry_delay)
        if self._is_down(error):
            return first_delay(attempt, waits)
        return backoff_delay(attempt, waits)

    def _read(self, answer: Any, attempts: list[Attempt]) -> ExecutionResult:
        text = self._at("text", answer)
        if text is None:
            raise BackendSessionError("the answer's text (backend.answer.text) is null")
        named = self._at("tool_calls", answer)
        # A service that has null where its calls are to be has made none.
        calls, results = parse_tool_calls(
            [] if named is None and "tool_calls" in self._paths else named
        )
        usage = {key: self._at(key, answer) for key in ("prompt_tokens", "completion_tokens")}
        return ExecutionResult(
            response=text_of(text),
            structured_output=None if isinstance(text, str) else text,
            tool_calls=calls,
            tool_results=results,
            token_usage=parse_usage(usage),
            attempts=attempts,
            source="adapter",
        )

    def _at(self, part: str, answer: Any) -> Any:
        """What stands at the path of that part; None where no path is given."""
        steps = self._paths.get(part)
        return None if steps is None else value_at(answer, steps)


class HttpSession:
    """One conversation; the server knows it by its id, or is told everything each time."""

    def __init__(self, backend: HttpBackend, context: Sequence[Message] = ()) -> None:
        self._backend = backend
        self._id = _new_id()
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        """The agent's answer. Raises BackendError."""
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result = await self._backend.ask(message, tuple(self._history), self._id, known=True)
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": result.response})
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Take the messages for said. Raises ConfigError if the request has no place for them."""
        why = self._backend.why_forgetful("create_session")
        if why is not None:
            raise ConfigError("backend.request", why)
        self._history += messages

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """The agent's answer in one piece. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        """End the conversation; may be called twice."""
        self._is_closed = True


def _new_id() -> str:
    return uuid.uuid4().hex


def _is_transient(error: Exception) -> bool:
    return isinstance(error, ExchangeFault) and error.is_transient


def _paths(config: HttpBackendConfig) -> dict[str, list[Step]]:
    given = config.answer.model_dump(exclude_none=True)
    return {part: parse_path(path, f"backend.answer.{part}") for part, path in given.items()}


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError("backend.url", f"{url!r} is not a URL such as 'https://host/agent'")
