"""Run a Python agent in an environment of its own, for `backend: {type: process, target: …}`.

A program of its own: `python python_worker.py FOLDER module:object SCOPE TOOLS`. It speaks the
protocol of docs/reference/process-protocol.md. The interpreter is the user's, Python 3.9 or newer,
and need not have holodeck installed: the program imports the standard library, the user's code,
and the modules of holodeck that do the same, by their path (see `OwnModules`).
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
import sysconfig
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PROTOCOL = 1
ASYNC_CONCURRENCY = 10
"""Messages that an async agent gets at a time."""
EXIT_S = 5.0
"""How long agents may take to close once stdin has ended."""
RESULT_KEYS = (
    *("response", "output", "text", "tool_calls", "tool_results", "usage", "token_usage"),
    *("agents", "metadata", "tool_calls_problem", "left_out"),
)
"""What is read of an object that an agent returns."""
BACKEND_METHODS = ("initialize", "invoke_once", "create_session", "teardown")
"""What makes an object an AgentBackend."""
HOLODECK = Path(__file__).resolve().parents[3]
_MAX_FRAMES = 30

Json = Any
Messages = list[dict[str, Any]]


class AgentError(Exception):
    """What an agent does wrong, with a message for its author."""


class OwnModules:
    """Finds the modules of holodeck that need nothing but the standard library.

    If holodeck is installed, too, its other modules come from there.
    """

    def find_spec(self, name: str, *_: object) -> Any:
        own = (
            "holodeck.lib.support.signatures",
            "holodeck.lib.support.process_tracer",
            "holodeck.lib.backends.frameworks",
        )
        if not name.startswith(own):
            return None
        stem = HOLODECK.joinpath(*name.split(".")[1:])
        if stem.is_dir():
            file, folders = stem / "__init__.py", [str(stem)]
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=folders
            )
        return importlib.util.spec_from_file_location(name, stem.with_suffix(".py"))


class EmptyPackages:
    """Finds empty packages in place of holodeck's, where it is not installed."""

    def find_spec(self, name: str, *_: object) -> Any:
        packages = {"holodeck", "holodeck.lib", "holodeck.lib.support", "holodeck.lib.backends"}
        if name not in packages:
            return None
        return importlib.util.spec_from_loader(name, loader=None, is_package=True)


class Conversation:
    """A conversation with a function or an object."""

    def __init__(self, call: Any, case_context: dict[str, Any] | None, history: Messages) -> None:
        self._call = call
        self._case_context = case_context
        self._history = history

    async def send(self, message: str, messages: Messages, _: object = None) -> Any:
        """Return what the agent returns; a failed turn leaves the history as it was."""
        self._history += messages
        call = self._call.bind(message, self._history, self._case_context)
        answer = plain_answer(await call_user_function(call, self._call.function))
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": text_of(answer)})
        return answer

    async def close(self) -> None:
        """Do nothing: only the agent may hold something."""


