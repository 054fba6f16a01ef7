"""The shape of a tool, whatever the backend, and the one way to run it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pydantic_core

from holodeck.lib.exceptions import message_of, raised_by
from holodeck.lib.observability import names
from holodeck.lib.observability.spans import Span, set_content, span
from holodeck.lib.threads import is_cancelled
from holodeck.models.outcome import RaisedError

MAX_CHARACTERS = 1_000_000
MOST_ITEMS = 10_000
"""Of an iterator, which may have no end."""
MAX_DEPTH = 100
"""Of a value: reports and records nest it in more, and what reads them gives up at some 200."""


def readable(value: Any) -> tuple[Any, str]:
    """The value as JSON holds it, and as text; both bounded in size.

    Text stays as it is; everything else is written as JSON, and what JSON cannot hold as its repr.
    """
    plain = to_json_value(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    short = shortened(text)
    return (plain, text) if short == text else (short, short)


def to_json_value(value: Any) -> Any:
    """The value made of what JSON holds; as JSON text where it is nested too deep to be kept."""
    if isinstance(value, Iterator):
        value = list(islice(value, MOST_ITEMS))
    try:
        return _converted(value, "utf8")
    except (ValueError, TypeError, RecursionError):
        return _second_try(value)


def shortened(text: str) -> str:
    """The text, or its beginning and a note on how much there was."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[cut: {len(text):,} characters, {MAX_CHARACTERS:,} shown]"


def _second_try(value: Any) -> Any:
    """For bytes that are no text, text that is no Unicode, and what contains itself."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    try:
        return _converted(value, "base64")
    except (ValueError, TypeError, RecursionError):
        return _described(value)


def _converted(value: Any, bytes_mode: Literal["utf8", "base64"]) -> Any:
    written = pydantic_core.to_json(
        value, bytes_mode=bytes_mode, inf_nan_mode="strings", fallback=_described
    )
    plain = json.loads(written)
    return written.decode() if is_too_deep(plain, written) else plain


def is_too_deep(value: Any, written: str | bytes) -> bool:
    """Whether a value is nested deeper than can be kept; as JSON it was `written` so."""
    text = written if isinstance(written, str) else written.decode()
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False  # spares the walk
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        inner = [below for one in level if isinstance(one, dict) for below in one.values()]
        inner += [below for one in level if isinstance(one, list) for below in one]
        level, depth = inner, depth + 1
    return depth > MAX_DEPTH


def _described(value: Any) -> str:
    try:
        return repr(value).encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's __repr__
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


MAX_CONCURRENT_TOOLS = 32
"""Tools of one agent call under way: each that is not async has a thread of its own."""


@dataclass(frozen=True)
class Tool:
    """What a model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of type object, without references."""
    call: Callable[[dict[str, Any]], Awaitable[Any]]
    """Takes the arguments as the model wrote them; raises whatever goes wrong."""
    timeout: float | None = None
    """Seconds one call may take; None: no limit of its own."""


@dataclass(frozen=True)
class ToolOutcome:
    """How one call of a tool went."""

    result_text: str
    """What the model is told, be it a result or an error."""
    result: Any
    """The result as JSON holds it; None where there is an error."""
    error: str | None
    """Type and message; None where the tool returned."""
    duration_ms: int
    refused: bool = False
    """Whether the arguments did not fit, so that the tool never ran."""
    raised: RaisedError | None = None
    """Where the tool's code raised the error."""


class ToolArgumentError(Exception):
    """The arguments that the model wrote do not fit the tool."""


async def run_tool(
    tool: Tool,
    arguments: dict[str, Any],
    timeout: float | None = None,  # noqa: ASYNC109 - what it limits is not the caller's
    *,
    call_id: str | None = None,
) -> ToolOutcome:
    """How one call went; whatever the tool raises is an error of the run.

    `timeout` goes before the tool's own. Cancellation of the caller passes through.
    """
    labels = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: tool.name,
        names.TOOL_TYPE: "function",
        names.TOOL_CALL_ID: call_id,
    }
    with span(names.execute_tool(tool.name), labels) as current:
        set_content(current, names.TOOL_ARGUMENTS, arguments)
        started = time.perf_counter()
        outcome = await _outcome(tool, arguments, tool.timeout if timeout is None else timeout)
        return _recorded(current, outcome, round((time.perf_counter() - started) * 1000))


@dataclass(frozen=True)
class _Returned:
    value: Any


@dataclass(frozen=True)
class _Failed:
    kind: str
    message: str
    refused: bool = False
    raised: RaisedError | None = None


def _recorded(current: Span, outcome: _Returned | _Failed, duration_ms: int) -> ToolOutcome:
    if isinstance(outcome, _Failed):
        current.fail(outcome.kind, outcome.message)
        error = shortened(f"{outcome.kind}: {outcome.message}".removesuffix(": "))
        return ToolOutcome(
            f"Error: {error}", None, error, duration_ms, outcome.refused, outcome.raised
        )
    value, text = readable(outcome.value)
    set_content(current, names.TOOL_RESULT, text)
    return ToolOutcome(text, value, None, duration_ms)


async def _outcome(
    tool: Tool, arguments: dict[str, Any], limit: float | None
) -> _Returned | _Failed:
    try:
        async with asyncio.timeout(limit) as scope:
            return _Returned(await tool.call(arguments))
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return _Failed("CancelledError", "the tool cancelled itself")
    except TimeoutError as error:
        if scope.expired():
            return _Failed("TimeoutError", f"no result within {limit:g} s")
        return _failed(error)
    except ToolArgumentError as error:
        return _Failed("ArgumentError", str(error), refused=True)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's tool raises
        return _failed(error)


def _failed(error: BaseException) -> _Failed:
    return _Failed(type(error).__name__, message_of(error), raised=raised_by(error))
