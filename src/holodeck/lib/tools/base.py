"""Tools, and running them with results that models can read and reports can hold."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pydantic_core

from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import set_content, span
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.support.stubs import call_tool, has_stubs, missing_argument
from holodeck.lib.support.text import message_of, to_text
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.cases.messages import Image
from holodeck.models.results.outcome import ModelCost, RaisedError
from holodeck.models.token_usage import UsageMeter

IMAGES_OF_TOOLS = "The images that the tools returned:"
"""The text before the images in a message of the user; those of tools hold text only."""
MAX_CONCURRENT_TOOLS = 32
"""Tools of an agent call in flight; each that is not async has a thread of its own."""
MAX_CHARACTERS = 1_000_000
MAX_ITEMS = 10_000
"""Of an iterator, which may be endless."""
_DATASTORES = ("vectorstore", "hierarchical_document")
MAX_DEPTH = 100
"""Of a value: reports and records add levels, and readers of JSON fail at about 200."""


@dataclass(frozen=True)
class Tool:
    """What a model may call: a function, a tool of a server, a search, a prompt."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of type object, without references."""
    call: Callable[[dict[str, Any]], Awaitable[Any]]
    """Takes the arguments as the model wrote them, returns a value or a ToolReply, and may raise
    anything."""
    timeout: float | None = None
    """Seconds that a call may take; None for no limit."""
    source: str = "function"
    """The `type` of its entry in the agent.yaml."""
    entry: str = ""
    """The name of its entry in the agent.yaml."""
    is_deferred: bool = True
    """Whether it is offered only to messages that it fits, where tools are filtered."""
    server: str | None = None
    """Name of the MCP server whose tool it is; None for other tools."""
    check: Callable[[dict[str, Any]], object] | None = None
    """Raises ToolArgumentError for arguments that `call` refuses; None if `parameters` say all."""

    @property
    def full_name(self) -> str:
        """The name with that of the server before it, if the tool belongs to one."""
        return self.name if self.server is None else f"{self.server}-{self.name}"


@dataclass(frozen=True)
class ToolReply:
    """What a tool returns whose result is more than one value."""

    text: str
    """For the model."""
    value: Any = None
    """For reports; the text if None."""
    passages: tuple[str, ...] | None = None
    """The retrieved passages, one per chunk; None for a tool that retrieves none."""
    images: tuple[Image, ...] = ()
    """For models that take images."""
    is_error: bool = False
    """Whether the tool says that it failed."""
    model_cost: ModelCost | None = None
    """What the model cost that the tool called; None if it called none."""


@dataclass(frozen=True)
class ToolOutcome:
    """What a call of a tool returned or raised."""

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
    passages: tuple[str, ...] | None = None
    """The retrieved passages; None for a tool that retrieves none."""
    images: tuple[Image, ...] = ()
    model_cost: ModelCost | None = None
    """What the model cost that the tool called; None if it called none."""
    server: str | None = None
    """The `server` of the tool."""
    prevented: bool = False
    """Whether the tool did not run because side effects are not allowed."""

    def meter(self, meter: UsageMeter) -> None:
        """Add the tokens of the model that the tool called."""
        cost = self.model_cost
        if cost is None:
            return
        if cost.calls > cost.failed:
            meter.add(cost.tokens, cost.model or "", requests=cost.calls, failed=cost.failed)
        else:
            meter.add_failed(cost.failed)


class ToolArgumentError(Exception):
    """The arguments that the model wrote do not fit the tool."""


class SideEffectsError(Exception):
    """The tool has side effects, which are not allowed, so that it did not run."""


class _FailedReply(Exception):
    """The tool says that it failed; a stub has nothing to change then."""

    def __init__(self, reply: ToolReply) -> None:
        self.reply = reply
        super().__init__(reply.text)


@dataclass(frozen=True)
class _Failure:
    kind: str
    message: str
    refused: bool = False
    raised: RaisedError | None = None
    prevented: bool = False


