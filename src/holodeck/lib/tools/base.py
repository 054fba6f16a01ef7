"""Tools, and running them with results that models can read and reports can hold."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pydantic_core

from holodeck.lib.exceptions import message_of, raised_error
from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import set_content, span
from holodeck.lib.threads import is_cancelled
from holodeck.models.outcome import RaisedError

MAX_CONCURRENT_TOOLS = 32
"""Tools of one agent call in flight; each that is not async has a thread of its own."""
MAX_CHARACTERS = 1_000_000
MAX_ITEMS = 10_000
"""Of an iterator, which may be endless."""
MAX_DEPTH = 100
"""Of a value: reports and records add levels, and readers of JSON fail at about 200."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of type object, without references."""
    call: Callable[[dict[str, Any]], Awaitable[Any]]
    """Takes the arguments as the model wrote them, and may raise anything."""
    timeout: float | None = None
    """Seconds that one call may take; None for no limit."""


@dataclass(frozen=True)
class ToolOutcome:
    """What one call of a tool returned or raised."""

    result_text: str
    """The result or the error, for the model."""
    result: Any
    """The result as JSON holds it; None if there is an error."""
    error: str | None
    """Type and message; None if the tool returned."""
    duration_ms: int
    refused: bool = False
    """Whether the arguments were invalid, so that the tool did not run."""
    raised: RaisedError | None = None
    """Where the tool's code raised the error."""


class ToolArgumentError(Exception):
    """The arguments that the model wrote do not fit the tool."""


@dataclass(frozen=True)
class _Failure:
    kind: str
    message: str
    refused: bool = False
    raised: RaisedError | None = None


async def run_tool(
    tool: Tool,
    arguments: dict[str, Any],
    timeout: float | None = None,  # noqa: ASYNC109 - it limits the tool, not the caller
    *,
    call_id: str | None = None,
) -> ToolOutcome:
    """Call a tool; an exception that it raises becomes the error of the outcome.

    `timeout` overrides the tool's own. A cancellation of the caller is raised.
    """
    attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: tool.name,
        names.TOOL_TYPE: "function",
        names.TOOL_CALL_ID: call_id,
    }
    with span(names.execute_tool(tool.name), attributes) as current:
        set_content(current, names.TOOL_ARGUMENTS, arguments)
        started = time.perf_counter()
        returned = await _call(tool, arguments, tool.timeout if timeout is None else timeout)
        duration_ms = round((time.perf_counter() - started) * 1000)
        if isinstance(returned, _Failure):
            current.fail(returned.kind, returned.message)
            error = _shorten(f"{returned.kind}: {returned.message}".removesuffix(": "))
            return ToolOutcome(
                f"Error: {error}", None, error, duration_ms, returned.refused, returned.raised
            )
        value, text = _value_and_text(returned)
        set_content(current, names.TOOL_RESULT, text)
        return ToolOutcome(text, value, None, duration_ms)


async def _call(tool: Tool, arguments: dict[str, Any], limit: float | None) -> Any:
    """Return what the tool returns, or a failure."""
    try:
        async with asyncio.timeout(limit) as scope:
            return await tool.call(arguments)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return _Failure("CancelledError", "the tool cancelled itself")
    except TimeoutError as error:
        if scope.expired():
            return _Failure("TimeoutError", f"no result within {limit:g} s")
        return _failure(error)
    except ToolArgumentError as error:
        return _Failure("ArgumentError", str(error), refused=True)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's tool raises
        return _failure(error)


def _failure(error: BaseException) -> _Failure:
    return _Failure(type(error).__name__, message_of(error), raised=raised_error(error))


def _value_and_text(value: Any) -> tuple[Any, str]:
    """Return a value as JSON holds it, and as text; both limited in size."""
    plain = to_json_value(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    short = _shorten(text)
    return (plain, text) if short == text else (short, short)


def _shorten(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[cut: {len(text):,} characters, {MAX_CHARACTERS:,} shown]"


def to_json_value(value: Any) -> Any:
    """Convert a value to what JSON holds; to JSON text if it is nested too deep for reports.

    What JSON cannot hold becomes its repr.
    """
    if isinstance(value, Iterator):
        value = list(islice(value, MAX_ITEMS))
    # The second try is for bytes that are not UTF-8.
    modes: tuple[Literal["utf8", "base64"], ...] = ("utf8", "base64")
    for bytes_mode in modes:
        try:
            return _convert(value, bytes_mode)
        except (ValueError, TypeError, RecursionError):
            if isinstance(value, str):  # half of a surrogate pair
                return value.encode(errors="replace").decode()
    return _repr(value)  # for example, it contains itself


def _convert(value: Any, bytes_mode: Literal["utf8", "base64"]) -> Any:
    written = pydantic_core.to_json(
        value, bytes_mode=bytes_mode, inf_nan_mode="strings", fallback=_repr
    )
    plain = json.loads(written)
    return written.decode() if is_too_deep(plain, written) else plain


def is_too_deep(value: Any, written: str | bytes) -> bool:
    """Whether a value is nested deeper than MAX_DEPTH; `written` is its JSON."""
    text = written if isinstance(written, str) else written.decode()
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False  # spares the walk
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        below = [inner for one in level if isinstance(one, dict) for inner in one.values()]
        below += [inner for one in level if isinstance(one, list) for inner in one]
        level, depth = below, depth + 1
    return depth > MAX_DEPTH


def _repr(value: Any) -> str:
    try:
        return repr(value).encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's __repr__
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
