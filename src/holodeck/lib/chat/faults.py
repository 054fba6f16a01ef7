"""What a provider does wrong, in words, and whether it may pass by itself."""

import errno
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Set
from typing import Any

from holodeck.errors import BackendSessionError, Refusal
from holodeck.lib.chat.connection import Server
from holodeck.lib.chat.http import Response
from holodeck.lib.retry import parse_retry_after
from holodeck.lib.text import one_line

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
OVERLOAD_STATUS = frozenset({429, 503, 529})
HOPELESS_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
CONTENT_CODES = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "invalid_prompt",
        "string_above_max_length",
        "tokens_limit_reached",
    }
)
"""What providers object to in one conversation and not in another."""
UNREACHABLE = frozenset(
    {errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
NOT_A_COMPLETION = "not a chat completion"
MOST_SHOWN = 80
MOST_SAID = 400


class ChatFault(BackendSessionError):
    """A request without a usable answer."""

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        is_overload: bool = False,
        is_unreachable: bool = False,
        asked_wait: float | None = None,
        refusal: Refusal | None = None,
        status: int | None = None,
    ) -> None:
        self.status = status
        """Of the HTTP answer; None if there was none or it was fine."""
        self.is_transient = is_transient
        self.is_overload = is_overload
        """Whether the provider gets more than it takes."""
        self.is_unreachable = is_unreachable
        """Whether no connection could be made."""
        self.asked_wait = asked_wait
        """Seconds that it asked to wait; None if it did not."""
        super().__init__(message, refusal=refusal)


def refusal_of(status: int | None, codes: Set[object]) -> Refusal | None:
    """Return what an HTTP status and the provider's error codes object to; None: nothing lasting.

    A 404 is the model, or the path of the endpoint. The objection of a 400 or 422 may be to this
    request alone.
    """
    if codes & HOPELESS_CODES or status == 402:
        return "quota"
    if status in {401, 403}:
        return "key"
    if status == 404:
        return "model"
    return "request" if status in {400, 422} and not codes & CONTENT_CODES else None


def refusal_fault(response: Response) -> ChatFault:
    """The fault behind an answer that is not a 200."""
    status = response.status
    if 300 <= status < 400:
        return ChatFault(f"HTTP {status}: it redirects; write the endpoint that answers")
    said, code = _error_in(response.body)
    refusal = refusal_of(status, code)
    return ChatFault(
        f"HTTP {status}: {said}" if said else f"HTTP {status}",
        is_transient=(status in TRANSIENT_STATUS or status >= 500) and refusal != "quota",
        is_overload=status in OVERLOAD_STATUS,
        asked_wait=parse_retry_after(response.headers),
        refusal=refusal,
        status=status,
    )


def _error_in(body: bytes) -> tuple[str, set[str]]:
    """What the provider says about an error, and its codes."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        return one_line(error, MOST_SAID), set()
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return excerpt(body, MOST_SAID), set()
    codes = {one for one in (error.get("code"), error.get("type")) if isinstance(one, str)}
    return one_line(error["message"], MOST_SAID), codes


def malformed_fault(what: str, body: bytes = b"") -> ChatFault:
    """The fault of an answer that says something else than it should."""
    shown = f": '{excerpt(body, MOST_SHOWN)}'" if body.strip() else ""
    return ChatFault(f"the provider's answer {what}{shown}", is_transient=True)


def connection_fault(error: OSError, server: Server) -> ChatFault:
    """The fault of a connection that could not be made or was lost."""
    if isinstance(error, ssl.SSLCertVerificationError):
        where = server.authority
        return ChatFault(f"{where}: its certificate is not trusted: {error.verify_message}")
    why = why_unreachable(error)
    reason = why or one_line(str(error), MOST_SAID) or type(error).__name__
    return ChatFault(
        no_connection(server.contact, reason), is_transient=True, is_unreachable=why is not None
    )


def no_connection(url: str, reason: str) -> str:
    """Return the message about a connection that could not be made or was lost."""
    return f"no connection to {url}: {reason}"


def why_unreachable(error: BaseException) -> str | None:
    """Return why a server could not be reached at all, read from the error and its causes.

    None means that it is another error: a connection that was lost, a timeout.
    """
    for cause in causes(error):
        if isinstance(cause, socket.gaierror):
            return f"the host name cannot be resolved ({cause.strerror})"
        if isinstance(cause, OSError):
            # asyncio tells of several addresses only in the text of one error.
            codes = [int(code) for code in _ERRNO.findall(str(cause))]
            known = [code for code in (cause.errno, *codes) if code in UNREACHABLE]
            if known:
                code = errno.ECONNREFUSED if errno.ECONNREFUSED in known else known[0]
                return os.strerror(code or 0).lower()
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what led to it, outermost first; of a group, what it began with."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        first = current.exceptions[0] if isinstance(current, BaseExceptionGroup) else None
        current = current.__cause__ or first or current.__context__


def excerpt(body: bytes, limit: int) -> str:
    """The beginning of what came, fit for a terminal."""
    return one_line(body[: limit * 4].decode(errors="replace"), limit)
