"""The shape of a tool, whatever the backend, and the one way to run it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holodeck.lib.exceptions import message_of, raised_by
from holodeck.lib.observability import names
from holodeck.lib.observability.spans import Span, set_content, span
from holodeck.lib.threads import is_cancelled
from holodeck.lib.tools.results import readable, shortened
from holodeck.models.outcome import RaisedError

MOST_AT_ONCE = 32
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
class ToolRun:
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
) -> ToolRun:
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


def _recorded(current: Span, outcome: _Returned | _Failed, duration_ms: int) -> ToolRun:
    if isinstance(outcome, _Failed):
        current.fail(outcome.kind, outcome.message)
        error = shortened(f"{outcome.kind}: {outcome.message}".removesuffix(": "))
        return ToolRun(f"Error: {error}", None, error, duration_ms, outcome.refused, outcome.raised)
    value, text = readable(outcome.value)
    set_content(current, names.TOOL_RESULT, text)
    return ToolRun(text, value, None, duration_ms)


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
