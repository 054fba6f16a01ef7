"""A child process: its start, requests and answers, and its end."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from holodeck.lib.processes.channel import MAX_BODY, BadMessage, FrameReader, Head, frame
from holodeck.lib.processes.process_guard import GUARD, kill_group
from holodeck.lib.support.text import one_line

logger = logging.getLogger(__name__)

CLOSE_S = 3.0
"""How long a process may take to end by itself once its stdin is closed."""
_LAST_WORDS_S = 0.5
"""How long output is still read after the end of the process."""
_MAX_TAIL_LINES, _MAX_TAIL_CHARACTERS, MAX_LINE_SHOWN = 20, 1_000, 300


@dataclass(frozen=True)
class Launch:
    """How a process is started."""

    command: Sequence[str]
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    """All of its variables; None for those of this process."""
    stderr: int | None = asyncio.subprocess.PIPE
    """Where its standard error goes; the end of a pipe is kept for messages."""
    pass_fds: Sequence[int] = ()
    """Files that it inherits."""


def main_of(module: str) -> str:
    """Return the statement that runs `main` of a module of holodeck.

    What it imports stays, so garbage collection begins after it, and examines nothing of it.
    """
    return f"import gc; gc.disable(); from {module} import main; gc.freeze(); gc.enable(); main()"


def python_command(statement: str, path: Sequence[str], *arguments: str) -> list[str]:
    """Return the command that runs a statement of holodeck in this Python.

    Args:
        statement: What it runs.
        path: Where it looks for modules.
        arguments: Those of `sys.argv`.
    """
    program = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop()); {statement}"
    # -P: nothing in the working folder may stand in for a module
    return [sys.executable, "-P", "-c", program, *arguments, json.dumps([*path])]


def how_it_ended(code: int | None) -> str:
    """Return how a process ended, by its return code."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


class ChildEnded(Exception):
    """A process serves no further requests; the message says why."""


