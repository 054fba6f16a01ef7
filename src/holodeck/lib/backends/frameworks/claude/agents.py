"""Agents of the Claude Agent SDK: options with which its client runs Claude Code."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    exhaust,
)
from holodeck.lib.backends.frameworks.claude.messages import ClaudeTurnReader, Tokens, to_messages
from holodeck.lib.processes.process_guard import GUARD, kill_group
from holodeck.lib.support.stubs import call_tool, has_stubs, missing_argument

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message


SESSION_STATES = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""Environment variable with which Claude Code reports that nothing is under way any more."""
REJECTED = "A person rejected the call."
MAX_LINES = 20
"""Lines of stderr that an error shows."""
_OWN_GROUP = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of options or of a client; None for any other object.

    Raises FrameworkError for those with which test cases would share a conversation.
    """
    import claude_agent_sdk as sdk

    if isinstance(value, sdk.ClaudeSDKClient):
        if getattr(value, "_query", None) is not None:
            raise FrameworkError(
                "the ClaudeSDKClient is connected, so that test cases would share a conversation;"
                " name one that is not, or its ClaudeAgentOptions"
            )
        if getattr(value, "_custom_transport", None) is not None:
            raise FrameworkError(
                "the ClaudeSDKClient has a transport, which test cases cannot share; name its"
                " ClaudeAgentOptions"
            )
        value = value.options
    if not isinstance(value, sdk.ClaudeAgentOptions):
        return None
    for name in ("continue_conversation", "session_id"):
        if getattr(value, name):
            raise FrameworkError(
                f"{name!r} would let test cases share a conversation; leave it out: each case has"
                " a conversation of its own. 'resume' begins each with a copy of an earlier one"
            )
    return ClaudeAdapter(value)


class ClaudeAdapter(FrameworkAdapter):
    """Options; each conversation has a process of Claude Code of its own."""

    objects = ("ClaudeAgentOptions", "ClaudeSDKClient")
    takes_stubs = True
    answers_approvals = True

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        servers = agent.mcp_servers if isinstance(agent.mcp_servers, dict) else {"": {}}
        # Claude Code runs its own tools, and those of other servers, elsewhere.
        self.takes_stubs = agent.tools == [] and all(map(_is_here, servers.values()))
        self._reported: set[str] = set()
        """The MCP servers without tools that were reported."""

    async def open(self, context: Sequence["Message"]) -> "ClaudeSession":
        return ClaudeSession(self._agent, self._reported, context)

    def tools(self) -> list[str] | None:
        """Return the names of the tools; None if files or other programs may add some."""
        options = self._agent
        is_closed = options.strict_mcp_config or options.setting_sources == []
        more = (options.plugins, options.skills, options.extra_args, options.add_dirs)
        if not (isinstance(options.tools, list) and is_closed) or any(more):
            return None
        names = list(options.tools)
        servers = options.mcp_servers
        for name, server in servers.items() if isinstance(servers, dict) else [("", {})]:
            found = _tools_of(server.get("instance"))
            if found is None:
                return None
            names += [f"mcp__{name}__{tool}" for tool in found]
        return [name for name in names if name not in options.disallowed_tools]


def _tools_of(server: Any) -> list[str] | None:
    """Return the names of the tools of an MCP server in this process; None if it does not tell."""
    from mcp import types

    if hasattr(server, "get_request_handler"):  # of version 2 of mcp
        entry = server.get_request_handler("tools/list")
        listing = None if entry is None else entry.handler(None, None)
    else:
        handler = getattr(server, "request_handlers", {}).get(types.ListToolsRequest)
        listing = None if handler is None else handler(types.ListToolsRequest(method="tools/list"))
    if listing is None:
        return None
    try:
        listing.send(None)
    except StopIteration as done:  # it did not have to wait for anything
        return [tool.name for tool in getattr(done.value, "root", done.value).tools]
    except Exception:  # noqa: BLE001 - a server of the user may need a connection for that
        return None
    listing.close()
    return None


class ClaudeSession(StreamingSession):
    """A conversation with a process that is started for its first message.

    After a turn that failed another process takes over, from the latest turn that succeeded.
    """

    traced_as = "Claude Agent SDK"

    def __init__(self, options: Any, reported: set[str], context: Sequence["Message"]) -> None:
        super().__init__(options, {}, context)
        self._reported = reported
        self._process: ClaudeCode | None = None
        self._tokens: Tokens | None = None
        """What the process has used so far; None if unknown."""
        self._place: dict[str, Any] = {}
        """The options that resume the conversation after the latest turn that succeeded."""
        self._paused: tuple[ClaudeTurnReader, PermissionRequest] | None = None
        """The turn that waits for a person, and what for."""

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return to_messages(messages)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def _answer(
        self,
        message: str,
        *,
        streams: bool,  # noqa: ARG002 - Claude Code always does
    ) -> AsyncGenerator[str, None]:
        self.turn = TurnRecord()
        async with self._stopped_on_failure():
            await self._start()
            for earlier in self._earlier:
                await self._add(earlier)
            await self._write({"role": "user", "content": message})
            reader = ClaudeTurnReader(self.turn, self._tokens, self._reported)
            async with aclosing(self._read_turn(reader)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _resume(self, decisions: Sequence[bool]) -> None:
        assert self._paused is not None  # noqa: S101 - the turn waits
        reader, request = self._paused
        reader.turn = self.turn
        async with self._stopped_on_failure():
            request.decision.set_result(decisions[0])
            await exhaust(self._read_turn(reader))

    @asynccontextmanager
    async def _stopped_on_failure(self) -> AsyncIterator[None]:
        """Stop the process if the turn in the block does not end."""
        import claude_agent_sdk as sdk

        has_ended = False
        try:
            yield
            has_ended = True
        except sdk.ClaudeSDKError as error:
            tail = "" if self._process is None else await self._process.tail()
            raise FrameworkError(f"{_describe(error)}{tail}") from error
        finally:
            process = self._process
            if not has_ended and process is not None:
                self._process = None
                await process.stop(at_once=True)

    async def _read_turn(self, reader: ClaudeTurnReader) -> AsyncGenerator[str, None]:
        """Yield the pieces of the response, until the turn ends or waits for a person."""
        self._paused = None
        try:
            async with aclosing(self._replies()) as replies:
                async for reply in replies:
                    if isinstance(reply, PermissionRequest):
                        self._paused = reader, reply
                        self.turn.pending_approvals.append(reply.call)
                        self.turn.add_usage(0, 0, requests=0)  # the rest of the turn has the sum
                        return
                    yield reader.read(reply)
                    if reader.is_over:
                        break
        finally:
            if self._paused is None:
                self._tokens = reader.finish()
        self._finish(reader)

    async def _start(self) -> None:
        """Start a process, unless there is one."""
        if self._process is not None:
            return
        options = with_stubs(self._agent) if has_stubs() else self._agent
        if self._place or options.resume:
            options = replace(options, fork_session=True, **self._place)
        self._process = ClaudeCode(options)
        self._tokens = None if options.resume else (0, 0)
        await self._process.start()

    async def _add(self, message: dict[str, Any]) -> None:
        """Append a message to the conversation, to which nobody answers."""
        if message["role"] == "assistant":
            await self._write(message)
            return
        reader = ClaudeTurnReader(TurnRecord(), None, self._reported)
        await self._write(message, shouldQuery=False)
        async with aclosing(self._replies()) as replies:
            async for reply in replies:
                reader.read(reply)
                if reader.is_over:
                    break

    async def _replies(self) -> AsyncGenerator[Any, None]:
        """Yield what comes from the process. Raises FrameworkError at its end."""
        assert self._process is not None  # noqa: S101 - it was started
        while (reply := await self._process.replies.get()) is not None:
            if isinstance(reply, Exception):
                raise reply
            yield reply
        raise FrameworkError(f"Claude Code ended within the turn{await self._process.tail()}")

    async def _write(self, message: dict[str, Any], **fields: Any) -> None:
        assert self._process is not None  # noqa: S101 - it was started
        kept = {"type": message["role"], "message": message, "uuid": str(uuid4()), **fields}

        async def input_stream() -> AsyncIterator[dict[str, Any]]:
            yield {**kept, "parent_tool_use_id": None, "session_id": "default"}

        await self._process.client.query(input_stream())

    def _finish(self, reader: ClaudeTurnReader) -> None:
        """Read the result of a turn, and continue from there."""
        reader.check()
        structured, text = reader.result.structured_output, reader.result.result
        self.turn.response = (text or "") if structured is None else structured
        self._place = {
            "resume": reader.result.session_id,
            "resume_session_at": reader.last_id,
            "resume_drops_turn": None,
        }
        self._earlier = []


def with_stubs(options: Any) -> Any:
    """Return options whose tools stubs can take the place of: those of servers in this process."""
    servers = options.mcp_servers
    if not isinstance(servers, dict):
        return options
    stubbed = {
        name: {**server, "instance": _stubbed_server(name, server["instance"])}
        for name, server in servers.items()
        if _is_here(server)
    }
    return replace(options, mcp_servers={**servers, **stubbed})


def _is_here(server: Mapping[str, Any]) -> bool:
    """Whether an MCP server runs in this process, and shows how it answers requests."""
    return hasattr(server.get("instance"), "request_handlers")


def _stubbed_server(name: str, server: Any) -> Any:
    """Return a copy of an MCP server that lets stubs take the calls of its tools."""
    from mcp import types

    call = server.request_handlers[types.CallToolRequest]
    list_tools = server.request_handlers[types.ListToolsRequest]

    async def call_or_stub(request: Any) -> Any:
        asked = request.params
        tool, run = f"mcp__{name}__{asked.name}", partial(call, request)
        try:
            listed = (await list_tools(types.ListToolsRequest())).root.tools
            schemas = {offered.name: offered.inputSchema for offered in listed}
            arguments = asked.arguments or {}
            refusal = missing_argument(schemas.get(asked.name, {}), arguments)
            result = await call_tool(tool, arguments, run, _text_of, refusal)
        except Exception as error:  # noqa: BLE001 - the model gets it, as that of the tool
            return _result(f"{type(error).__name__}: {error}", is_error=True)
        return result if isinstance(result, types.ServerResult) else _result(result)

    stubbed = copy(server)
    stubbed.request_handlers = {**server.request_handlers, types.CallToolRequest: call_or_stub}
    return stubbed


def _text_of(result: Any) -> str:
    """Return the text of the result of an MCP tool."""
    return "".join(getattr(part, "text", "") for part in result.root.content)


def _result(value: Any, *, is_error: bool = False) -> Any:
    """Return a result of an MCP tool."""
    from mcp import types

    text = value if isinstance(value, str) else json.dumps(value)
    content = [types.TextContent(type="text", text=text)]
    return types.ServerResult(types.CallToolResult(content=content, isError=is_error))


def _describe(error: Exception) -> str:
    """Return what happened to Claude Code."""
    code = getattr(error, "exit_code", None)
    if code is not None and getattr(error, "result", None) is None:
        return f"Claude Code ended with exit code {code}"
    return f"Claude Code failed: {error}"


class PermissionRequest:
    """The call of a tool that Claude Code runs only if a person allows it."""

    def __init__(self, name: str, arguments: dict[str, Any], call_id: str | None) -> None:
        self.call = {"name": name, "arguments": arguments, "call_id": call_id}
        self.decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the person allows it; Claude Code then goes on."""

    async def result(self) -> Any:
        """Wait for the decision, and return it as the SDK takes it."""
        from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

        is_approved = await self.decision
        return PermissionResultAllow() if is_approved else PermissionResultDeny(message=REJECTED)


