"""Runs a Python agent in an environment of its own, for `backend: {type: process, target: …}`.

The program of a process, with the arguments FOLDERS module:object SCOPE TOOLS. It speaks the
protocol of docs/reference/process-protocol.md. The interpreter is the user's, Python 3.9 or newer,
and need not have holodeck installed: this module imports what the standard library suffices for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import json
import os
import sys
import threading
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.lib.backends.python.host import (
    ASYNC_CONCURRENCY,
    AgentConversation,
    Host,
    HostedAgent,
    Messages,
    call_factory,
    makes_agents,
    open_agent,
    recognize,
)
from holodeck.lib.processes.channel import LineReader, Parent
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.lib.support.signatures import ANSWER_KEYS, RESULT_KEYS, UnusableAgent
from holodeck.lib.support.source_files import is_users_file
from holodeck.lib.support.text import instance_of

PROTOCOL = 1
EXIT_S = 5.0
"""How long agents may take to close once stdin has ended."""
BACKEND_METHODS = ("initialize", "invoke_once", "create_session", "teardown")
"""What makes an object an AgentBackend."""
_MAX_FRAMES = 30

Json = Any


class AgentError(Exception):
    """What an agent does wrong, with a message for its author."""


class FailedTurn(Exception):
    """A turn that failed, because of its cause, with what is known of it."""

    def __init__(self, unfinished: Json) -> None:
        super().__init__("the turn failed")
        self.unfinished = unfinished


async def load_host(target: str, scope: str, tools: str) -> Host:
    """Return the host of what the target names."""
    value = load(target)
    is_made = makes_agents(value)
    run_no_agents = tools == "tools_run_no_agents"

    recognize = partial(recognized, tools_run_no_agents=run_no_agents)

    async def make() -> HostedAgent:
        return await open_agent(await call_factory(value), recognize)

    agent = await (make() if is_made else open_agent(value, recognize))
    return Host(agent, make if is_made and scope == "case" else None)


def recognized(agent: Any, tools_run_no_agents: bool) -> HostedAgent:
    """Return the agent as what it is. Raises AgentError and UnusableAgent."""
    if all(hasattr(agent, name) for name in BACKEND_METHODS):
        raise AgentError(
            "an AgentBackend runs inside of holodeck; write 'backend: module:object' without"
            " 'type: process'"
        )
    return recognize(agent, read_answer, tools_run_no_agents=tools_run_no_agents)


def facts(host: Host) -> dict[str, Json]:
    """Return what the agent can do, as the answer to `initialize`."""
    agent = host.agent
    return {
        "protocol": PROTOCOL,
        "concurrency": ASYNC_CONCURRENCY if host.shares_nothing else 1,
        "history": agent.takes_history,
        "context": agent.takes_context,
        "streaming": agent.streams,
        "cancel": agent.can_cancel,
        "trace": True,
        "opens_with_send": True,
        "closes": agent.streams or host.factory is not None,
        "tool_errors": agent.reads_tool_errors,
        "approvals": agent.answers_approvals,
        "tools": agent.tools,
    }


def load(target: str) -> Any:
    """Return what `module:object` names."""
    module, _, names = target.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split("."):
        if not hasattr(value, name):
            raise AgentError(f"{target!r}: there is no {name!r} in it")
        value = getattr(value, name)
    return value


def continue_trace(headers: dict[str, str]) -> None:
    """Continue a trace in the running task, if the agent's environment has OpenTelemetry."""
    with suppress(ImportError):
        from opentelemetry import context, propagate  # noqa: PLC0415

        context.attach(propagate.extract(headers))


def read_answer(value: Any) -> tuple[Json, str]:
    """Return an answer as `plain_answer` does, and its text."""
    answer = plain_answer(value)
    return answer, text_of(answer)


