"""Requests to stores that speak HTTP: retries within the time limit, and errors for people."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.lib.knowledge.stores.adapter import StoreProblem
from holodeck.lib.knowledge.stores.servers import explain_connection
from holodeck.lib.text import shorten

if TYPE_CHECKING:
    from httpx2 import Client, Response

_BUSY = (429, 502, 503, 504)
_LONGEST_MESSAGE = 300
_MESSAGES = ("error", "message", "reason")
"""Keys of what an error says."""
_FIRST_WAIT_S, _SHORTEST_WAIT_S = 0.5, 0.1
_PAUSE_S = 0.3


class RestError(Exception):
    """A service answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class RestClient:
    """Sends requests to one service.

    Args:
        url: The address that paths are appended to.
        headers: Sent with each request.
        limit_s: Seconds of one request with its retries.
        params: Parameters of each request.
        login: Name and password of each request.
        verify: Whether the server's certificate must be valid.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        limit_s: float,
        params: Mapping[str, str] | None = None,
        *,
        login: tuple[str, str] | None = None,
        verify: bool = True,
    ) -> None:
        self._url = url.rstrip("/")
        self._limit_s = limit_s
        self._options: dict[str, Any] = {
            "headers": headers,
            "params": params,
            "auth": login,
            "verify": verify,
        }
        self._client: Client | None = None

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        missing: bool = False,
    ) -> "Response":
        """Return the response, also for 404 if it may be `missing`.

        The body is sent as JSON; bytes are sent as they are, lines of JSON documents.

        Raises RestError, or what the client raises.
        """
        client = self._open()
        ends = time.monotonic() + self._limit_s
        content, kind = None, dict[str, str]()
        if isinstance(body, bytes):
            content, kind["content-type"] = body, "application/x-ndjson"
        elif body is not None:
            content, kind["content-type"] = json.dumps(body).encode(), "application/json"
        sent = {**kind, **(headers or {})}
        wait = _FIRST_WAIT_S
        while True:
            response = client.request(
                method, self._url + path, content=content, headers=sent, params=params
            )
            if response.status_code not in _BUSY:
                break
            wait = _retry_after(response, wait)
            if time.monotonic() + wait >= ends:
                break
            time.sleep(wait)
            wait *= 2
        if not response.is_success and not (missing and response.status_code == 404):
            raise RestError(response.status_code, _message(response))
        return response

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Return the JSON document of the response; {} for 404 if it may be `missing`."""
        response = self.send(method, path, body, **options)
        return json_of(response) if response.is_success else {}

    def _open(self) -> "Client":
        if self._client is None:
            import httpx2

            self._client = httpx2.Client(timeout=self._limit_s, **self._options)
        return self._client

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            self._client.close()
        self._client = None


def attempts(limit_s: float, problem: str) -> Iterator[None]:
    """Yield from time to time for so many seconds, then raise StoreProblem."""
    ends = time.monotonic() + limit_s
    while True:
        yield
        if time.monotonic() + _PAUSE_S > ends:
            raise StoreProblem(f"{problem} within {limit_s:g} s; raise 'timeout' of the database")
        time.sleep(_PAUSE_S)


def json_of(response: "Response") -> Any:
    """Return the JSON document of a response. Raises RestError."""
    try:
        return response.json()
    except ValueError as error:
        raise RestError(response.status_code, "the answer is no JSON document") from error


def explain_rest(error: Exception, key: str) -> str | None:
    """Return what is wrong with a request and what to change; None for other errors.

    `key` is the setting that holds the credentials.
    """
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time; check that it runs, or raise 'timeout' of the database"
    if not isinstance(error, RestError):
        return explain_connection(error, key)
    if error.status in {401, 403}:
        return f"the server rejects the credentials ({error}); change {key!r}"
    if error.status in _BUSY:
        return f"the server is busy ({error}); try again later, or raise 'timeout' of the database"
    return f"the server rejects the request ({error})"


def batches(
    items: Sequence[dict[str, Any]], most: int, most_bytes: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the items in lists that are at most so long, and so large as JSON."""
    batch, size = list[dict[str, Any]](), 0
    for item in items:
        length = len(json.dumps(item))
        if batch and (len(batch) == most or size + length > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


def _retry_after(response: "Response", default: float) -> float:
    in_ms = response.headers.get("x-ms-retry-after-ms")
    try:
        asked = float(in_ms) / 1000 if in_ms else response.headers.get("retry-after", default)
        return max(_SHORTEST_WAIT_S, float(asked))
    except ValueError:  # a date
        return default


def _message(response: "Response") -> str:
    """Return what a service says about an error, in one line."""
    try:
        document = response.json()
    except ValueError:
        document = response.text
    return shorten(" ".join(str(_innermost(document)).split()), _LONGEST_MESSAGE) or "no message"


def _innermost(document: Any) -> Any:
    while True:
        if isinstance(document, list) and document:
            document = document[0]
        elif isinstance(document, dict):
            inner = next((document[key] for key in _MESSAGES if document.get(key)), None)
            if inner is None:
                return json.dumps(document)
            document = inner
        else:
            return document
