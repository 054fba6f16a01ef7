"""Agents behind a URL: `backend: {type: http, url: …}`."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any
from urllib.parse import quote

from holodeck.errors import BackendError, BackendSessionError, ConfigError
from holodeck.lib.backends.answer_paths import (
    AnswerReader,
    JsonPath,
    describe_json,
    fill_template,
)
from holodeck.lib.backends.base import (
    NO_MESSAGES_PLACEHOLDER,
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    InContext,
    Message,
    without_history,
)
from holodeck.lib.backends.http_service import (
    ServiceClient,
    ServiceRequest,
    check_url,
    parse_request,
)
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.llm.client import RequestSender, RequestStats
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.limiter import Limiter, apply_rate_limits
from holodeck.lib.llm.limits import build_limiters, call_limits, call_with_limit
from holodeck.lib.llm.request_handler import request_handler
from holodeck.lib.llm.retry import RetryConfig, with_attempts
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, to_text
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_callable
from holodeck.models.backend import (
    HttpBackendConfig,
    HttpSessionEnd,
    HttpSessionStart,
    has_placeholder,
)
from holodeck.models.base import Json
from holodeck.models.config import ExecutionConfig

logger = logging.getLogger(__name__)

CLOSE_S = 5.0
"""How long a service may take to end a session; Ctrl-C waits for it."""
_GONE = (404, 410)
"""Statuses that say of a session that it has ended already."""
TAP_URL = "tap_url"
"""The placeholder for the URL of the tap."""
_SESSION = "session_id"
"""The placeholder for the id that the service gave to the conversation."""

NO_CONTEXT_PLACEHOLDER = (
    "the request has no place for the context of a case; write '{context}' in backend.request"
)
_NO_MEMORY = (
    "the request has no place for earlier messages; write '{messages}' or '{conversation_id}' in"
    " backend.request"
)
Values = Mapping[str, Any]
"""What placeholders stand for, by their names."""
MakeRequest = Callable[[], ServiceRequest]


class HttpBackend(InContext, AgentBackend):
    """Sends every input to a URL and reads the response out of the JSON that comes back.

    In the strings of the request, `{input}` becomes the user's message, and `{conversation_id}` an
    id of the conversation. A string that is just `{messages}` becomes the list of all messages so
    far, and one that is just `{context}` the context of the test case.

    Args:
        config: URL, headers, request, session, and the paths of the response's parts.
        execution: Time limits and retries; their defaults if not given.
        code: Where the user's functions `prepare` and `parse` are looked for first.

    Raises:
        ConfigError: The URL, the request, a path or a function is unusable. Nothing is sent.
    """

    def __init__(
        self,
        config: HttpBackendConfig,
        execution: ExecutionConfig | None = None,
        code: CodeFolders | None = None,
    ) -> None:
        check_url(config.url, "backend.url")
        self._config = config
        if not (self._has("input") or self._has("messages")):
            key = "query" if config.method == "GET" else "request"
            raise ConfigError(
                f"backend.{key}", "has no place for the input; write '{input}' where it belongs"
            )
        self._headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._answer = AnswerReader(config.answer)
        self._prepare = _load(config.prepare, code, "backend.prepare")
        self._parse = _load(config.parse, code, "backend.parse")
        if config.session is not None:
            start = config.session.create
            check_url(start.url, "backend.session.create.url")
            self._path_of_id = JsonPath.parse(start.id, "backend.session.create.id")
        self._tap_url: str | None = None
        self._limits = call_limits(execution)
        self._client = ServiceClient(self._limits.answer_bytes)
        self._limiters = build_limiters(execution)
        self._sender = RequestSender(config.url, self._limiters, jitter=0)

    def with_tap_url(self, url: str) -> "HttpBackend":
        """Return the backend for a conversation whose tap has that URL."""
        bound = copy(self)
        bound._tap_url = url  # noqa: SLF001 - a copy of its own class
        return bound

    async def create_session(self, context: Sequence[Message] | None = None) -> "HttpSession":
        """Return a conversation, for which a service with sessions begins one."""
        problem = self.capabilities.history_problems.get("create_session")
        if context and problem is not None:
            raise BackendSessionError(problem)
        session = HttpSession(self, self._config, context or ())
        await session.open()
        return session

    @property
    def capabilities(self) -> Capabilities:
        """What the requests have a place for."""
        problem = None if self._config.takes_history else NO_MESSAGES_PLACEHOLDER
        return Capabilities(
            history_problems=without_history(problem),
            context_problem=None if self._has("context") else NO_CONTEXT_PLACEHOLDER,
        )

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    async def ask(self, values: Values) -> ExecutionResult:
        """Return the response to a message. Raises BackendError."""
        config, stats = self._config, RequestStats()
        fill = partial(self._filled, config.method, config.url, config.request, config.query)
        answer = partial(self._answer_to, partial(fill, values), stats)
        result = await call_with_limit(answer, self._limits.timeout, stats.attempts)
        result.attempts = stats.attempts
        result.waited_ms = round(stats.waited_s * 1000)
        return result

    async def begin(self, start: HttpSessionStart, values: Values) -> str:
        """Return the id of a new session. Raises BackendError."""
        stats = RequestStats()
        fill = partial(self._filled, start.method, start.url, start.request, {}, values)
        send = partial(self._send, fill, stats)
        answer = await call_with_limit(send, self._limits.timeout, stats.attempts)
        session_id = self._path_of_id.value_in(answer, "the answer to 'session.create'")
        if not session_id or not isinstance(session_id, str | int) or session_id is True:
            raise BackendSessionError(
                f"the session has no id: {str(self._path_of_id)!r} of the answer to"
                f" 'session.create' is {describe_json(session_id)}; write in"
                f" '{self._path_of_id.setting}' the path of a text or a number"
            )
        return str(session_id)

    async def end(self, end: HttpSessionEnd, values: Values) -> None:
        """End a session, within a short time. Raises whatever keeps it from being ended."""
        request = self._filled(end.method, end.url, end.request or None, {}, values)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.send(await self._prepared(request), None, lambda _: None)
        except RequestError as error:
            if error.status not in _GONE:
                raise

    def _filled(
        self,
        method: str,
        url: str,
        body: Json,
        query: Mapping[str, Json],
        values: Values,
    ) -> ServiceRequest:
        """Return a request with the values of a conversation in place of their names."""
        values = {**values, "context": self.case_context or {}}
        if self._tap_url is not None:
            values[TAP_URL] = self._tap_url
        is_begun = _SESSION in values
        return ServiceRequest(
            method=method,
            url=fill_template(url, {key: quote(to_text(text), "") for key, text in values.items()}),
            query=fill_template(query, values),
            headers={
                name: fill_template(text, values)
                for name, text in self._headers.items()
                if is_begun or not has_placeholder(text, _SESSION)
            },
            body=None if method == "GET" else fill_template(body, values),
        )

    async def _prepared(self, request: ServiceRequest) -> ServiceRequest:
        """Return the request as the user's function changes it. Raises BackendSessionError."""
        if self._prepare is None:
            return request
        call = partial(self._prepare, vars(request).copy())
        changed = await call_user_function(call, self._prepare)
        return parse_request(changed, f"'backend.prepare' ({self._config.prepare})")

    async def _answer_to(self, fill: MakeRequest, stats: RequestStats) -> ExecutionResult:
        document = await self._send(fill, stats)
        try:
            if self._parse is None:
                return parse_result(self._answer.read(document))
            return parse_result(
                await call_user_function(partial(self._parse, document), self._parse)
            )
        except BackendSessionError as error:
            raise BackendSessionError(str(error), stats.attempts) from error

    async def _send(self, fill: MakeRequest, stats: RequestStats) -> Any:
        """Return the JSON of the response, tried again after errors that may pass."""
        request = await self._prepared(fill())

        async def attempt(limiter: Limiter) -> Any:
            def on_headers(headers: Mapping[str, str]) -> None:
                self._limiters.note_reached(self._config.url)
                apply_rate_limits(limiter, headers)

            try:
                response = await self._client.send(request, limits.attempt_timeout, on_headers)
                return response.parse()
            except RequestError as error:
                # The service could not ask its model, and would not another time.
                handler = request_handler()
                error.is_transient &= handler is None or not handler.has_refused
                raise

        limits = self._limits
        retry = RetryConfig(max_retries=limits.retries, base_delay=limits.retry_delay)
        try:
            return await self._sender.send(attempt, retry, stats)
        except RequestError as error:
            message = with_attempts(str(error), len(stats.attempts))
            raise BackendSessionError(message, stats.attempts, refusal=error.refusal) from error

    def _has(self, placeholder: str) -> bool:
        return has_placeholder(self._config.message_template, placeholder)