def plain_answer(value: Any) -> Json:
    """Return what an agent returned as text, list, number, or mapping; the rest is holodeck's."""
    if getattr(value, "is_error", False) is True:
        raise AgentError(str(getattr(value, "error_reason", None) or "the agent reports an error"))
    if value is None or isinstance(value, (str, int, float, list, tuple)):
        return value
    if isinstance(value, Mapping):
        require_data(value)
        return dict(value)
    result = {key: getattr(value, key) for key in RESULT_KEYS if hasattr(value, key)}
    if not isinstance(result.get("model", ""), str):
        del result["model"]  # such as the object that calls the model
    if result.keys().isdisjoint(ANSWER_KEYS):
        raise AgentError(
            f"the agent returned {instance_of(value)}; return the answer as text, or a mapping"
            " with 'response', 'output', 'text'"
        )
    require_data(result)
    return result


def require_data(result: Mapping[str, Any]) -> None:
    """Raise AgentError for a response that is neither text nor data, such as a coroutine."""
    response = next((result[key] for key in ANSWER_KEYS if key in result), None)
    try:
        json.dumps(response, default=to_known)
        is_data = not isinstance(response, bytes)
    except (TypeError, ValueError, RecursionError):
        is_data = False
    if not is_data:
        raise AgentError(
            f"the agent returned a mapping whose answer is {instance_of(response)}"
            f" ({repr(response)[:100]}); return the answer as text, or as data that JSON holds"
        )


def text_of(answer: Json) -> str:
    """Return the response in what an agent returned."""
    if isinstance(answer, dict):
        answer = next((answer[key] for key in ANSWER_KEYS if key in answer), "")
    return answer if isinstance(answer, str) else to_json(answer)


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=to_plain)


def to_plain(value: Any) -> Json:
    """Return a value that JSON does not know as one that it does, if need be as its repr."""
    try:
        return to_known(value)
    except TypeError:
        return repr(value)


def to_known(value: Any) -> Json:
    """Return a value that JSON does not know as one that it does. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind):
            return convert(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(instance_of(value))


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Json]], ...] = (
    (enum.Enum, lambda member: member.value),
    (Mapping, dict),
    ((set, frozenset), list),
    ((dt.date, dt.time), lambda date: date.isoformat()),
    (bytes, lambda data: data.decode(errors="replace")),
    ((decimal.Decimal, uuid.UUID, Path), str),
)


def describe_error(error: BaseException) -> dict[str, Json]:
    """Return an error as the protocol has it, with the line of the user's code."""
    unfinished = error.unfinished if isinstance(error, FailedTurn) else None
    if isinstance(error, FailedTurn) and error.__cause__ is not None:
        error = error.__cause__
    cause = error.__cause__
    if isinstance(error, RuntimeError) and not isinstance(cause, (Exception, type(None))):
        error = cause  # such as `sys.exit()` of a function in a thread
    message = str(error)
    is_ours = isinstance(error, (AgentError, UnusableAgent))
    if is_ours or type(error).__name__ == "FrameworkError":
        return {"code": -32000, "message": message, "data": {"seen": unfinished}}
    frames = traceback.extract_tb(error.__traceback__)
    rows = [
        {"file": frame.filename, "line": frame.lineno, "function": frame.name, "code": frame.line}
        for frame in frames
        if is_users_file(frame.filename)
    ][-_MAX_FRAMES:]
    data: dict[str, Json] = {"type": type(error).__name__, "traceback": rows}
    if rows:
        data.update(rows[-1])
    data["seen"] = unfinished
    return {"code": -32000, "message": message, "data": data}


