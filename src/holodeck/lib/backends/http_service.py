"""Sends requests to the services of agents, and reads their JSON; the adapter for httpx2."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.answer_paths import Events, describe_json
from holodeck.lib.llm.errors import (
    RequestError,
    classify_refusal,
    excerpt,
    is_transient_status,
    no_connection_message,
    unreachable_reason,
)
from holodeck.lib.llm.http_body import MalformedHttp, TooLarge, decode_body, too_large
from holodeck.lib.llm.retry import parse_retry_after
from holodeck.lib.observability.tracing import continue_trace
from holodeck.lib.support.text import DuplicateKey, load_json, one_line, to_text

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

MAX_EXCERPT = 200
END_OF_STREAM = "[DONE]"
"""The data of an event that says that a stream is complete, as services of OpenAI's kind send."""


@dataclass(frozen=True)
class ServiceRequest:
    """A request whose placeholders are filled."""

    method: str
    url: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """The JSON body; None for none."""

    @property
    def shown_url(self) -> str:
        """The URL without the parts that may hold a secret."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def parse_request(value: Any, returned_by: str) -> ServiceRequest:
    """Return the request that a function of the user returned. Raises BackendSessionError."""
    keys = [known.name for known in fields(ServiceRequest)]
    expected = f"return the request, a mapping with {', '.join(map(repr, keys))}"
    if not isinstance(value, Mapping):
        raise BackendSessionError(f"{returned_by} returned {describe_json(value)}; {expected}")
    unknown = [key for key in value if key not in keys]
    if unknown or not {"method", "url"} <= value.keys():
        problem = f"the unknown key {unknown[0]!r}" if unknown else "no 'method' or no 'url'"
        raise BackendSessionError(f"{returned_by} returned a mapping with {problem}; {expected}")
    try:
        check_url(value["url"], returned_by)
    except ConfigError as error:
        raise BackendSessionError(str(error)) from error
    return ServiceRequest(**value)


def check_url(url: str, location: str) -> None:
    """Raise ConfigError for a text that is no URL of a service."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError(location, f"{url!r} is not a URL such as 'https://host/agent'")


class ServiceClient:
    """Sends requests and reads up to `max_bytes` of each response; one client per event loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )

    async def send(
        self,
        request: ServiceRequest,
        limit_s: float | None,
        on_headers: Callable[[Mapping[str, str]], None],
    ) -> "ResponseBody":
        """Return what comes back within `limit_s` seconds. Raises RequestError."""
        import httpx2

        try:
            async with asyncio.timeout(limit_s):
                async with self._client().stream(
                    request.method,
                    httpx2.URL(request.url).copy_merge_params(_as_parameters(request.query)),
                    json=request.body,
                    headers=request.headers,
                ) as response:
                    on_headers(response.headers)
                    body = await self._read(request, response)
                if not response.is_success:
                    raise _status_error(response, body)
                return body
        except TimeoutError as error:
            raise RequestError(f"no answer within {limit_s:g} s", is_transient=True) from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise RequestError(f"{request.shown_url}: {error}") from error
        except httpx2.TransportError as error:
            raise _connection_error(request, error) from error
        except httpx2.HTTPError as error:
            reason = one_line(str(error), MAX_EXCERPT)
            raise RequestError(f"{request.shown_url}: {type(error).__name__}: {reason}") from error

    async def close(self) -> None:
        """Close the client of the running event loop; a later call opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _read(self, request: ServiceRequest, response: "Response") -> "ResponseBody":
        data = bytearray()
        async for piece in response.aiter_raw():  # httpx2 would decode without a limit
            data += piece
            if len(data) > self._max_bytes:
                raise RequestError(f"{request.shown_url}: {too_large(self._max_bytes)}")
        coding = response.headers.get("content-encoding")
        try:
            decoded = decode_body(bytes(data), coding, self._max_bytes)
        except TooLarge as error:
            raise RequestError(f"{request.shown_url}: {error}") from error
        except MalformedHttp as error:
            raise RequestError(f"the answer of {request.shown_url}: {error}") from error
        kind = response.headers.get("content-type", "no content type")
        return ResponseBody(request.shown_url, kind, decoded)

    def _client(self) -> "AsyncClient":
        import httpx2

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # A compressed response is decoded all the same, here, up to the limit of its size.
            self._clients[loop] = httpx2.AsyncClient(
                headers={"accept-encoding": "identity"},
                # A cookie that one case receives must not be sent by another.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=None,  # `send` limits the whole request
                event_hooks={"request": [continue_trace]},
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            )
        return self._clients[loop]


@dataclass(frozen=True)
class ResponseBody:
    """The body of a response."""

    url: str
    """Where it comes from, without secrets."""
    content_type: str
    data: bytes

    def parse(self) -> Any:
        """Return its JSON; of server-sent events, that of each of them. Raises RequestError."""
        if self.content_type.partition(";")[0].strip().lower() == "text/event-stream":
            return Events(self._events())
        return self._json(self.data)

    def _events(self) -> Iterator[Any]:
        """Yield the data of each event; with a name, as an object with that key.

        Data that is no object is text, and an event without a name is a `message`.
        """
        import httpx2

        # The library reads events of responses only. The last one may lack its empty line.
        response = httpx2.Response(
            200,
            headers={"content-type": self.content_type},
            content=self.data + b"\n\n",
            request=httpx2.Request("GET", self.url),
        )
        for event in httpx2.EventSource(response, max_event_size=None):
            text = event.data.strip()
            if not text or text == END_OF_STREAM:
                continue
            is_json = text.startswith(("{", "["))
            data = self._json(text.encode()) if is_json else event.data
            is_named = event.event != "message" or not isinstance(data, dict)
            yield {event.event: data} if is_named else data

    def _json(self, data: bytes) -> Any:
        try:
            return load_json(data)
        except DuplicateKey as error:
            raise RequestError(f"{self.url}: the answer has a {error}") from error
        except (ValueError, RecursionError) as error:
            shown = excerpt(data, MAX_EXCERPT) or "nothing"
            raise RequestError(
                f"{self.url}: the answer is not JSON ({self.content_type}): {shown}"
            ) from error


def _as_parameters(query: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a URL as text; what is not text, as JSON."""
    return {name: to_text(value) for name, value in query.items()}


def _status_error(response: "Response", body: ResponseBody) -> RequestError:
    status = response.status_code
    message = f"HTTP {status} from {body.url}"
    if response.is_redirect:
        return RequestError(f"{message}: the URL redirects; write the URL that it redirects to")
    shown = excerpt(body.data, MAX_EXCERPT)
    # A 404 may be about what the case asks for, and not about the URL.
    refusal = "request" if status == 404 else classify_refusal(status, set())
    return RequestError(
        f"{message}: {shown}" if shown else message,
        is_transient=is_transient_status(status, refusal),
        retry_after=parse_retry_after(response.headers),
        refusal=refusal,
        status=status,
    )


def _connection_error(request: ServiceRequest, error: Exception) -> RequestError:
    reason = unreachable_reason(error)
    if reason is not None:
        message = no_connection_message(request.shown_url, reason)
        return RequestError(message, is_transient=True, is_unreachable=True)
    shown = one_line(str(error), MAX_EXCERPT) or "the connection broke"
    message = f"{request.shown_url}: {type(error).__name__}: {shown}"
    return RequestError(message, is_transient=True)
