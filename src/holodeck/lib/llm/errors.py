"""Errors of requests: what an HTTP status or a lost connection means, and whether to retry."""

import errno
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Set
from typing import Any

from holodeck.errors import BackendSessionError, Refusal
from holodeck.lib.llm.retry import parse_retry_after
from holodeck.lib.support.text import one_line

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
"""Besides every status from 500."""
OVERLOAD_STATUS = frozenset({429, 503, 529})
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
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
"""Error codes about one conversation; other conversations may be accepted."""
UNREACHABLE_ERRNOS = frozenset(
    {errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
)
_HANDSHAKE_FAILURES = frozenset(
    {
        "HTTP_REQUEST",
        "NO_PROTOCOLS_AVAILABLE",
        "RECORD_LAYER_FAILURE",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
"""Reasons of OpenSSL that every further connection would meet, such as a server without TLS."""
_REFUSED_TEMPERATURE = re.compile(r"(?i)(?=.*temperature).*(unsupported|not support|only the def)")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
OWN_ERROR = "holodeck_tap_error"
"""The type of the errors that holodeck answers requests with, in place of the model."""
MAX_EXCERPT = 80
MAX_MESSAGE = 400


class RequestError(BackendSessionError):
    """A request without a usable response."""

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        is_unreachable: bool = False,
        retry_after: float | None = None,
        refusal: Refusal | None = None,
        status: int | None = None,
        is_own: bool = False,
    ) -> None:
        self.is_transient = is_transient
        """Whether the same request may succeed later."""
        self.is_unreachable = is_unreachable
        """Whether no connection could be made."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait; None if it does not."""
        self.status = status
        """HTTP status of the response; None if there was none, or if it was a 200."""
        self.is_own = is_own
        """Whether holodeck answered in place of the server, such as with a fault of a case."""
        super().__init__(message, refusal=refusal)

    @property
    def is_overload(self) -> bool:
        """Whether the server receives more requests than it accepts."""
        return self.status in OVERLOAD_STATUS and not self.is_own


def classify_refusal(status: int | None, codes: Set[object]) -> Refusal | None:
    """Return what a provider refuses, by HTTP status and error codes; None if a retry may help.

    A 404 means the model, or the path of the endpoint. A 400 or 422 may concern one request only.
    """
    if codes & QUOTA_CODES or status == 402:
        return "quota"
    if status in {401, 403}:
        return "key"
    if status == 404:
        return "model"
    return "request" if status in {400, 422} and not codes & CONTENT_CODES else None


def is_transient_status(status: int, refusal: Refusal | None) -> bool:
    """Return whether a request with this HTTP status may succeed later."""
    return (status in TRANSIENT_STATUS or status >= 500) and refusal != "quota"


def is_redirect(status: int) -> bool:
    """Whether a response leads elsewhere, where no request and no key is sent."""
    return 300 <= status < 400


def redirect_message(status: int) -> str:
    """Return the message about a redirect."""
    return f"HTTP {status}: the endpoint redirects; write the URL that it redirects to"


def status_error(status: int, headers: Mapping[str, str], body: bytes) -> RequestError:
    """Return the error for a provider's response that is not a 200."""
    if is_redirect(status):
        return RequestError(redirect_message(status))
    message, codes = _provider_error(body)
    refusal = classify_refusal(status, codes)
    if status == 400 and _REFUSED_TEMPERATURE.search(message):
        message += "; write 'temperature: null' in the model, which then uses its own"
    return RequestError(
        f"HTTP {status}: {message}" if message else f"HTTP {status}",
        is_transient=is_transient_status(status, refusal),
        retry_after=parse_retry_after(headers),
        refusal=refusal,
        status=status,
        is_own=OWN_ERROR in codes,
    )


def provider_error(body: bytes) -> RequestError:
    """Return the error that a provider reports in the middle of a stream."""
    message, codes = _provider_error(body)
    refusal = classify_refusal(None, codes)
    return RequestError(message or "the provider reported an error", refusal=refusal)


def _provider_error(body: bytes) -> tuple[str, set[str]]:
    """Return the message and the codes of an error response."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        return one_line(error, MAX_MESSAGE), set()
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return excerpt(body, MAX_MESSAGE), set()
    codes = {code for code in (error.get("code"), error.get("type")) if isinstance(code, str)}
    return one_line(error["message"], MAX_MESSAGE), codes


def malformed_response(problem: str, body: bytes = b"") -> RequestError:
    """Return the error for a response in another format than expected."""
    shown = f": '{excerpt(body, MAX_EXCERPT)}'" if body.strip() else ""
    return RequestError(f"the provider's answer {problem}{shown}", is_transient=True)


def no_answer_within(limit_s: float | None) -> str:
    return f"no answer within {limit_s:g} s (execution.llm_timeout)"


def no_connection_message(url: str, reason: str) -> str:
    return f"no connection to {url}: {reason}"


def unreachable_reason(error: BaseException) -> str | None:
    """Return why no connection could be made, read from the error and its causes.

    None means another kind of error: a lost connection, a timeout.
    """
    for cause in error_chain(error):
        if (untrusted := _tls_problem(cause)) is not None:
            return untrusted
        if isinstance(cause, socket.gaierror):
            return f"the host name cannot be resolved ({cause.strerror})"
        if isinstance(cause, OSError):
            # asyncio reports several addresses only in the text of one error.
            codes = [int(code) for code in _ERRNO.findall(str(cause))]
            known = [code for code in (cause.errno, *codes) if code in UNREACHABLE_ERRNOS]
            if known:
                code = errno.ECONNREFUSED if errno.ECONNREFUSED in known else known[0]
                return os.strerror(code or 0).lower()
    return None


def _tls_problem(error: BaseException) -> str | None:
    """Return why no TLS connection could be made; None for another error."""
    if not isinstance(error, ssl.SSLError):
        return None
    # The subclasses of client libraries lack what the error that they were made of has.
    message, reason = getattr(error, "verify_message", None), getattr(error, "reason", None)
    if message:
        return f"its certificate is not trusted: {message}"
    if reason in _HANDSHAKE_FAILURES:
        return f"TLS failed: {reason.lower().replace('_', ' ')}"
    return None


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first; of a group, its first error."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        first = current.exceptions[0] if isinstance(current, BaseExceptionGroup) else None
        current = current.__cause__ or first or current.__context__


def excerpt(body: bytes, limit: int) -> str:
    """Return the beginning of a body on one line, safe to print in a terminal."""
    return one_line(body[: limit * 4].decode(errors="replace"), limit)
