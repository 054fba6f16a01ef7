"""Errors of Semantic Kernel and the provider libraries, as request errors of our own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from holodeck.errors import BackendError, BackendSessionError, ConfigError, HoloDeckError, Refusal
from holodeck.lib.llm.errors import (
    MAX_EXCERPT,
    RequestError,
    classify_refusal,
    error_chain,
    is_redirect,
    is_transient_status,
    no_connection_message,
    redirect_message,
    unreachable_reason,
)
from holodeck.lib.llm.http_body import MalformedHttp, TooLarge
from holodeck.lib.llm.retry import parse_retry_after
from holodeck.lib.support.text import one_line

PYTHON_ERRORS = (AttributeError, TypeError, LookupError, RecursionError)
"""Errors of a library that reads a response of an unexpected shape."""
SK_WRAPPER = "ServiceResponseException"
NOT_A_COMPLETION = "the provider's answer is not a chat completion"


class MalformedResponse(BackendSessionError):
    """The provider's response is not a chat completion."""


@contextmanager
def malformed_on_error() -> Iterator[None]:
    """Turn Python errors of a library that reads a response into MalformedResponse."""
    try:
        yield
    except (*PYTHON_ERRORS, AssertionError, ValidationError) as error:
        raise MalformedResponse(NOT_A_COMPLETION) from error


def request_error(error: Exception) -> RequestError:
    """Return the error of a request that raised `error` inside of a library."""
    status = status_of(error)
    return RequestError(
        describe(error),
        is_transient=_is_transient(error),
        is_unreachable=status is None and unreachable_reason(error) is not None,
        retry_after=_retry_after(error),
        refusal=refusal_in(error),
        status=status,
    )


def is_provider_error(error: BaseException) -> bool:
    """Whether the library of a provider raised the error, or one of its causes."""
    return any(map(_is_of_provider, error_chain(error)))


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the response behind an error; None if there was none."""
    for cause in error_chain(error):
        status = getattr(cause, "status_code", None)
        if isinstance(status, int) and status > 0:
            return status
    return None


def refusal_in(error: Exception) -> Refusal | None:
    """Return what the provider refuses, where it may refuse every other request, too."""
    if isinstance(error, BackendError) and error.refusal is not None:
        return error.refusal
    codes = {getattr(cause, "code", None) for cause in error_chain(error)}
    return classify_refusal(status_of(error), codes)


def refusal_behind(error: Exception) -> Refusal | None:
    """Return what a server refused the code that raised the error, read from its causes.

    The code may call several servers, so that one 404 says nothing about others.
    """
    if unreachable_reason(error) is not None:
        return "unreachable"
    refusal = refusal_in(error)
    return "request" if refusal == "model" else refusal


def describe(error: BaseException) -> str:
    """Return one line that says what happened, without the wrappers of the libraries."""
    if isinstance(error, HoloDeckError):
        return str(error)
    status = status_of(error)
    if status is not None and is_redirect(status):
        return redirect_message(status)
    if status is None:
        broken = next(filter(_is_not_http, error_chain(error)), None)
        if broken is not None:
            problem = one_line(str(getattr(broken, "message", broken)), MAX_EXCERPT)
            return f"the provider's answer is not valid HTTP: {problem}"
        if _is_malformed(list(error_chain(error))):
            return NOT_A_COMPLETION
        reason = unreachable_reason(error)
        if reason is not None:
            return no_connection_message(_server_of(error), reason)
    own = (cause for cause in error_chain(error) if isinstance(cause, TooLarge | MalformedHttp))
    cause = next(own, None) or _most_specific(error)
    text = " ".join(str(cause).split()) or type(cause).__name__
    if isinstance(cause, TimeoutError):
        text = "no answer in time"
    prefix = f"HTTP {status}: " if status is not None and str(status) not in text else ""
    return f"{prefix}{text}"[:500]


def _is_transient(error: Exception) -> bool:
    chain = list(error_chain(error))
    if any(isinstance(cause, ConfigError | TooLarge) for cause in chain):
        return False
    status = status_of(error)
    if status is not None and status != 200:
        return is_transient_status(status, refusal_in(error))
    if any(map(_is_not_http, chain)):
        return True
    return _is_malformed(chain) or any(_is_connection_error(cause) for cause in chain)


def _is_not_http(cause: BaseException) -> bool:
    """Whether aiohttp could not parse the response; openai's client does not wrap its errors."""
    return any(klass.__name__ == "BadHttpMessage" for klass in type(cause).__mro__)


def _is_connection_error(cause: BaseException) -> bool:
    """Whether the connection failed; the names of client libraries' errors save importing them."""
    names = {klass.__name__ for klass in type(cause).__mro__}
    return isinstance(cause, OSError) or bool(
        names & {"APIConnectionError", "TransportError", "HTTPError"}
    )


def _is_malformed(chain: Sequence[BaseException]) -> bool:
    """Whether a 200 held something else than a completion: HTML, half a body, no choices.

    Semantic Kernel raises Python errors over some of these, and wraps them.
    """
    for outer, inner in pairwise([*chain, None]):
        names = {klass.__name__ for klass in type(outer).__mro__}
        if isinstance(outer, MalformedResponse | json.JSONDecodeError | UnicodeDecodeError):
            return True
        if "APIResponseValidationError" in names:
            return True
        if SK_WRAPPER in names and isinstance(inner, PYTHON_ERRORS):
            return True
    return False


def _retry_after(error: BaseException) -> float | None:
    for cause in error_chain(error):
        headers = getattr(getattr(cause, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            return parse_retry_after(headers)
    return None


def _most_specific(error: BaseException) -> BaseException:
    """Return the provider library's own error if there is one, else the outermost."""
    chain = list(error_chain(error))
    for cause in chain:
        if _is_of_provider(cause):
            return _with_transport_detail(cause)
    return next((cause for cause in chain if type(cause).__name__ != SK_WRAPPER), error)


def _is_of_provider(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in {"anthropic", "azure", "ollama", "openai"}


def _with_transport_detail(cause: BaseException) -> BaseException:
    """For "Connection error.", return an error with the details of the one below it.

    OpenAI's library reports any lost connection as a timeout, so its own text is left out then.
    """
    below = cause.__cause__
    if status_of(cause) is not None or below is None or not str(below):
        return cause
    server = _server_of(cause)
    is_timeout = any(isinstance(error, TimeoutError) for error in error_chain(cause))
    if any(isinstance(error, OSError) for error in error_chain(cause)) and not is_timeout:
        return ConnectionError(no_connection_message(server, str(below)))
    return ConnectionError(f"{cause} ({below}; {server})")


def _server_of(error: BaseException) -> str:
    """Return the server of the request, without the parts of its URL that may hold a secret."""
    for cause in error_chain(error):
        url: Any = None
        with suppress(RuntimeError):  # httpx raises if the error has no request
            url = getattr(getattr(cause, "request", None), "url", None)
        host, port = getattr(url, "host", None), getattr(url, "port", None)
        if host:
            shown = f"[{host}]" if ":" in host else host
            return f"{url.scheme}://{shown}:{port}" if port else f"{url.scheme}://{shown}"
    return "the provider"