class Worker:
    """Answers the requests that come in through stdin."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Host]],
        parent: Parent[bytes],
    ) -> None:
        self._load = load
        self._host: Host | None = None
        self._parent = parent
        self._max_bytes = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._conversations: dict[str, AgentConversation] = {}

    async def serve(self) -> None:
        """Answer requests until stdin ends, and close the agent."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def begin(lines: list[bytes]) -> None:  # those that arrive together wake the loop once
            loop.call_soon_threadsafe(self._begin, [json.loads(line) for line in lines])

        def end() -> None:  # the process, even if the event loop hangs
            timer = threading.Timer(EXIT_S, os._exit, (1,))
            timer.daemon = True
            timer.start()
            loop.call_soon_threadsafe(ended.set)

        self._parent.listen(begin, end)
        await ended.wait()
        for task in [*self._tasks.values()]:
            task.cancel()
        for conversation in [*self._conversations.values()]:
            await conversation.close()
        if self._host is not None:
            await self._host.close()

    def _begin(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            if request["method"] != "cancel":
                self._tasks[request["id"]] = asyncio.ensure_future(self._answer(request))
                continue
            number = request["params"]["id"]
            if number in self._tasks:
                self._cancelled.add(number)
                self._tasks[number].cancel()

    async def _answer(self, request: dict[str, Any]) -> None:
        number, params = request["id"], request["params"]
        try:
            result = await self._call(request["method"], number, params)
            self._write({"id": number, "result": result})
        except asyncio.CancelledError:
            why = "cancelled" if number in self._cancelled else "the agent cancelled itself"
            self._write({"id": number, "error": {"code": -32000, "message": why}})
        except BaseException as error:  # noqa: BLE001 - whatever a user's agent raises
            self._write({"id": number, "error": describe_error(error)})
        finally:
            del self._tasks[number]
            self._cancelled.discard(number)

    async def _call(self, method: str, number: int, params: dict[str, Any]) -> Json:
        if method == "initialize":
            return await self._initialize(**params)
        if method == "open":
            return await self._open(**params)
        if method == "send":
            if "approvals" in params:
                params["message"] = ApprovalDecisions(params.pop("approvals"))
            return await self._send(number, **params)
        if method == "close":
            return await self._close(**params)
        raise AgentError(f"there is no method {method!r}")

    async def _initialize(self, max_answer_bytes: int, **_: Json) -> Json:
        self._max_bytes = max_answer_bytes
        self._host = await self._load()
        return facts(self._host)

    async def _open(
        self, conversation: str, messages: Messages, context: dict[str, Any] | None = None
    ) -> Json:
        if self._host is None:
            raise AgentError("'initialize' comes first")
        self._conversations[conversation] = await self._host.open(messages, context)
        return {}

    async def _send(
        self,
        number: int,
        conversation: str,
        message: str,
        messages: Messages | None = None,
        stream: bool = False,
        open: dict[str, Any] | None = None,  # noqa: A002 - the protocol's name
        trace: dict[str, str] | None = None,
    ) -> Json:
        def on_piece(text: str) -> None:
            self._write({"method": "piece", "params": {"id": number, "text": text}})

        if trace is not None:
            continue_trace(trace)
        if open is not None and conversation not in self._conversations:
            await self._open(conversation, **open)
        taking_part = self._conversations[conversation]
        if messages:
            taking_part.remember(messages)
        try:
            return await taking_part.send(message, on_piece if stream else None)
        except Exception as error:
            raise FailedTurn(taking_part.unfinished_answer()) from error

    async def _close(self, conversation: str) -> Json:
        taking_part = self._conversations.pop(conversation, None)
        if taking_part is not None:
            await taking_part.close()
        return {}

    def _write(self, message: dict[str, Json]) -> None:
        text = to_json({"jsonrpc": "2.0", **message})
        try:
            line = text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            line = json.dumps(json.loads(text)).encode()
        if "result" in message and len(line) > self._max_bytes > 0:
            raise AgentError(
                f"the answer is too large: more than {self._max_bytes / 1e6:g} MB"
                " (execution.max_answer_mb)"
            )
        self._parent.write(line + b"\n")


def main() -> None:
    roots, target, scope, tools = sys.argv[1:]
    parent = Parent(LineReader())
    first, *others = roots.split(os.pathsep)
    sys.path[:] = [first, *(entry for entry in sys.path if entry), *others]
    sys.argv[1:] = []
    asyncio.run(Worker(partial(load_host, target, scope, tools), parent).serve())