class HttpSession(AgentSession):
    """One conversation; each request holds its id, or all messages so far."""

    def __init__(
        self, backend: HttpBackend, config: HttpBackendConfig, context: Sequence[Message]
    ) -> None:
        self._backend = backend
        self._config = config
        self._ids = {"conversation_id": uuid.uuid4().hex}
        """By their placeholders."""
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def open(self) -> None:
        """Begin a session of the service, if it has sessions. Raises BackendError.

        One that is about to begin when the case is cancelled is ended.
        """
        if self._config.session is None:
            return
        beginning = asyncio.ensure_future(self._begin(self._config.session.create))
        try:
            await asyncio.shield(beginning)
        except asyncio.CancelledError:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await beginning
            await self.close()
            raise

    async def _begin(self, start: HttpSessionStart) -> None:
        values = {**self._ids, "messages": self._history}
        self._ids[_SESSION] = await self._backend.begin(start, values)

    async def send(self, message: str) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        if self._history and not self._config.has_memory:
            raise BackendSessionError(_NO_MEMORY)
        sent: Message = {"role": "user", "content": message}
        messages = [*self._history, sent]
        result = await self._backend.ask({**self._ids, "input": message, "messages": messages})
        self._history += [sent, {"role": "assistant", "content": result.response}]
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Add earlier messages. Raises ConfigError if the request has no place for them."""
        if not has_placeholder(self._config.message_template, "messages"):
            raise ConfigError("backend.request", NO_MESSAGES_PLACEHOLDER)
        self._history += messages

    async def close(self) -> None:
        """End the session of the service; may be called twice. An error is only logged."""
        is_open, self._is_closed = not self._is_closed, True
        session = self._config.session
        if not is_open or session is None or session.close is None or _SESSION not in self._ids:
            return
        try:
            await self._backend.end(session.close, self._ids)
        except Exception as error:  # noqa: BLE001 - a failing clean-up must not cost an answer
            logger.warning("ending a session of the service failed: %s", describe(error))


def _load(target: str | None, code: CodeFolders | None, location: str) -> Callable[..., Any] | None:
    """Return the user's function; None if none is named. Raises ConfigError."""
    return None if target is None else load_callable(target, code, location=location)
