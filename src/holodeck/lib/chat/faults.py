"""What a provider does wrong, in words, and whether it may pass by itself."""

import json
import ssl
from typing import Any

from holodeck.errors import BackendSessionError
from holodeck.lib.chat.http import Response
from holodeck.lib.retry import parse_retry_after
from holodeck.lib.text import one_line

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
OVERLOAD_STATUS = frozenset({429, 503, 529})
REFUSED_STATUS = frozenset({401, 403})
HOPELESS_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
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
        asked_wait: float | None = None,
        hopeless: bool = False,
        status: int | None = None,
    ) -> None:
        self.status = status
        """Of the HTTP answer; None if there was none or it was fine."""
        self.is_transient = is_transient
        self.is_overload = is_overload
        """Whether the provider gets more than it takes."""
        self.asked_wait = asked_wait
        """Seconds that it asked to wait; None if it did not."""
        super().__init__(message, hopeless=hopeless)


def refused(response: Response) -> ChatFault:
    """The fault behind an answer that is not a 200."""
    status = response.status
    if 300 <= status < 400:
        return ChatFault(f"HTTP {status}: it redirects; write the endpoint that answers")
    said, code = _error_in(response.body)
    hopeless = bool(code & HOPELESS_CODES)
    return ChatFault(
        f"HTTP {status}: {said}" if said else f"HTTP {status}",
        is_transient=(status in TRANSIENT_STATUS or status >= 500) and not hopeless,
        is_overload=status in OVERLOAD_STATUS,
        asked_wait=parse_retry_after(response.headers),
        hopeless=hopeless or status in REFUSED_STATUS,
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


def malformed(what: str, body: bytes = b"") -> ChatFault:
    """The fault of an answer that says something else than it should."""
    shown = f": '{excerpt(body, MOST_SHOWN)}'" if body.strip() else ""
    return ChatFault(f"the provider's answer {what}{shown}", is_transient=True)


def broken(error: OSError, server: str) -> ChatFault:
    """The fault of a connection that could not be made or was lost."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ChatFault(f"{server}: its certificate is not trusted: {error.verify_message}")
    reason = one_line(str(error), MOST_SAID) or type(error).__name__
    return ChatFault(f"no connection to {server}: {reason}", is_transient=True)


def excerpt(body: bytes, limit: int) -> str:
    """The beginning of what came, fit for a terminal."""
    return one_line(body[: limit * 4].decode(errors="replace"), limit)
