"""Downloads files over http(s), within limits, and never from a private address unasked.

The address that was checked is the address that is connected to, and each redirect is checked anew.
"""

import asyncio
import hashlib
import ipaddress
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from holodeck.errors import ConfigError, ExecutionError
from holodeck.lib.llm.errors import TRANSIENT_STATUS
from holodeck.lib.llm.http_body import MalformedHttp, TooLarge
from holodeck.lib.llm.http_client import connection_error
from holodeck.lib.llm.http_connection import (
    ConnectionPool,
    ProxyRefused,
    Response,
    Server,
    basic_credentials,
)
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, parse_retry_after, retry
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.environment import proxy_for
from holodeck.lib.support.files import replace_file
from holodeck.lib.support.text import one_line

MAX_REDIRECTS = 5
MAX_BYTES = 50_000_000
_BACKOFF = RetryConfig(base_delay=1.0)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class DownloadError(ExecutionError):
    """A file could not be downloaded; the message says why, without the URL."""

    def __init__(
        self, message: str, *, is_transient: bool = False, retry_after: float | None = None
    ) -> None:
        self.is_transient = is_transient
        """Whether a further attempt may succeed."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait; None if it does not."""
        super().__init__(message)


@dataclass(frozen=True)
class DownloadRules:
    """What a download may do."""

    timeout: float = 30.0
    """Seconds for the whole download, with redirects and retries."""
    max_bytes: int = MAX_BYTES
    """The largest file."""
    max_retries: int = 3
    """Further attempts after an error that may pass."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts, as `host` or `host:port`, whose addresses need not be public."""
    cache_dir: Path | None = None
    """The folder for downloaded files; None to keep none."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that was downloaded, or that the server says is still the one in the cache."""

    url: str
    """Where it was found, after redirects."""
    data: bytes
    media_type: str | None
    """Such as `application/pdf`, as the server says; None if it does not."""
    etag: str | None = None
    last_modified: str | None = None
    cached_path: Path | None = None
    """The file of the cache that holds it; None if it is not cached."""
    is_from_cache: bool = False

    @classmethod
    def of(cls, url: str, response: Response) -> "RemoteFile":
        """Return the file that a response holds."""
        headers = response.headers
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        etag, last_modified = headers.get("etag"), headers.get("last-modified")
        return cls(url, response.body, media_type or None, etag, last_modified)

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request for the file, if it has changed; {} if it cannot be asked."""
        pairs = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in pairs.items() if value is not None}


async def download(url: str, rules: DownloadRules | None = None) -> RemoteFile:
    """Return the file at an http or https URL.

    A cached file is used only if the server confirms that it has not changed. Raises DownloadError.
    """
    rules = rules or DownloadRules()
    url = _normalize(url)
    path = None
    if rules.cache_dir is not None:
        path = rules.cache_dir / f"{hashlib.sha256(url.encode()).hexdigest()}.download"
    cached = None if path is None else await run_in_thread(partial(_read_cached, path))
    fetch = _Fetch(rules, cached)
    try:
        async with asyncio.timeout(rules.timeout) as limit:
            response, final_url = await retry(
                partial(fetch.follow, url),
                attempts=rules.max_retries + 1,
                is_transient=lambda error: isinstance(error, DownloadError) and error.is_transient,
                delay_for=lambda error, attempt: fetch.delay(error, attempt, limit.when()),
            )
    except TimeoutError as error:
        last = f"; last problem: {fetch.last_problem}" if fetch.last_problem else ""
        raise DownloadError(
            f"could not be downloaded within {rules.timeout:g} s (execution.download_timeout){last}"
        ) from error
    if response.status == HTTPStatus.NOT_MODIFIED and cached is not None:
        return replace(cached, url=final_url, is_from_cache=True)
    file = RemoteFile.of(final_url, response)
    if path is None:
        return file
    may_be_stored = "no-store" not in response.headers.get("cache-control", "").lower()
    return await run_in_thread(partial(_store, file, path, may_be_stored=may_be_stored))


def _read_cached(path: Path) -> RemoteFile | None:
    """Return the file that is cached there; None if nothing is, or if it is damaged."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
        facts = json.loads(head)
        is_intact = facts.pop("sha256") == hashlib.sha256(data).hexdigest()
        return RemoteFile(data=data, cached_path=path, **facts) if is_intact else None
    except (OSError, TypeError, ValueError, KeyError, AttributeError):
        return None