class ClaudeCode:
    """A process of Claude Code that serves one conversation, in a process group of its own.

    The group ends with the conversation, with all programs that Claude Code started, and by a guard
    if this process is killed. Ctrl-C in the terminal does not reach it.

    Args:
        options: Of the user; not changed.
    """

    def __init__(self, options: Any) -> None:
        self.client: Any = None
        """The client of the SDK, once it is connected."""
        self.replies: asyncio.Queue[Any] = asyncio.Queue()
        """Messages of the SDK and permission requests; an exception or None at the end."""
        self._reading: asyncio.Task[None] | None = None
        self._options = options
        self._folder: Path | None = None
        self._group: int | None = None
        self._lines: deque[str] = deque(maxlen=MAX_LINES)

    async def start(self) -> None:
        """Connect to a new process."""
        from claude_agent_sdk import ClaudeSDKClient

        options = replace(
            self._options,
            cli_path=self._launcher() or self._options.cli_path,
            env={SESSION_STATES: "1", **self._options.env},
            stderr=self._note_line(self._options.stderr),
            include_partial_messages=True,
            # The callback of the user asks a person, whose place a test case takes.
            can_use_tool=None if self._options.can_use_tool is None else self._ask_permission,
        )
        self.client = ClaudeSDKClient(options)
        try:
            await self.client.connect()
        finally:
            self._watch()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Queue what the process says, until it ends."""
        try:
            async for message in self.client.receive_messages():
                self.replies.put_nowait(message)
        except Exception as error:  # noqa: BLE001 - the turn under way raises it
            self.replies.put_nowait(error)
        else:
            self.replies.put_nowait(None)

    async def _ask_permission(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
        request = PermissionRequest(name, arguments, context.tool_use_id)
        self.replies.put_nowait(request)
        return await request.result()

    async def stop(self, *, at_once: bool = False) -> None:
        """End the process, and what it started; `at_once` does not wait for a turn under way."""
        if at_once:
            self._signal(signal.SIGTERM)
        if self._reading is not None:
            self._reading.cancel()
        try:
            if self.client is not None:
                await self.client.disconnect()
        finally:
            self._signal(signal.SIGKILL)
            if self._group is not None:
                GUARD.release(self._group)
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self.client = self._group = self._folder = None

    async def tail(self) -> str:
        """Return the last lines of stderr, as the end of a message."""
        count = -1
        while count != len(self._lines):  # the SDK reads them in a task of its own
            count = len(self._lines)
            await asyncio.sleep(0.05)
        lines = "".join(f"\n  {line}" for line in self._lines)
        return f"; the last lines of its stderr:{lines}" if lines else ""

    def _note_line(self, users: Callable[[str], None] | None) -> Callable[[str], None]:
        """Return a callback that keeps a line of stderr, and calls the user's own."""

        def note(line: str) -> None:
            self._lines.append(line)
            if users is not None:
                users(line)

        return note

    def _launcher(self) -> str | None:
        """Write a program that starts Claude Code in a process group of its own.

        None where that is not possible: the SDK then starts it as usual.
        """
        program = _find_program(self._options.cli_path)
        if os.name != "posix" or program is None or self._options.user is not None:
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="holodeck-claude-"))
        launcher = self._folder / "claude"
        command = shlex.join([sys.executable, "-I", "-S", "-c", _OWN_GROUP, program])
        pid_file = shlex.quote(str(self._folder / "pid"))
        launcher.write_text(f'#!/bin/sh\necho $$ > {pid_file}\nexec {command} "$@"\n')
        launcher.chmod(0o700)
        return str(launcher) if os.access(launcher, os.X_OK) else None

    def _watch(self) -> None:
        """Have the guard end the process group, if there is one."""
        if self._folder is not None:
            with suppress(OSError, ValueError):
                self._group = int((self._folder / "pid").read_text())
                GUARD.watch(self._group)

    def _signal(self, number: int) -> None:
        if self._group is not None:
            kill_group(self._group, number)


def _find_program(chosen: str | Path | None) -> str | None:
    """Return the program that the SDK would start; None if only the SDK can tell."""
    import claude_agent_sdk

    bundled = Path(claude_agent_sdk.__file__).with_name("_bundled") / "claude"
    if chosen is None and bundled.is_file():
        return str(bundled)
    return shutil.which(str(chosen or "claude"))