async def run_tool(
    tool: Tool, arguments: dict[str, Any], *, call_id: str | None = None
) -> ToolOutcome:
    """Call a tool; an exception that it raises becomes the error of the outcome.

    A cancellation of the caller is raised.
    """
    attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: tool.name,
        names.TOOL_TYPE: "datastore" if tool.source in _DATASTORES else "function",
        names.TOOL_CALL_ID: call_id,
    }
    with span(names.execute_tool(tool.name), attributes) as current:
        set_content(current, names.TOOL_ARGUMENTS, arguments)
        started = time.perf_counter()
        returned = await _call(tool, arguments)
        duration_ms = round((time.perf_counter() - started) * 1000)
        if isinstance(returned, _Failure):
            current.fail(returned.kind, returned.message)
            error = _shorten(f"{returned.kind}: {returned.message}".removesuffix(": "))
            return ToolOutcome(
                f"Error: {error}",
                None,
                error,
                duration_ms,
                returned.refused,
                returned.raised,
                server=tool.server,
                prevented=returned.prevented,
            )
        if isinstance(returned, ToolReply):
            reply, text = returned, _shorten(returned.text)
            value = text if reply.value is None else value_and_text(reply.value)[0]
        else:
            value, text = value_and_text(returned)
            reply = ToolReply(text)
        if reply.is_error:
            current.fail("ToolError", reply.text)
        set_content(current, names.TOOL_RESULT, text)
        return ToolOutcome(
            text,
            value,
            text or "the tool failed" if reply.is_error else None,
            duration_ms,
            passages=reply.passages,
            images=reply.images,
            model_cost=reply.model_cost,
            server=tool.server,
        )


async def _call(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Return what the tool returns, or a failure."""
    try:
        async with asyncio.timeout(tool.timeout) as scope:
            return await _reply(tool, arguments)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return _Failure("CancelledError", "the tool cancelled itself")
    except TimeoutError as error:
        if scope.expired():
            return _Failure("TimeoutError", f"no result within {tool.timeout:g} s")
        return _failure(error)
    except (ToolArgumentError, SideEffectsError) as error:
        is_prevented = isinstance(error, SideEffectsError)
        kind = "SideEffectsError" if is_prevented else "ArgumentError"
        return _Failure(kind, str(error), refused=not is_prevented, prevented=is_prevented)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's tool raises
        return _failure(error)


async def _reply(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Return what the tool returns, or what a stub makes of the call. Raises what it raises."""

    async def run() -> Any:
        returned = await tool.call(arguments)
        if isinstance(returned, ToolReply) and returned.is_error:
            raise _FailedReply(returned)
        return returned

    try:
        refusal = _refusal(tool, arguments) if has_stubs() else None
        return await call_tool(tool.name, arguments, run, _value_of_reply, refusal)
    except _FailedReply as failed:
        return failed.reply


def _refusal(tool: Tool, arguments: dict[str, Any]) -> str | None:
    """Return why the tool refuses these arguments, as far as that is known without a call."""
    try:
        if tool.check is not None:
            tool.check(arguments)
    except ToolArgumentError as error:
        return str(error)
    return missing_argument(tool.parameters, arguments)


def _value_of_reply(returned: Any) -> Any:
    if not isinstance(returned, ToolReply):
        return returned
    return returned.text if returned.value is None else returned.value


def _failure(error: BaseException) -> _Failure:
    return _Failure(type(error).__name__, message_of(error), raised=raised_error(error))


def value_and_text(value: Any) -> tuple[Any, str]:
    """Return a value as JSON holds it, and as text; both limited in size."""
    plain = to_json_value(value)
    text = to_text(plain)
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


def require_json(value: Any) -> None:
    """Raise ValueError for what is neither text nor data that JSON holds, such as a coroutine."""
    if isinstance(value, bytes | bytearray | Iterator):
        raise ValueError(f"a {type(value).__name__}")  # noqa: TRY004 - as what is inside of it
    pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="strings")


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
        below = [inner for value in level if isinstance(value, dict) for inner in value.values()]
        below += [inner for value in level if isinstance(value, list) for inner in value]
        level, depth = below, depth + 1
    return depth > MAX_DEPTH


def _repr(value: Any) -> str:
    try:
        return repr(value).encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's __repr__
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
