"""Calls of tools, and the tools of sources, as recordings hold them."""

import base64
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from holodeck.errors import BackendInitError
from holodeck.lib.support.text import message_of
from holodeck.lib.tools.base import (
    SideEffectsError,
    Tool,
    ToolArgumentError,
    ToolReply,
    value_and_text,
)
from holodeck.models.cases.messages import Image
from holodeck.models.results.outcome import ModelCost
from holodeck.models.tools.config import ToolConfig

if TYPE_CHECKING:
    from holodeck.lib.recordings.recording import Recording

Json = Any
CALL, TOOLS = "tool", "tools"
"""The participants: calls of tools, and what sources say that their tools are."""
_recording: ContextVar["Recording | None"] = ContextVar("holodeck_tool_recording", default=None)


@contextmanager
def recording_tools(recording: "Recording | None") -> Iterator[None]:
    """Record and replay calls of tools within the block; with None, they only run."""
    token = _recording.set(recording)
    try:
        yield
    finally:
        _recording.reset(token)


class NotRecordedError(Exception):
    """A call that is not recorded, so that the tool did not run."""


def recorded(tool: Tool) -> Tool:
    """Return the tool, whose calls are recorded and replayed within `recording_tools`."""
    return replace(tool, call=partial(_call, tool))


async def _call(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Return what a tool returns, or what is recorded of the call. Raises what it raises."""
    recording = _recording.get()
    if recording is None:
        return await tool.call(arguments)
    question = recording.ask(CALL, {"path": tool.full_name, "body": arguments})
    if question.entry is not None:
        return _unpack(question.entry.response)
    if question.miss is not None:
        raise NotRecordedError(question.miss)
    try:
        returned = await tool.call(arguments)
    except BaseException as error:
        recording.add(question, _pack_error(tool, error))
        raise
    packed = _pack(returned)
    recording.add(question, packed)
    return _unpack(packed)  # an iterator is used up by now


def _pack(returned: Any) -> dict[str, Json]:
    if not isinstance(returned, ToolReply):
        value, text = value_and_text(returned)
        return {"text": text} if value == text else {"text": text, "value": value}
    cost = returned.model_cost
    fields = {
        "text": returned.text,
        "value": None if returned.value is None else value_and_text(returned.value)[0],
        "passages": None if returned.passages is None else [*returned.passages],
        "images": [
            {"base64": base64.b64encode(image.data).decode(), "type": image.media_type}
            for image in returned.images
        ],
        "is_error": returned.is_error,
        "model_cost": None if cost is None else cost.model_dump(mode="json"),
    }
    return {name: value for name, value in fields.items() if value not in (None, [], False)}


def _pack_error(tool: Tool, error: BaseException) -> dict[str, Json]:
    match error:
        case ToolArgumentError():
            return {"refused": str(error)}
        case SideEffectsError():
            return {"prevented": str(error)}
        case Exception() | SystemExit():
            return {"raised": type(error).__name__, "message": message_of(error)}
        case _:  # it was cancelled, mostly because it took too long
            limit = "the time of the turn" if tool.timeout is None else f"{tool.timeout:g} s"
            return {"raised": "TimeoutError", "message": f"no result within {limit}"}


def _unpack(recorded: Mapping[str, Json]) -> ToolReply:
    match recorded:
        case {"refused": message}:
            raise ToolArgumentError(message)
        case {"prevented": message}:
            raise SideEffectsError(message)
        case {"raised": name, "message": message}:
            raise type(name, (Exception,), {})(message)
    passages, cost = recorded.get("passages"), recorded.get("model_cost")
    return ToolReply(
        recorded["text"],
        recorded.get("value"),
        None if passages is None else tuple(passages),
        tuple(
            Image(base64.b64decode(image["base64"]), image["type"])
            for image in recorded.get("images", ())
        ),
        recorded.get("is_error", False),
        None if cost is None else ModelCost.model_validate(cost),
    )


async def open_recorded(
    config: ToolConfig, open_source: Callable[[], Awaitable[Sequence[Tool]]]
) -> Sequence[Tool]:
    """Return the tools of a source; in a replay, those that are recorded, and nothing is opened.

    Raises BackendInitError if they are not recorded, and what `open_source` raises.
    """
    recording = _recording.get()
    if recording is None:
        return await open_source()
    request = {"path": config.name, "body": config.model_dump(mode="json", exclude_defaults=True)}
    if not recording.takes_new:
        question = recording.ask(TOOLS, request)
        if question.entry is None:
            raise BackendInitError(question.miss or "")
        return [Tool(call=_not_opened, **fields) for fields in question.entry.response["tools"]]
    opened = await open_source()
    recording.note(TOOLS, request, {"tools": [_fields_of(tool) for tool in opened]})
    return opened


def _fields_of(tool: Tool) -> dict[str, Json]:
    names = ("name", "description", "parameters", "timeout", "source", "server")
    return {name: getattr(tool, name) for name in names}


async def _not_opened(_: dict[str, Any]) -> NoReturn:
    raise NotRecordedError("the source of the tool is not opened in a replay")