class FrameworkConversation:
    """A conversation with an agent of a framework."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def send(
        self, message: str, messages: Messages, on_piece: Callable[[str], None] | None = None
    ) -> Any:
        if messages:
            self._session.remember(messages)
        try:
            return plain_answer(await self._session.take_turn(message, on_piece))
        except Exception as error:
            error.seen_by_holodeck = plain_answer(self._session.turn)  # type: ignore[attr-defined]
            raise

    async def close(self) -> None:
        await self._session.close()


class LoadedAgent:
    """An agent that answers: one of a framework, a function, or an object."""

    def __init__(self, agent: Any, *, tools_run_no_agents: bool) -> None:
        self._agent = agent
        self._adapter = adapter_of(agent)
        self._tools_run_no_agents = tools_run_no_agents
        self._call: Any = None if self._adapter is not None else agent_call(agent)

    def facts(self, *, is_shared: bool) -> dict[str, Json]:
        """Return what the agent can do, as the answer to `initialize`."""
        from holodeck.lib.support.signatures import is_async  # noqa: PLC0415

        if self._adapter is not None:
            return facts(
                self._adapter.is_concurrent,
                tools=self._adapter.tools(),
                tool_errors="tool errors" in self._adapter.reads,
                history=True,
                streaming=True,
            )
        can_wait = is_async(self._call.function)
        is_object = is_shared and not inspect.isfunction(self._agent)
        found = facts(
            can_wait and not is_object,
            can_cancel=can_wait,
            history=self._call.context != "left out",
            context=self._call.case_context is not None,
        )
        return {**found, "closes": not is_shared}

    async def open(self, messages: Messages, context: dict[str, Any] | None) -> Any:
        """Return a new conversation."""
        if self._adapter is not None:
            session = await self._adapter.open(messages)
            session.tools_run_no_agents = self._tools_run_no_agents
            return FrameworkConversation(session)
        return Conversation(self._call, context, messages)

    async def close(self) -> None:
        if self._adapter is not None:
            await self._adapter.close()
        else:
            await close(self._agent)


class OwningConversation:
    """A conversation that closes the agent, which was made for it."""

    def __init__(self, conversation: Any, agent: LoadedAgent) -> None:
        self.send = conversation.send
        self._conversation = conversation
        self._agent = agent

    async def close(self) -> None:
        await self._conversation.close()
        await self._agent.close()


class Agent:
    """What the target names: an agent that all conversations share, or what makes each its own."""

    def __init__(self, target: str, scope: str, tools: str) -> None:
        self._target = target
        self._scope = scope
        self._tools_run_no_agents = tools == "tools_run_no_agents"
        self._make: Any = None
        """Makes the agent of each conversation; None if all share one."""
        self._agent: LoadedAgent | None = None
        """The shared one, or the first that was made, for the first conversation."""

    async def load(self) -> dict[str, Json]:
        """Import the agent and return what it can do, as the answer to `initialize`."""
        from holodeck.lib.support.signatures import is_factory  # noqa: PLC0415

        value = load(self._target)
        makes_agents = inspect.isclass(value) or is_factory(value)
        if makes_agents and self._scope == "case":
            self._make = value
        self._agent = self._loaded(
            await call_user_function(value, value) if makes_agents else value
        )
        return self._agent.facts(is_shared=self._make is None)

    async def open(self, messages: Messages, context: dict[str, Any] | None) -> Any:
        """Return a new conversation."""
        if self._make is None and self._agent is not None:
            return await self._agent.open(messages, context)
        agent, self._agent = self._agent, None
        if agent is None:
            agent = self._loaded(await call_user_function(self._make, self._make))
        return OwningConversation(await agent.open(messages, context), agent)

    def _loaded(self, agent: Any) -> LoadedAgent:
        return LoadedAgent(agent, tools_run_no_agents=self._tools_run_no_agents)

    async def close(self) -> None:
        if self._agent is not None:
            await self._agent.close()


def facts(
    is_concurrent: bool,
    *,
    can_cancel: bool = True,
    history: bool = False,
    context: bool = False,
    streaming: bool = False,
    tool_errors: bool = True,
    tools: list[str] | None = None,
) -> dict[str, Json]:
    """Return the answer to `initialize`."""
    return {
        "protocol": PROTOCOL,
        "concurrency": ASYNC_CONCURRENCY if is_concurrent else 1,
        "history": history,
        "context": context,
        "streaming": streaming,
        "cancel": can_cancel,
        "trace": True,
        "opens_with_send": True,
        "closes": True,
        "tool_errors": tool_errors,
        "tools": tools,
    }


def adapter_of(agent: Any) -> Any:
    """Return the adapter of an agent of a framework; None for any other agent."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the user's Python; no framework is for 3.9
        return None
    from holodeck.lib.backends.frameworks import adapt  # noqa: PLC0415

    return adapt(agent)


def load(target: str) -> Any:
    """Return what `module:object` names."""
    module, _, names = target.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split("."):
        if not hasattr(value, name):
            raise AgentError(f"{target!r}: there is no {name!r} in it")
        value = getattr(value, name)
    return value


