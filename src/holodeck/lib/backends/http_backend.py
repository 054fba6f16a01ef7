"""Agents behind a URL: `backend: {type: http, url: …}`; the adapter for httpx2."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from holodeck.errors import BackendSessionError, ConfigError
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
from holodeck.lib.backends.json_paths import (
    Step,
    describe_json,
    fill_template,
    has_placeholder,
    parse_path,
    value_at,
)
from holodeck.lib.backends.parsing import parse_agents, parse_tool_calls, parse_usage
from holodeck.lib.llm.client import RequestSender, RequestStats
from holodeck.lib.llm.errors import (
    RequestError,
    classify_refusal,
    excerpt,
    is_transient_status,
    no_connection_message,
    unreachable_reason,
)
from holodeck.lib.llm.http_parser import MalformedHttp, TooLarge, decode_body, too_large
from holodeck.lib.llm.limiter import Limiter, apply_rate_limits
from holodeck.lib.llm.limits import build_limiters, call_limits, call_with_limit
from holodeck.lib.llm.retry import RetryConfig, parse_retry_after, with_attempts
from holodeck.lib.observability import continue_trace
from holodeck.lib.support.text import DuplicateKey, load_json, one_line
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

MAX_EXCERPT = 200
TAP_URL = "tap_url"
"""The placeholder for the URL of the tap."""

NO_CONTEXT_PLACEHOLDER = (
    "the request has no place for the context of a case; write '{context}' in backend.request"
)


class HttpBackend(InContext, AgentBackend):
    """Posts every input to a URL and reads the response out of the JSON that comes back.

    In the strings of the request, `{input}` becomes the user's message, and `{conversation_id}` an
    id of the conversation. A string that is just `{messages}` becomes the list of all messages so
    far, and one that is just `{context}` the context of the test case.

    Args:
        config: URL, headers, request, and the paths of the response's parts.
        execution: Time limits and retries; their defaults if not given.

    Raises:
        ConfigError: The URL, the request or a path is unusable. Nothing is sent.
    """

    def __init__(self, config: HttpBackendConfig, execution: ExecutionConfig | None = None) -> None:
        _check_url(config.url)
        self._request = config.request
        if not (self._has("input") or self._has("messages")):
            raise ConfigError(
                "backend.request", "has no place for the input; write '{input}' where it belongs"
            )
        paths = config.answer.model_dump(exclude_none=True)
        self._paths: dict[str, list[Step]] = {
            part: parse_path(path, f"backend.answer.{part}") for part, path in paths.items()
        }
        headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._tap_headers = {
            name: headers.pop(name)
            for name in [*headers]
            if has_placeholder(headers[name], TAP_URL)
        }
        self._tap_url: str | None = None
        limits = call_limits(execution)
        self._timeout = limits.timeout
        self._attempt_timeout = limits.attempt_timeout
        self._retry = RetryConfig(max_retries=limits.retries, base_delay=limits.retry_delay)
        self._url = config.url
        self._http = _JsonPoster(config.url, headers, limits.answer_bytes)
        self._limiters = build_limiters(execution)
        self._sender = RequestSender(config.url, self._limiters, jitter=0)

    def with_tap_url(self, url: str) -> "HttpBackend":
        """Return the backend for a conversation whose tap has that URL."""
        bound = copy(self)
        bound._tap_url = url  # noqa: SLF001 - a copy of its own class
        return bound

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        return await self.ask(message, context or (), conversation_id=uuid.uuid4().hex)

    async def create_session(self, context: Sequence[Message] | None = None) -> "HttpSession":
        return HttpSession(self, context or ())

    @property
    def capabilities(self) -> Capabilities:
        """What the request has a place for."""
        problem = None if self._has("messages") else NO_MESSAGES_PLACEHOLDER
        return Capabilities(
            history_problems=without_history(problem),
            context_problem=None if self._has("context") else NO_CONTEXT_PLACEHOLDER,
        )

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.close()

    async def ask(
        self, message: str, history: Sequence[Message], conversation_id: str, *, known: bool = False
    ) -> ExecutionResult:
        """Return the response after the earlier messages; `known`: the server has seen those.

        Raises BackendError.
        """
        by_id = known and self._has("conversation_id")
        if history and not by_id and not self._has("messages"):
            raise BackendSessionError(
                "the request has no place for earlier messages; write '{messages}'"
                " or '{conversation_id}' in backend.request"
            )
        values = {
            "input": message,
            "conversation_id": conversation_id,
            "messages": [*history, {"role": "user", "content": message}],
            "context": self.case_context or {},
        }
        if self._tap_url is not None:
            values[TAP_URL] = self._tap_url
        stats = RequestStats()
        send = partial(self._send, fill_template(self._request, values), stats)
        response = await call_with_limit(send, self._timeout, stats.attempts)
        try:
            result = self._parse(response)
        except BackendSessionError as error:
            raise BackendSessionError(str(error), stats.attempts) from error
        result.attempts = stats.attempts
        result.waited_ms = round(stats.waited_s * 1000)
        return result

    async def _send(self, body: Any, stats: RequestStats) -> Any:
        async def post(limiter: Limiter) -> Any:
            def on_headers(headers: Mapping[str, str]) -> None:
                self._limiters.note_reached(self._url)
                apply_rate_limits(limiter, headers)

            headers = fill_template(self._tap_headers, {TAP_URL: self._tap_url})
            return await self._http.post(body, headers, self._attempt_timeout, on_headers)

        try:
            return await self._sender.send(post, self._retry, stats)
        except RequestError as error:
            message = with_attempts(str(error), len(stats.attempts))
            raise BackendSessionError(message, stats.attempts, refusal=error.refusal) from error

    def _parse(self, response: Any) -> ExecutionResult:
        text = self._value("text", response)
        if not isinstance(text, str):
            raise BackendSessionError(
                f"the answer's text (backend.answer.text) is {describe_json(text)};"
                " write the path of a text"
            )
        calls, results = parse_tool_calls(self._value("tool_calls", response))
        usage = {key: self._value(key, response) for key in ("prompt_tokens", "completion_tokens")}
        return ExecutionResult(
            response=text,
            tool_calls=calls,
            tool_results=results,
            token_usage=parse_usage(usage),
            agents=parse_agents(self._value("agents", response)),
            source="adapter",
        )

    def _value(self, part: str, response: Any) -> Any:
        """Return the value at the path of that part; None without a path."""
        steps = self._paths.get(part)
        return None if steps is None else value_at(response, steps)

    def _has(self, placeholder: str) -> bool:
        return has_placeholder(self._request, placeholder)


class HttpSession(AgentSession):
    """One conversation; each request holds its id, or all messages so far."""

    def __init__(self, backend: HttpBackend, context: Sequence[Message] = ()) -> None:
        self._backend = backend
        self._id = uuid.uuid4().hex
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result = await self._backend.ask(message, tuple(self._history), self._id, known=True)
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": result.response})
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Add earlier messages. Raises ConfigError if the request has no place for them."""
        problem = self._backend.capabilities.history_problems.get("create_session")
        if problem is not None:
            raise ConfigError("backend.request", problem)
        self._history += messages

    async def close(self) -> None:
        self._is_closed = True


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError("backend.url", f"{url!r} is not a URL such as 'https://host/agent'")


