"""What went wrong at a provider, whether it may pass by itself, and how long to wait."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from holodeck.errors import BackendSessionError, ConfigError, HoloDeckError, Refusal
from holodeck.lib.chat.faults import causes, no_connection, refusal_of, why_unreachable
from holodeck.lib.chat.http import MalformedHttp, TooLarge
from holodeck.lib.retry import parse_retry_after

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
OVERLOAD_STATUS = frozenset({429, 503, 529})

STUMBLES = (AttributeError, TypeError, LookupError, RecursionError)
SK_WRAPPER = "ServiceResponseException"
NOT_A_COMPLETION = "the provider's answer is not a chat completion"


class MalformedAnswer(BackendSessionError):
    """The provider answered with something that is not a chat completion."""


@contextmanager
def malformed_on_error() -> Iterator[None]:
    """Python errors in the block are those of a library that met an answer of another shape."""
    try:
        yield
    except (*STUMBLES, AssertionError, ValidationError) as error:
        raise MalformedAnswer(NOT_A_COMPLETION) from error


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error; None if there was no response."""
    for cause in causes(error):
        status = getattr(cause, "status_code", None)
        if isinstance(status, int) and status > 0:
            return status
    return None


def is_transient(error: Exception) -> bool:
    """Whether the same request may well succeed a little later."""
    chain = list(causes(error))
    if any(isinstance(cause, ConfigError | TooLarge) for cause in chain):
        return False
    status = status_of(error)
    if status is not None and status != 200:
        may_pass = status in TRANSIENT_STATUS or status >= 500
        return may_pass and refusal_in(error) != "quota"
    return _is_malformed(chain) or any(_is_connection_fault(cause) for cause in chain)


def is_overload(error: Exception) -> bool:
    """Whether the provider says that it gets more than it takes."""
    return status_of(error) in OVERLOAD_STATUS


def refusal_in(error: Exception) -> Refusal | None:
    """Return what the provider objects to, where every other request may be refused, too."""
    codes = {getattr(cause, "code", None) for cause in causes(error)}
    return refusal_of(status_of(error), codes)


def _is_connection_fault(cause: BaseException) -> bool:
    """Whether the way to the provider failed; client libraries are told by their names, so that
    none has to be imported to ask."""
    names = {klass.__name__ for klass in type(cause).__mro__}
    return isinstance(cause, OSError) or bool(
        names & {"APIConnectionError", "TransportError", "HTTPError"}
    )


def _is_malformed(chain: Sequence[BaseException]) -> bool:
    """Whether a 200 held something else than a completion: HTML, half a body, no choices.

    Semantic Kernel stumbles over some of these with an error of Python itself, which it wraps.
    """
    for outer, inner in pairwise([*chain, None]):
        names = {klass.__name__ for klass in type(outer).__mro__}
        if isinstance(outer, MalformedAnswer | json.JSONDecodeError | UnicodeDecodeError):
            return True
        stumbled = isinstance(inner, STUMBLES)
        if "APIResponseValidationError" in names or (SK_WRAPPER in names and stumbled):
            return True
    return False


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asked to wait; None if it did not say."""
    for cause in causes(error):
        headers = getattr(getattr(cause, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            return parse_retry_after(headers)
    return None


def describe(error: BaseException) -> str:
    """One line that says what happened, without the wrappers that say nothing."""
    if isinstance(error, HoloDeckError):
        return str(error)
    if status_of(error) is None and _is_malformed(list(causes(error))):
        return NOT_A_COMPLETION
    unreachable = why_unreachable(error) if status_of(error) is None else None
    if unreachable is not None:
        return no_connection(_server_in(error), unreachable)
    refused = [one for one in causes(error) if isinstance(one, TooLarge | MalformedHttp)]
    innermost = refused[0] if refused else _most_telling(error)
    status = status_of(error)
    text = " ".join(str(innermost).split()) or type(innermost).__name__
    if isinstance(innermost, TimeoutError):
        text = "no answer in time"
    prefix = f"HTTP {status}: " if status is not None and str(status) not in text else ""
    return f"{prefix}{text}"[:500]


def _most_telling(error: BaseException) -> BaseException:
    """The provider library's own error where there is one, else the outermost."""
    chain = list(causes(error))
    for cause in chain:
        if type(cause).__module__.partition(".")[0] in {"openai", "anthropic", "ollama"}:
            return _with_transport_detail(cause)
    telling = [cause for cause in chain if type(cause).__name__ != SK_WRAPPER]
    return telling[0] if telling else error


def _with_transport_detail(cause: BaseException) -> BaseException:
    """For "Connection error." the error below it, which says what kind.

    OpenAI's library calls any lost connection a timeout, so its own words are left out then.
    """
    below = cause.__cause__
    if status_of(cause) is not None or below is None or not str(below):
        return cause
    is_timeout = any(isinstance(one, TimeoutError) for one in causes(cause))
    if any(isinstance(one, OSError) for one in causes(cause)) and not is_timeout:
        return ConnectionError(no_connection(_server_in(cause), str(below)))
    return ConnectionError(f"{cause} ({below}; {_server_in(cause)})")


def _server_in(error: BaseException) -> str:
    """Which server was asked, without the parts of its URL that may hold a secret."""
    for cause in causes(error):
        url: Any = None
        with suppress(RuntimeError):  # httpx raises where the error has no request
            url = getattr(getattr(cause, "request", None), "url", None)
        host, port = getattr(url, "host", None), getattr(url, "port", None)
        if host:
            shown = f"[{host}]" if ":" in host else host
            return f"{url.scheme}://{shown}:{port}" if port else f"{url.scheme}://{shown}"
    return "the provider"