def agent_call(agent: Any) -> Any:
    """Return how the agent is called. Raises AgentError for an unknown shape."""
    from holodeck.lib.support import signatures  # noqa: PLC0415

    if all(hasattr(agent, name) for name in BACKEND_METHODS):
        raise AgentError(
            "an AgentBackend runs inside of holodeck; write 'backend: module:object' without"
            " 'type: process'"
        )
    try:
        function = signatures.find_method(agent)
        return signatures.AgentCall(function, *signatures.parameter_passing(function))
    except signatures.UnusableAgent as error:
        raise AgentError(str(error)) from None


async def call_user_function(call: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """Return what `call` returns; a function that is not async runs in a thread of its own."""
    from holodeck.lib.support.signatures import is_async  # noqa: PLC0415

    if is_async(function):
        return await call()
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: tuple[Any, BaseException | None]) -> None:
        if not outcome.done():
            outcome.set_result(result)

    context = contextvars.copy_context()

    def work() -> None:
        try:
            result: tuple[Any, BaseException | None] = (context.run(call), None)
        except BaseException as error:  # noqa: BLE001 - raised again below
            result = (None, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name="holodeck-user-code", daemon=True).start()
    value, error = await outcome
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def continue_trace(headers: dict[str, str]) -> None:
    """Continue a trace in the running task, if the agent's environment has OpenTelemetry."""
    with suppress(ImportError):
        from opentelemetry import context, propagate  # noqa: PLC0415

        context.attach(propagate.extract(headers))


async def close(agent: Any) -> None:
    """Call the agent's `aclose` or `close`, if it has one; an error goes to stderr."""
    methods = (getattr(agent, name, None) for name in ("aclose", "close"))
    method = next(filter(callable, methods), None)
    if method is None:
        return
    try:
        await call_user_function(method, method)
    except Exception:  # noqa: BLE001 - a failing clean-up must not lose a response
        traceback.print_exc()


def plain_answer(value: Any) -> Json:
    """Return what an agent returned as text, list, number, or mapping; the rest is holodeck's."""
    if getattr(value, "is_error", False) is True:
        raise AgentError(str(getattr(value, "error_reason", None) or "the agent reports an error"))
    if value is None or isinstance(value, (str, int, float, list, tuple)):
        return value
    if isinstance(value, Mapping):
        require_data(value)
        return dict(value)
    found = {key: getattr(value, key) for key in RESULT_KEYS if hasattr(value, key)}
    if not found.keys() & {"response", "output", "text"}:
        raise AgentError(
            f"the agent returned a {type(value).__name__}; return the answer as text, or a mapping"
            " with 'response', 'output', 'text'"
        )
    require_data(found)
    return found


def require_data(result: Mapping[str, Any]) -> None:
    """Raise AgentError for a response that is neither text nor data, such as a coroutine."""
    response = next((result[key] for key in RESULT_KEYS[:3] if key in result), None)
    try:
        json.dumps(response, default=to_known)
        is_data = not isinstance(response, bytes)
    except (TypeError, ValueError, RecursionError):
        is_data = False
    if not is_data:
        raise AgentError(
            f"the agent returned a mapping whose answer is a {type(response).__name__}"
            f" ({repr(response)[:100]}); return the answer as text, or as data that JSON holds"
        )


def text_of(answer: Json) -> str:
    """Return the response in what an agent returned."""
    if isinstance(answer, dict):
        answer = next((answer[key] for key in RESULT_KEYS[:3] if key in answer), "")
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
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind):
            return convert(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__}")


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Json]], ...] = (
    (enum.Enum, lambda one: one.value),
    (Mapping, dict),
    ((set, frozenset), list),
    ((dt.date, dt.time), lambda one: one.isoformat()),
    (bytes, lambda one: one.decode(errors="replace")),
    ((decimal.Decimal, uuid.UUID, Path), str),
)