class ChildProcess(asyncio.SubprocessProtocol):
    """A process that leads a group of its own, which ends with it and with holodeck.

    It uses no task of the event loop: everything happens when something arrives. Subclasses handle
    the data.

    Attributes:
        name: What messages call it.
        failure: Why it serves no further requests; None while it does.
        is_unresponsive: Whether a request was left without an answer, so that the process is killed
            as soon as no other is under way.
        ended: Done once the process has ended and its output was read.
        pid: The id of the process, and of the group that it leads.
    """

    name = "the process"

    def __init__(self) -> None:
        self.failure: str | None = None
        self.is_unresponsive = False
        self.pid = 0
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._ids = count(1)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._error_line = bytearray()
        self._tail: deque[str] = deque(maxlen=_MAX_TAIL_LINES)
        self._transport: asyncio.SubprocessTransport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._is_group_left = False

    async def start(self, launch: Launch) -> None:
        """Start the process. Raises OSError and ValueError if there is no such program."""
        starting = self._loop.create_task(
            self._loop.subprocess_exec(
                lambda: self,
                *launch.command,
                cwd=launch.cwd,
                env=launch.env,
                stderr=launch.stderr,
                pass_fds=launch.pass_fds,
                start_new_session=True,  # a process group, and no Ctrl-C from the terminal
            )
        )
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # asyncio would end the program only, and wait for what that has started
            with suppress(OSError, ValueError):
                await starting
                await self.close(0)
            raise

    @property
    def is_usable(self) -> bool:
        return self.failure is None and not self.is_unresponsive

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while the process runs."""
        return None if self._transport is None else self._transport.get_returncode()

    def write(self, data: bytes) -> None:
        """Write bytes to its standard input, unless it has ended."""
        stdin = None if self._transport is None else self._transport.get_pipe_transport(0)
        if stdin is not None and self.failure is None:
            cast(asyncio.WriteTransport, stdin).write(data)

    def kill(self, reason: str) -> None:
        """End the process and all processes of its group now."""
        self._kill_group()
        self._fail(reason)

    async def close(self, limit_s: float = CLOSE_S, term_s: float = 0.0) -> None:
        """Let the process end by itself, which it does when stdin ends; else kill it.

        Args:
            limit_s: How long it may take.
            term_s: How long it may then take after SIGTERM; without it, there is none.
        """
        self._fail(f"{self.name} was closed")
        if self._transport is None:
            return
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        try:
            await asyncio.wait([self.ended], timeout=limit_s)
            if term_s and not self.ended.done():
                kill_group(self.pid, signal.SIGTERM)
                await asyncio.wait([self.ended], timeout=term_s)
            self._kill_group()
            await self.ended
        finally:
            self._kill_group()
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

    # Requests

    @contextmanager
    def request(self) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """Yield the number of a request, and its answer; `withdraw` it if it stays without answer.

        Raises what `error` returns, as does the answer.
        """
        if self.failure is not None:
            raise self.error(self.failure)
        number = next(self._ids)
        answer = self._requests[number] = self._loop.create_future()
        try:
            yield number, answer
        finally:
            if self._requests.pop(number, None) is not None:
                self.withdraw(number)

    def answer(self, number: int, answer: object) -> None:
        """Give the answer of the process, which may be an exception, to whoever waits for it."""
        future = self._requests.pop(number, None)
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        if self.is_unresponsive:
            self.retire()

    def withdraw(self, number: int) -> None:  # noqa: ARG002 - for subclasses
        """Withdraw a request whose answer nobody waits for any more."""
        self.retire()

    def retire(self) -> None:
        """Kill the process as soon as nobody waits for an answer of it."""
        self.is_unresponsive = True
        if not self._requests:
            self.kill(
                f"{self.name} was killed, because a call that was cancelled or took too long did"
                " not end"
            )

    # What subclasses say

    def data_read(self, data: bytes) -> None:
        """Handle what it has written to stdout. A BadMessage ends it."""
        raise NotImplementedError

    def error(self, reason: str) -> Exception:
        """Return what a request raises that is not answered for this reason."""
        return ChildEnded(reason)

    def describe_end(self, code: int | None) -> str:
        """Return how the process ended, by its return code."""
        return f"{self.name} {how_it_ended(code)}{self.tail()}"

    def stderr_read(self, data: bytes) -> None:
        """Keep the last lines of standard error, each up to a length."""
        first, *others = data.split(b"\n")
        self._error_line += first[:MAX_LINE_SHOWN]
        for start in others:
            line = one_line(self._error_line.decode(errors="replace"), MAX_LINE_SHOWN)
            if line.strip():
                self._tail.append(line)
                logger.debug("stderr of %s: %s", self.name, line)
            self._error_line = bytearray(start[:MAX_LINE_SHOWN])
        del self._error_line[MAX_LINE_SHOWN:]

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()
        GUARD.watch(self.pid)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr_read(data)
        elif self.failure is None:
            try:
                self.data_read(data)
            except BadMessage as error:
                self.kill(f"{error}{self.tail()}")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1 and self.failure is None:
            closed = f"{self.name} has closed its stdout, where its answers belong"
            self._timers.append(self._loop.call_later(CLOSE_S, self.kill, closed))

    def process_exited(self) -> None:
        self._kill_group()  # what it has started, which may hold its output open
        self._timers.append(self._loop.call_later(_LAST_WORDS_S, self._end))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._end()

    # The end

    def _end(self) -> None:
        """Note the end of the process, once all of its output was read."""
        if self.ended.done():
            return
        if self._error_line:
            self.stderr_read(b"\n")
        self._fail(self.describe_end(self.exit_code))
        for timer in self._timers:
            timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self.ended.set_result(None)

    def _fail(self, reason: str) -> None:
        """Serve no further requests, and fail those that wait for an answer."""
        if self.failure is not None:
            return
        self.failure = reason
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(self.error(reason))
        self._requests.clear()

    def _kill_group(self) -> None:
        """Kill the group once: later, its number may belong to other processes."""
        if self.pid and not self._is_group_left:
            self._is_group_left = True
            kill_group(self.pid)
            GUARD.release(self.pid)


class FramedChild(ChildProcess):
    """A process of holodeck's own, which answers messages with the number of their request first.

    Args:
        max_body: Bytes that the body of an answer may have.
    """

    def __init__(self, max_body: int = MAX_BODY) -> None:
        super().__init__()
        self._reader = FrameReader(max_body)

    @contextmanager
    def call(self, head: Head, body: bytes = b"") -> Iterator[asyncio.Future[tuple[Head, bytes]]]:
        """Send a request and yield its answer, the rest of the head and the body."""
        with self.request() as (number, answer):
            self.write(frame([number, *head], body))
            yield answer

    def data_read(self, data: bytes) -> None:
        for (number, *head), body in self._reader.feed(data):
            self.answer(number, (head, body))


def program_path(program: str, folder: Path) -> str:
    """Return the program; with a slash in it, it is a path that starts from the folder.

    Links are kept: they are what makes the `python` of a virtual environment find its packages.
    """
    return str(folder.absolute() / program) if os.sep in program else program
