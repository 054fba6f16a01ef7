"""Where calls of tools pass on their way from an agent, so that a stub can take them.

The adapters of agent frameworks import this module in environments without holodeck: it needs the
standard library only.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound="Callable[..., Any]")
ToPlain = Callable[[Any], Any]
"""Returns what JSON holds of a result, as a framework has it."""


class Taken(Protocol):
    """A call that a stub has taken."""

    wait_seconds: float
    """How late the result is."""
    runs_tool: bool
    """Whether the tool runs, whose result is changed or late."""

    def result(self, value: Any, to_plain: ToPlain) -> Any:
        """Return the result of the call, from that of the tool if it ran. Raises what it raises."""
        ...

    def note_failure(self, error: Exception) -> None:
        """Note that the tool failed, so that it has no result to change."""
        ...


class TakesCalls(Protocol):
    """The stubs of a test case."""

    def take(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        refusal: str | None = None,
        has_run: bool = False,
    ) -> Taken | None:
        """Return the call as a stub takes it; None if the tool runs as usual.

        `refusal` says why the tool would refuse the arguments, so that no stub must accept them.
        `has_run` says that it ran already, so that only its result can be replaced.
        """
        ...


_current: ContextVar[TakesCalls | None] = ContextVar("holodeck_stubs", default=None)


@contextmanager
def in_place_of_tools(stubs: TakesCalls | None) -> Iterator[None]:
    """Let the stubs take the calls of tools within the block; with None, the tools run."""
    token = _current.set(stubs)
    try:
        yield
    finally:
        _current.reset(token)


def has_stubs() -> bool:
    """Whether stubs may take the calls of tools here."""
    return _current.get() is not None


def current_stubs() -> TakesCalls | None:
    """Return the stubs of the running case; None if it has none."""
    return _current.get()


async def call_tool(
    tool: str,
    arguments: Mapping[str, Any],
    run: Callable[[], Awaitable[Any]],
    to_plain: ToPlain = lambda value: value,
    refusal: str | None = None,
) -> Any:
    """Return what the tool returns, or what a stub of the case makes of the call.

    `run` calls the tool, which would refuse the arguments for the reason `refusal`. The result of a
    tool that a stub does not change stays as it is.
    """
    taken = take_call(tool, arguments, refusal)
    return await (run() if taken is None else complete_call(taken, run, to_plain))


async def complete_call(taken: Taken, run: Callable[[], Awaitable[Any]], to_plain: ToPlain) -> Any:
    """Return what a stub makes of a call that it has taken. Raises what it raises."""
    await asyncio.sleep(taken.wait_seconds)
    with _noting_failure(taken):
        value = await run() if taken.runs_tool else None
    return taken.result(value, to_plain)


def _call_in_thread(tool: str, arguments: Mapping[str, Any], run: Callable[[], Any]) -> Any:
    """Do what `call_tool` does, for a function that is not async."""
    taken = take_call(tool, arguments)
    if taken is None:
        return run()
    time.sleep(taken.wait_seconds)
    with _noting_failure(taken):
        value = run() if taken.runs_tool else None
    return taken.result(value, lambda value: value)


@contextmanager
def _noting_failure(taken: Taken) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        taken.note_failure(error)
        raise


def take_call(tool: str, arguments: Mapping[str, Any], refusal: str | None = None) -> Taken | None:
    """Return the call as a stub takes it; None if the tool runs as usual."""
    stubs = _current.get()
    return None if stubs is None else stubs.take(tool, arguments, refusal=refusal)


def missing_argument(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return `x is missing` for arguments without one that the JSON Schema of a tool requires."""
    missing = (name for name in schema.get("required") or () if name not in arguments)
    return next((f"{name} is missing" for name in missing), None)


def stubbed(function: F) -> F:
    """Return the function as a tool that stubs of a test case can take the place of.

    Its name is the name of the tool. Outside of test cases, it is called as it is.
    """
    name, signature = function.__name__, inspect.signature(function)

    def arguments_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
        given = signature.bind(*args, **kwargs).arguments
        return {name: value for name, value in given.items() if name != "self"}

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_later(*args: Any, **kwargs: Any) -> Any:
            run = partial(function, *args, **kwargs)
            return await call_tool(name, arguments_of(*args, **kwargs), run)

        return call_later  # type: ignore[return-value]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = partial(function, *args, **kwargs)
        return _call_in_thread(name, arguments_of(*args, **kwargs), run)

    return call  # type: ignore[return-value]
