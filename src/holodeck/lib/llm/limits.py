"""Time limits and retries of calls to models and agents, and options of requests to one model."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError, ConfigError
from holodeck.lib.llm.limiter import GROWTH_INTERVAL_S, Limiters, time_limit
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.support.text import describe
from holodeck.models.config import ExecutionConfig, Setting
from holodeck.models.results.outcome import Attempt

T = TypeVar("T")


@dataclass(frozen=True)
class CallLimits:
    """Limits of a call."""

    timeout: float | None
    """Seconds for a call of the agent, or all attempts of another request; None: no limit."""
    attempt_timeout: float | None
    """Seconds for an attempt; None: no limit of its own."""
    retries: int
    retry_delay: float
    """Longest wait before the first retry, in seconds."""
    answer_bytes: int
    """Size of a response; what is larger is not read to its end."""


def call_limits(execution: ExecutionConfig | None) -> CallLimits:
    """Return the limits from the settings, with defaults for those that are not set."""
    settings = execution or ExecutionConfig()
    return CallLimits(
        timeout=_setting(settings, "llm_timeout"),
        attempt_timeout=_setting(settings, "attempt_timeout"),
        retries=_setting(settings, "max_retries"),
        retry_delay=_setting(settings, "retry_delay"),
        answer_bytes=round(_setting(settings, "max_answer_mb") * 1_000_000),
    )


def _setting(execution: ExecutionConfig, field: str) -> Any:
    value = getattr(execution, field)
    if value is not None:
        return value
    metadata = ExecutionConfig.model_fields[field].metadata
    return next(item.default for item in metadata if isinstance(item, Setting))


_shared_limiters: Limiters | None = None


def use_limiters(shared: Limiters) -> None:
    """From now on, let `build_limiters` return these, as in a worker process."""
    global _shared_limiters  # noqa: PLW0603 - a process is a worker from its start to its end
    _shared_limiters = shared


def build_limiters(execution: ExecutionConfig | None) -> Limiters:
    """Return limiters with up to `--parallel` slots; `auto` leaves the number to the limiters."""
    if _shared_limiters is not None:
        return _shared_limiters
    parallel = execution.parallel_test_cases if execution else None
    if isinstance(parallel, int):
        return Limiters(parallel, growth_interval_s=GROWTH_INTERVAL_S)
    return Limiters()


_case_limit: ContextVar[float | None] = ContextVar("holodeck_case_timeout", default=None)


@contextmanager
def override_call_limit(seconds: float | None) -> Iterator[None]:
    """Limit each call of the agent in the block, whatever its backend's limit is.

    None leaves the limit to the backend.
    """
    token = _case_limit.set(seconds)
    try:
        yield
    finally:
        _case_limit.reset(token)


def current_call_limit(limit_s: float | None) -> float | None:
    """Return the limit of a call: that of the test case, else the given one."""
    case_limit = _case_limit.get()
    return limit_s if case_limit is None else case_limit


async def call_with_limit(
    call: Callable[[], Awaitable[T]], limit_s: float | None, attempts: Sequence[Attempt] = ()
) -> T:
    """Return what `call` returns within `limit_s` seconds (None: no limit).

    A limit of the test case wins over `limit_s`. Raises BackendTimeoutError when time is up, with
    the `attempts` made until then. A BackendError of the call is raised unchanged, any other error
    as BackendSessionError.
    """
    limit_s = current_call_limit(limit_s)
    try:
        async with time_limit(limit_s) as scope:
            return await call()
    except BackendError:
        raise
    except TimeoutError as error:
        if scope.expired():
            raise BackendTimeoutError(f"no answer within {limit_s:g} s", attempts) from error
        raise BackendSessionError(describe(error), attempts) from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise BackendSessionError("the agent cancelled itself", attempts) from error
    except (Exception, SystemExit) as error:
        raise BackendSessionError(describe(error), attempts) from error


async def stream_with_limit(
    pieces: AsyncIterator[str], limit_s: float | None
) -> AsyncIterator[str]:
    """Yield the pieces of a response, each within `limit_s` seconds. Raises BackendError."""
    pieces = aiter(pieces)
    try:
        while True:
            piece = await call_with_limit(partial(anext, pieces, None), limit_s)
            if piece is None:
                return
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


@dataclass(frozen=True)
class RequestOptions:
    """How requests to a model differ from the usual ones."""

    timeout: float | None = None
    """Seconds for an attempt; None for the usual limit."""
    retries: int | None = None
    """Retries after the first attempt; None for the usual number."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers; one of ours with the same name is left out."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the request's body, in the names of OpenAI."""
    left_out: frozenset[str] = frozenset()
    """Keys of the body that are never sent."""
    client: Any = None
    """The user's own client of OpenAI's library, which sends the requests."""
    library: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of LiteLLM, for a model that it calls."""

    def limits(self, usual: CallLimits) -> CallLimits:
        """Return the limits of a call; with a limit of its own, each attempt may take that long."""
        return replace(
            usual,
            timeout=usual.timeout if self.timeout is None else None,
            attempt_timeout=usual.attempt_timeout if self.timeout is None else self.timeout,
            retries=usual.retries if self.retries is None else self.retries,
        )

    def add_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers with the further ones. Raises ConfigError."""
        for name, value in self.headers.items():
            if not (_is_header_text(name) and name and _is_header_text(value)):
                raise ConfigError("headers", f"{name!r} is no header with one line of ASCII text")
        names = {name.lower() for name in self.headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in names}
        return {**kept, **self.headers}

    def change_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with the further keys, and without those that are left out."""
        changed = {**body, **self.body}
        return {key: value for key, value in changed.items() if key not in self.left_out}


def _is_header_text(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable()


NO_OPTIONS = RequestOptions()