def _store(file: RemoteFile, path: Path, *, may_be_stored: bool) -> RemoteFile:
    """Store a file atomically, and return it with its path in the cache.

    A file that no later request could confirm is not stored, nor where that is impossible, such as
    on a full disk: the run has the file anyway.
    """
    if not (may_be_stored and file.conditions):
        path.unlink(missing_ok=True)
        return file
    names = ("url", "media_type", "etag", "last_modified")
    facts = {name: getattr(file, name) for name in names}
    facts["sha256"] = hashlib.sha256(file.data).hexdigest()
    try:
        replace_file(path, [json.dumps(facts).encode(), b"\n", file.data])
    except OSError:
        return file
    return replace(file, cached_path=path)


def shown_url(url: str) -> str:
    """Return a URL for messages: without credentials, and without a query, which may hold a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return one_line(url.partition("?")[0].rpartition("@")[2], 200)
    query = "…" if parts.query else ""
    host = parts.netloc.rpartition("@")[2]
    return one_line(urlunsplit((parts.scheme, host, parts.path, query, "")), 200)


class _Fetch:
    """The requests of a download."""

    def __init__(self, rules: DownloadRules, cached: RemoteFile | None) -> None:
        self._rules = rules
        self._cached = cached
        self.last_problem = ""

    async def follow(self, url: str) -> tuple[Response, str]:
        """Return the response after all redirects, and its URL. Raises DownloadError."""
        credentials, origin = basic_credentials(urlsplit(url)), _origin(url)
        for _ in range(MAX_REDIRECTS + 1):
            headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "holodeck"}
            if self._cached is not None and self._cached.url == _without_credentials(url):
                headers |= self._cached.conditions
            if credentials and _origin(url) == origin:
                headers["Authorization"] = credentials
            response = await self._get(url, headers)
            if response.status not in _REDIRECTS:
                _check_status(response, headers)
                return response, _without_credentials(url)
            url = _redirect_target(url, response)
        raise DownloadError(f"is redirected more than {MAX_REDIRECTS} times")

    def delay(self, error: Exception, attempt: int, deadline: float | None) -> float:
        """Return the seconds until the next attempt; raise the error if that would be too late."""
        asked = error.retry_after if isinstance(error, DownloadError) else None
        wait = backoff_delay(attempt, _BACKOFF) if asked is None else asked
        self.last_problem = str(error)
        if deadline is not None and asyncio.get_running_loop().time() + wait >= deadline:
            raise error
        return wait

    async def _get(self, url: str, headers: dict[str, str]) -> Response:
        """Return the response to a request, from an address that was checked."""
        try:
            server = Server(url, proxy_for(url))
        except ConfigError as error:
            raise DownloadError(str(error)) from error
        addresses = await _checked_addresses(server, self._rules.allowed_hosts)
        if server.proxy is not None:
            return await self._exchange(server, headers)
        for address in addresses[:-1]:
            try:
                return await self._exchange(replace(server, address=address), headers)
            except DownloadError as error:
                if not isinstance(error.__cause__, ConnectionError):
                    raise
        return await self._exchange(replace(server, address=addresses[-1]), headers)

    async def _exchange(self, server: Server, headers: dict[str, str]) -> Response:
        pool = ConnectionPool(server, self._rules.max_bytes)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"{server.begin_request('GET')}{lines}Connection: close\r\n\r\n"
        try:
            return await pool.exchange(request.encode("latin-1"))
        except TooLarge as error:
            most = self._rules.max_bytes / 1e6
            raise DownloadError(f"is too large: at most {most:g} MB are read") from error
        except MalformedHttp as error:
            raise DownloadError(f"the server's answer is not valid HTTP: {error}") from error
        except ProxyRefused as error:
            raise DownloadError(f"{server.contact}: {error}") from error
        except OSError as error:
            failure = connection_error(error, server)
            raise DownloadError(str(failure), is_transient=failure.is_transient) from error
        finally:
            await pool.close()


def _normalize(url: str) -> str:
    """Return a URL as it is requested: ASCII only, without a fragment. Raises DownloadError."""
    try:
        parts = urlsplit(url.strip())
        port = f":{parts.port}" if parts.port is not None else ""
        host = (parts.hostname or "").encode("idna").decode()
    except (UnicodeError, ValueError) as error:
        raise DownloadError(f"its URL is invalid: {one_line(str(error), 100)}") from error
    if parts.scheme not in {"http", "https"}:
        raise DownloadError(
            f"its URL begins with {parts.scheme + ':'!r}; only http:// and https:// are downloaded"
        )
    if not _HOST.fullmatch(host):
        raise DownloadError(f"its URL has no valid host: {shown_url(url)!r}")
    credentials, at, _ = parts.netloc.rpartition("@")
    netloc = f"{quote(credentials, safe=':%')}{at}{f'[{host}]' if ':' in host else host}{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~?[]{}|^`\\")
    return urlunsplit((parts.scheme, netloc, path, query, ""))


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _origin(url: str) -> tuple[str, str, int]:
    server = Server(url)
    return server.parts.scheme, server.host, server.port


def _redirect_target(url: str, response: Response) -> str:
    """Return the URL of a redirect. Raises DownloadError."""
    location = response.headers.get("location")
    if not location:
        raise DownloadError(f"the server answered HTTP {response.status} without a location")
    # Header lines are read as Latin-1; servers send UTF-8, if they do not escape it.
    location = location.encode("latin-1").decode(errors="replace")
    try:
        target = _normalize(urljoin(url, location))
    except (DownloadError, ValueError) as error:
        raise DownloadError(f"is redirected to {shown_url(location)!r}: {error}") from error
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
        raise DownloadError(
            f"is redirected from https to {shown_url(target)!r};"
            " write that URL if it may be unencrypted"
        )
    return target


def _check_status(response: Response, headers: dict[str, str]) -> None:
    """Raise DownloadError unless the response is the file, or says that it has not changed."""
    status = response.status
    is_conditional = "If-None-Match" in headers or "If-Modified-Since" in headers
    if status in {200, 203} or (status == HTTPStatus.NOT_MODIFIED and is_conditional):
        return
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    raise DownloadError(
        f"the server answered HTTP {status} ({phrase})",
        is_transient=status in TRANSIENT_STATUS or status >= 500,
        retry_after=parse_retry_after(response.headers),
    )


async def _checked_addresses(server: Server, allowed_hosts: tuple[str, ...]) -> list[str]:
    """Return the addresses of a host, all of them public or allowed. Raises DownloadError.

    A proxy may know a name that cannot be resolved here; then nothing is returned.
    """
    lookup = partial(socket.getaddrinfo, server.host, server.port, type=socket.SOCK_STREAM)
    try:
        rows = await run_in_thread(lookup, "holodeck-dns")
    except (OSError, UnicodeError) as error:
        if server.proxy is not None:
            return []
        passes = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        problem = f"the host name {server.host!r} cannot be resolved"
        raise DownloadError(problem, is_transient=passes) from error
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    allowed = is_allowed(server, allowed_hosts)
    for address in addresses:
        kind = None if allowed else _kind_if_not_public(ipaddress.ip_address(address))
        if kind is not None:
            of = "" if server.host == address else f" of {server.host!r}"
            raise DownloadError(
                f"{address}{of} is a {kind} address, from which nothing is downloaded unless"
                f" it is allowed; write 'execution: {{allowed_hosts: [\"{server.authority}\"]}}'"
            )
    return addresses


def is_allowed(server: Server, allowed_hosts: Sequence[str]) -> bool:
    """Whether a server is among the hosts, each as `host` or `host:port`."""
    names = {server.host, f"[{server.host}]"}
    names |= {f"{name}:{server.port}" for name in names}
    return any(host.strip().lower() in names for host in allowed_hosts)


def _kind_if_not_public(address: Address) -> str | None:
    """Return the kind of an address that is not public, also one that is embedded in another."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _kind_if_not_public(inner)
    kinds = {
        "loopback": address.is_loopback,
        "link-local": address.is_link_local,
        "multicast": address.is_multicast,
        "reserved": address.is_unspecified or address.is_reserved,
        "private": not address.is_global,
    }
    return next((kind for kind, applies in kinds.items() if applies), None)
