"""One POST and its answer: the one door to httpx2, and what may go wrong on the way."""

import asyncio
import json
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from holodeck.errors import BackendSessionError
from holodeck.lib.chat.faults import no_connection, refusal_of, why_unreachable
from holodeck.lib.chat.http import MalformedHttp, TooLarge, decode_body, too_large
from holodeck.lib.retry import parse_retry_after
from holodeck.lib.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
OVERLOAD_STATUS = frozenset({429, 503, 529})
NO_CODING = {"accept-encoding": "identity"}
"""What is asked of a server; one that compresses all the same is understood."""


class ExchangeFault(BackendSessionError):
    """A POST without a usable answer."""

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        is_unreachable: bool = False,
        asked_wait: float | None = None,
        status: int | None = None,
    ) -> None:
        self.is_transient = is_transient
        self.is_unreachable = is_unreachable
        """Whether no connection could be made."""
        self.is_overload = status in OVERLOAD_STATUS
        self.asked_wait = asked_wait
        """Seconds that the server asked to wait; None if it did not."""
        # A 404 may be about what the case asks for, and not about the URL.
        super().__init__(message, refusal="request" if status == 404 else refusal_of(status, set()))


class Exchange:
    """Posts JSON to one URL and reads up to so many bytes of JSON; one client per event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], most_bytes: int) -> None:
        self._url = url
        self._most_bytes = most_bytes
        self._headers = dict(headers)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )

    async def post(
        self, body: Any, limit_s: float | None, on_headers: Callable[[Mapping[str, str]], None]
    ) -> Any:
        """The JSON that comes back within `limit_s` seconds. Raises ExchangeFault."""
        import httpx2

        try:
            async with asyncio.timeout(limit_s):
                return await self._post(body, on_headers)
        except TimeoutError as error:
            raise ExchangeFault(f"no answer within {limit_s:g} s", is_transient=True) from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise ExchangeFault(f"{self._shown_url}: {error}") from error
        except httpx2.TransportError as error:
            raise self._no_answer(error) from error
        except httpx2.HTTPError as error:
            reason = one_line(str(error), 200)
            raise ExchangeFault(f"{self._shown_url}: {type(error).__name__}: {reason}") from error

    async def close(self) -> None:
        """Close the client of the running event loop; a later call opens another."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _post(self, body: Any, on_headers: Callable[[Mapping[str, str]], None]) -> Any:
        async with self._client().stream("POST", self._url, json=body) as response:
            on_headers(response.headers)
            data = await self._read(response)
        if not response.is_success:
            raise self._refusal(response, data)
        return self._parsed(response, data)

    def _no_answer(self, error: Exception) -> ExchangeFault:
        """The fault of a connection that could not be made or was lost."""
        why = why_unreachable(error)
        if why is not None:
            message = no_connection(self._shown_url, why)
            return ExchangeFault(message, is_transient=True, is_unreachable=True)
        reason = one_line(str(error), 200) or "the connection broke"
        message = f"{self._shown_url}: {type(error).__name__}: {reason}"
        return ExchangeFault(message, is_transient=True)

    async def _read(self, response: "Response") -> bytes:
        data = bytearray()
        async for piece in response.aiter_raw():  # httpx2 itself would unpack a bomb
            data += piece
            if len(data) > self._most_bytes:
                raise ExchangeFault(f"{self._shown_url}: {too_large(self._most_bytes)}")
        coding = response.headers.get("content-encoding")
        try:
            return decode_body(bytes(data), coding, self._most_bytes)
        except TooLarge as error:
            raise ExchangeFault(f"{self._shown_url}: {error}") from error
        except MalformedHttp as error:
            raise ExchangeFault(f"the answer of {self._shown_url}: {error}") from error

    def _refusal(self, response: "Response", data: bytes) -> ExchangeFault:
        status = response.status_code
        reason = f"HTTP {status} from {self._shown_url}"
        if response.is_redirect:
            return ExchangeFault(f"{reason}: it redirects; write the URL that answers")
        excerpt = _excerpt(data)
        return ExchangeFault(
            f"{reason}: {excerpt}" if excerpt else reason,
            is_transient=status in TRANSIENT_STATUS or status >= 500,
            asked_wait=parse_retry_after(response.headers),
            status=status,
        )

    def _parsed(self, response: "Response", data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            kind = response.headers.get("content-type", "no content type")
            raise ExchangeFault(
                f"{self._shown_url} answered no JSON ({kind}): {_excerpt(data) or 'nothing'}"
            ) from error

    def _client(self) -> "AsyncClient":
        import httpx2

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # A cookie that one case was given must not be sent along by another.
            headers = httpx2.Headers(NO_CODING)
            headers.update(self._headers)
            no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self._clients[loop] = httpx2.AsyncClient(
                headers=headers,
                cookies=no_cookies,
                timeout=None,  # `post` limits the whole exchange
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            )
        return self._clients[loop]

    @property
    def _shown_url(self) -> str:
        """The URL without what may be secret in it."""
        parts = urlsplit(self._url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _excerpt(data: bytes) -> str:
    return one_line(data[:2000].decode(errors="replace"), 200)
