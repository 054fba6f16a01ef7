"""The process of an agent: its start, its requests and answers, and its end."""

import asyncio
import json
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.process.messages import answer_error
from holodeck.lib.llm.http_parser import too_large
from holodeck.lib.support.text import DuplicateKey, load_json, one_line

logger = logging.getLogger(__name__)

CLOSE_S = 3.0
"""How long a process may take to end by itself once its stdin is closed."""
CANCEL_S = 1.0
"""How long a process may take to confirm that it has cancelled a request."""
_LAST_WORDS_S = 0.5
"""How long output is still read after the end of the process."""
_MAX_TAIL_LINES, _MAX_TAIL_CHARACTERS, _MAX_LINE_SHOWN = 20, 1_000, 300
_MARGIN_BYTES = 65_536
"""What a line may have besides the answer."""
_STDOUT_IS_TAKEN = (
    "stdout belongs to the protocol: let the agent print to stderr"
    " (docs/reference/process-protocol.md)"
)


@dataclass(frozen=True)
class Launch:
    """How the process of an agent is started."""

    command: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """All of its variables."""
    max_answer_bytes: int


@dataclass
class _Request:
    answer: asyncio.Future[Any]
    on_piece: Callable[[str], None] | None
    bytes_of_pieces: int = 0


class WorkerProcess(asyncio.SubprocessProtocol):
    """A process that speaks the protocol of docs/reference/process-protocol.md.

    It uses no task of the event loop: everything happens when something arrives.

    Attributes:
        failure: Why it serves no further requests; None while it does.
        can_cancel: Whether it confirms cancelled requests; otherwise it is killed instead.
        is_unresponsive: Whether a cancelled request did not end, so that the process is killed as
            soon as no other request is under way.
        ended: Done once the process has ended and its output was read.
        pid: The id of the process, and of the group that it leads.
    """

    def __init__(self, launch: Launch) -> None:
        self.failure: str | None = None
        self.can_cancel = False
        self._launch = launch
        self._max_line = launch.max_answer_bytes + _MARGIN_BYTES
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._ids = count(1)
        self._requests: dict[int, _Request] = {}
        self._cancelled: dict[int, asyncio.TimerHandle] = {}
        self._line = bytearray()
        self._error_line = bytearray()
        self._tail: deque[str] = deque(maxlen=_MAX_TAIL_LINES)
        self._transport: asyncio.SubprocessTransport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._is_closing = False
        self.pid = 0
        self.is_unresponsive = False

    @classmethod
    async def start(cls, launch: Launch) -> "WorkerProcess":
        """Return the started process. Raises BackendInitError if there is no such program."""
        loop = asyncio.get_running_loop()
        try:
            _, protocol = await loop.subprocess_exec(
                lambda: cls(launch),
                *launch.command,
                cwd=launch.cwd,
                env=launch.env,
                start_new_session=True,  # a process group, and no Ctrl-C from the terminal
            )
        except (OSError, ValueError) as error:
            raise BackendInitError(
                f"the agent's process cannot be started: {error}; the command is"
                f" {' '.join(launch.command)!r}"
            ) from error
        return protocol

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        on_piece: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the result of a request; pieces that come before it go to `on_piece`.

        If it is cancelled, the process is told to cancel it, or killed. Raises BackendSessionError.
        """
        if self.failure is not None:
            raise BackendSessionError(self.failure)
        number = next(self._ids)
        request = self._requests[number] = _Request(self._loop.create_future(), on_piece)
        self._write({"id": number, "method": method, "params": params})
        try:
            return await request.answer
        except asyncio.CancelledError:
            if self._requests.pop(number, None) is not None:
                self._cancel(number)
            raise

    def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request whose answer nobody waits for, unless the process serves none any more."""
        if self.failure is None:
            self._write({"id": next(self._ids), "method": method, "params": params})

    def kill(self, reason: str) -> None:
        """End the process and all processes of its group now."""
        self._kill_group()
        self._fail(reason)

    async def close(self) -> None:
        """Let the process end by itself, which it does when stdin ends; else kill it."""
        self._is_closing = True
        self._fail("the agent's process was closed")
        if self._transport is None:
            return
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        try:
            await asyncio.wait([self.ended], timeout=CLOSE_S)
        finally:
            self._kill_group()
        await self.ended
        self._transport.close()

    def tail(self) -> str:
        """Return the last lines of stderr for a message; "" if there are none."""
        lines: list[str] = []
        room = _MAX_TAIL_CHARACTERS
        for line in reversed(self._tail):
            room -= len(line)
            if room < 0 and lines:
                break
            lines.insert(0, line)
        return f"; the end of its stderr: {' | '.join(lines)}" if lines else ""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._read_stdout(data)
        else:
            self._read_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1 and not self._is_closing:
            closed = "the agent's process has closed its stdout, where its answers belong"
            self._timers.append(self._loop.call_later(CLOSE_S, self.kill, closed))

    def process_exited(self) -> None:
        self._kill_group()  # what it has started, which may hold its output open
        self._timers.append(self._loop.call_later(_LAST_WORDS_S, self._end))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._end()

    def _end(self) -> None:
        """Note the end of the process, once all of its output was read."""
        if self.ended.done():
            return
        if self._error_line:
            self._read_stderr(b"\n")
        self._fail(f"the agent's process {self._how_it_ended()}{self.tail()}")
        for timer in (*self._timers, *self._cancelled.values()):
            timer.cancel()
        self.ended.set_result(None)

    def _how_it_ended(self) -> str:
        code = None if self._transport is None else self._transport.get_returncode()
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    # Requests and answers

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._transport is not None  # noqa: S101 - set before `start` returns
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _cancel(self, number: int) -> None:
        """Have a request cancelled whose answer nobody waits for any more."""
        if not self.can_cancel:
            self._retire()
            return
        self._write({"method": "cancel", "params": {"id": number}})
        self._cancelled[number] = self._loop.call_later(CANCEL_S, self._give_up, number)

    def _give_up(self, number: int) -> None:
        del self._cancelled[number]
        self._retire()

    def _retire(self) -> None:
        """Kill the process as soon as nobody waits for an answer of it."""
        self.is_unresponsive = True
        if not self._requests:
            self.kill(
                "the agent's process was killed, because a call that was cancelled or took too long"
                " did not end"
            )

    def _read_stdout(self, data: bytes) -> None:
        if self.failure is not None:
            return
        first, *others = data.split(b"\n")
        self._line += first
        for start in others:
            self._read_line(bytes(self._line))
            self._line = bytearray(start)
        if len(self._line) > self._max_line:
            self._break(too_large(self._launch.max_answer_bytes))

    def _read_line(self, line: bytes) -> None:
        if not line.strip() or self.failure is not None:
            return
        if len(line) > self._max_line:
            self._break(too_large(self._launch.max_answer_bytes))
            return
        try:
            message = load_json(line)
        except DuplicateKey as error:
            self._break(f"the agent's process wrote {_shown(line)} to stdout, with a {error}")
            return
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._break(f"the agent's process wrote {_shown(line)} to stdout; {_STDOUT_IS_TAKEN}")
        elif message.get("method") == "piece":
            self._add_piece(message, len(line))
        elif isinstance(message.get("id"), int) and ("result" in message or "error" in message):
            self._settle(message)
        else:
            self._break(
                f"the agent's process wrote {_shown(line)} to stdout, which has no 'id' of a"
                " request with 'result' or 'error' (docs/reference/process-protocol.md)"
            )

    def _settle(self, message: dict[str, Any]) -> None:
        """Give the answer to whoever waits for it."""
        timer = self._cancelled.pop(message["id"], None)
        if timer is not None:
            timer.cancel()
        request = self._requests.pop(message["id"], None)
        if request is None or request.answer.done():
            return
        if "error" in message:
            request.answer.set_exception(answer_error(message["error"]))
        else:
            request.answer.set_result(message["result"])
        if self.is_unresponsive:
            self._retire()

    def _add_piece(self, message: dict[str, Any], size: int) -> None:
        params = message.get("params")
        if not isinstance(params, dict) or not isinstance(params.get("text"), str):
            self._break("the agent's process wrote a 'piece' without 'id' and 'text'")
            return
        request = self._requests.get(params.get("id", 0))
        if request is None or request.on_piece is None:
            return
        request.bytes_of_pieces += size
        if request.bytes_of_pieces > self._max_line:
            self._break(too_large(self._launch.max_answer_bytes))
        else:
            request.on_piece(params["text"])

    def _read_stderr(self, data: bytes) -> None:
        """Keep the last lines, each up to a length."""
        first, *others = data.split(b"\n")
        self._error_line += first[:_MAX_LINE_SHOWN]
        for start in others:
            line = one_line(self._error_line.decode(errors="replace"), _MAX_LINE_SHOWN)
            if line.strip():
                self._tail.append(line)
                logger.debug("stderr of the agent's process: %s", line)
            self._error_line = bytearray(start[:_MAX_LINE_SHOWN])
        del self._error_line[_MAX_LINE_SHOWN:]

    # The end

    def _break(self, reason: str) -> None:
        """Kill the process, whose answers cannot be told apart any more."""
        self.kill(f"{reason}{self.tail()}")

    def _fail(self, reason: str) -> None:
        """Serve no further requests, and fail those that wait for an answer."""
        if self.failure is not None:
            return
        self.failure = reason
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_exception(BackendSessionError(reason))
        self._requests.clear()

    def _kill_group(self) -> None:
        if self.ended.done():  # its number may belong to another process by now
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _shown(line: bytes) -> str:
    return repr(one_line(line.decode(errors="replace"), _MAX_LINE_SHOWN))