def describe_error(error: BaseException) -> dict[str, Json]:
    """Return an error as the protocol has it, with the line of the user's code."""
    message = str(error)
    if isinstance(error, AgentError) or type(error).__name__ == "FrameworkError":
        return {"code": -32000, "message": message, "data": {"seen": seen_of(error)}}
    frames = [one for one in traceback.extract_tb(error.__traceback__) if is_users(one.filename)]
    rows = [
        {"file": one.filename, "line": one.lineno, "function": one.name, "code": one.line}
        for one in frames[-_MAX_FRAMES:]
    ]
    data: dict[str, Json] = {"type": type(error).__name__, "traceback": rows}
    if rows:
        data.update(rows[-1])
    data["seen"] = seen_of(error)
    return {"code": -32000, "message": message, "data": data}


def seen_of(error: BaseException) -> Json:
    """Return what the agent had done until the error; None if that is unknown."""
    return getattr(error, "seen_by_holodeck", None)


def is_users(file: str) -> bool:
    """Whether a file is neither ours, nor of an installed package, nor of the standard library."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    libraries = {HOLODECK, Path(sysconfig.get_path("stdlib")).resolve()}
    return not is_installed and libraries.isdisjoint(path.parents)


class Worker:
    """Answers the requests that come in through stdin."""

    def __init__(
        self, agent: Agent, requests: io.BufferedReader, answers: io.BufferedWriter
    ) -> None:
        self._agent = agent
        self._requests = requests
        self._answers = answers
        self._max_bytes = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._conversations: dict[str, Any] = {}

    async def serve(self) -> None:
        """Answer requests until stdin ends, and close the agent."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=self._read, args=(loop, ended), daemon=True).start()
        await ended.wait()
        for task in [*self._tasks.values()]:
            task.cancel()
        for conversation in [*self._conversations.values()]:
            await conversation.close()
        await self._agent.close()

    def _read(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        """Read the requests. The end of stdin ends the process, even if the event loop hangs.

        Those that arrive together wake the event loop once.
        """
        rest = b""
        while data := self._requests.read1(65_536):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                requests = [json.loads(line) for line in lines]
                loop.call_soon_threadsafe(self._begin_all, requests)
        timer = threading.Timer(EXIT_S, os._exit, (1,))
        timer.daemon = True
        timer.start()
        loop.call_soon_threadsafe(ended.set)

    def _begin_all(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            self._begin(request)

    def _begin(self, request: dict[str, Any]) -> None:
        if request["method"] == "cancel":
            number = request["params"]["id"]
            if number in self._tasks:
                self._cancelled.add(number)
                self._tasks[number].cancel()
            return
        self._tasks[request["id"]] = asyncio.ensure_future(self._answer(request))

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
            return await self._send(number, **params)
        if method == "close":
            return await self._close(**params)
        raise AgentError(f"there is no method {method!r}")

    async def _initialize(self, max_answer_bytes: int, **_: Json) -> Json:
        self._max_bytes = max_answer_bytes
        return await self._agent.load()

    async def _open(
        self, conversation: str, messages: Messages, context: dict[str, Any] | None = None
    ) -> Json:
        self._conversations[conversation] = await self._agent.open(messages, context)
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
        return await taking_part.send(message, messages or [], on_piece if stream else None)

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
        self._answers.write(line + b"\n")
        self._answers.flush()


def take_streams() -> tuple[io.BufferedReader, io.BufferedWriter]:
    """Return stdin and stdout; whatever the agent prints goes to stderr from now on."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    with suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return os.fdopen(requests, "rb"), os.fdopen(answers, "wb")


def main() -> None:
    folder, target, scope, tools = sys.argv[1:]
    requests, answers = take_streams()
    own = str(Path(__file__).parent)
    sys.path[:] = [folder, *(one for one in sys.path if one != own)]
    sys.argv[1:] = []
    sys.meta_path.insert(0, OwnModules())
    sys.meta_path.append(EmptyPackages())
    asyncio.run(Worker(Agent(target, scope, tools), requests, answers).serve())


if __name__ == "__main__":
    main()