class _JsonPoster:
    """Posts JSON to a URL and reads up to `max_bytes` of JSON; one client per event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], max_bytes: int) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._headers = dict(headers)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        self._shown_url = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        """The URL without the parts that may hold a secret."""

    async def post(
        self,
        body: Any,
        headers: Mapping[str, str],
        limit_s: float | None,
        on_headers: Callable[[Mapping[str, str]], None],
    ) -> Any:
        """Return the JSON that comes back within `limit_s` seconds. Raises RequestError."""
        import httpx2

        try:
            async with asyncio.timeout(limit_s):
                async with self._client().stream(
                    "POST", self._url, json=body, headers=headers
                ) as response:
                    on_headers(response.headers)
                    data = await self._read(response)
                return self._parse(response, data)
        except TimeoutError as error:
            raise RequestError(f"no answer within {limit_s:g} s", is_transient=True) from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise RequestError(f"{self._shown_url}: {error}") from error
        except httpx2.TransportError as error:
            raise self._connection_error(error) from error
        except httpx2.HTTPError as error:
            reason = one_line(str(error), MAX_EXCERPT)
            raise RequestError(f"{self._shown_url}: {type(error).__name__}: {reason}") from error

    async def close(self) -> None:
        """Close the client of the running event loop; a later call opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _read(self, response: "Response") -> bytes:
        data = bytearray()
        async for piece in response.aiter_raw():  # httpx2 would decode without a limit
            data += piece
            if len(data) > self._max_bytes:
                raise RequestError(f"{self._shown_url}: {too_large(self._max_bytes)}")
        coding = response.headers.get("content-encoding")
        try:
            return decode_body(bytes(data), coding, self._max_bytes)
        except TooLarge as error:
            raise RequestError(f"{self._shown_url}: {error}") from error
        except MalformedHttp as error:
            raise RequestError(f"the answer of {self._shown_url}: {error}") from error

    def _parse(self, response: "Response", data: bytes) -> Any:
        if not response.is_success:
            raise self._status_error(response, data)
        try:
            return load_json(data)
        except DuplicateKey as error:
            raise RequestError(f"{self._shown_url}: the answer has a {error}") from error
        except (ValueError, RecursionError) as error:
            kind = response.headers.get("content-type", "no content type")
            shown = excerpt(data, MAX_EXCERPT) or "nothing"
            raise RequestError(
                f"{self._shown_url}: the answer is not JSON ({kind}): {shown}"
            ) from error

    def _status_error(self, response: "Response", data: bytes) -> RequestError:
        status = response.status_code
        message = f"HTTP {status} from {self._shown_url}"
        if response.is_redirect:
            return RequestError(f"{message}: the URL redirects; write the URL that it redirects to")
        shown = excerpt(data, MAX_EXCERPT)
        # A 404 may be about what the case asks for, and not about the URL.
        refusal = "request" if status == 404 else classify_refusal(status, set())
        return RequestError(
            f"{message}: {shown}" if shown else message,
            is_transient=is_transient_status(status, refusal),
            retry_after=parse_retry_after(response.headers),
            refusal=refusal,
            status=status,
        )

    def _connection_error(self, error: Exception) -> RequestError:
        reason = unreachable_reason(error)
        if reason is not None:
            message = no_connection_message(self._shown_url, reason)
            return RequestError(message, is_transient=True, is_unreachable=True)
        shown = one_line(str(error), MAX_EXCERPT) or "the connection broke"
        message = f"{self._shown_url}: {type(error).__name__}: {shown}"
        return RequestError(message, is_transient=True)

    def _client(self) -> "AsyncClient":
        import httpx2

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # A compressed response is decoded all the same, here, up to the limit of its size.
            headers = httpx2.Headers({"accept-encoding": "identity"})
            headers.update(self._headers)
            self._clients[loop] = httpx2.AsyncClient(
                headers=headers,
                # A cookie that one case receives must not be sent by another.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=None,  # `post` limits the whole request
                event_hooks={"request": [continue_trace]},
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            )
        return self._clients[loop]
