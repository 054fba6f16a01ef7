"""One process of graders: how it is started, asked, watched and ended."""

import asyncio
import json
import marshal
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import PREPARE_S
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.processes.process_guard import GroupGuard
from holodeck.lib.user_code.code_root import path_for_children
from holodeck.models.results.outcome import RaisedError

OWN_REASON = "reason: "
"""Begins what the process itself writes into the file for crashes."""
_Answer = tuple[Any, ...]
_THREAD = "holodeck-grader"
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop());"
    " from holodeck.lib.evaluators.grader_child import main; main()"
)
_CLOSE_S = 3.0
"""How long the process may take to end by itself, which flushes the files that graders wrote."""
_RESPONSE_S = 2.0
"""How long a process that is called may take to say that it can be called again."""


@dataclass(frozen=True)
class GraderCall:
    """Which grader is called, and how."""

    target: str
    """`module:callable`."""
    base_dir: Path
    threshold: float | None
    retry_config: RetryConfig


class Ended(Exception):
    """The process ended while it called a grader; the message says how."""


class Late(Exception):
    """A grader exceeded its time limit, and no other code kept it from running."""


class NotSendable(Exception):
    """What the grader is called with cannot be sent to another process."""


class Child:
    """One process. It is asked from any event loop; threads of it carry requests and answers."""

    def __init__(self) -> None:
        descriptor, self._crash_file = tempfile.mkstemp(prefix="holodeck-grader-")
        os.close(descriptor)
        self._process = subprocess.Popen(
            (
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                self._crash_file,
                json.dumps(path_for_children()),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # no Ctrl-C from the terminal
        )
        self._guard = GroupGuard(self._process.pid)
        self._requests: SimpleQueue[tuple[int, bytes | None] | None] = SimpleQueue()
        self._calls: dict[int, Callable[[_Answer | Ended], None]] = {}
        self._loaded: set[GraderCall] = set()
        self._lock = threading.Lock()
        self._last = 0
        self._is_started = False
        self._ended: Ended | None = None
        self.is_usable = True
        """Whether it takes further calls."""
        self.evaluations = 0
        """How many it began."""
        self._end = weakref.finalize(self, _kill, self._process, self._guard, self._crash_file)
        targets = (self._wait, self._read, self._write)
        threads = [threading.Thread(target=target, name=_THREAD, daemon=True) for target in targets]
        self._waiter, self._reader, _ = threads
        for thread in threads:
            thread.start()

    def has_loaded(self, call: GraderCall) -> bool:
        """Whether it takes further calls and has loaded a grader."""
        return self.is_usable and call in self._loaded

    async def responds(self) -> bool:
        """Whether it takes another call: it is idle, or what it calls lets others run."""
        return self.is_usable and (not self._calls or await self._answers())

    async def load(self, call: GraderCall) -> None:
        """Import a grader. Raises Ended and EvaluationError."""
        if call in self._loaded:
            return
        if not await self._answers():  # an earlier grader left a thread that lets no other run
            raise Ended("it hung")
        async with asyncio.timeout(PREPARE_S):
            await self._ask(pickle.dumps((call, None)))
        self._loaded.add(call)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(_RESPONSE_S if self._is_started else PREPARE_S):
                await self._ask(None)
        except (TimeoutError, Ended):
            self.is_usable = False
        return self.is_usable

    async def evaluate(
        self, call: GraderCall, request: bytes, limit_s: float | None
    ) -> dict[str, Any]:
        """Return the result of a grader. Raises Ended, Late, EvaluationError and NotSendable.

        If a grader is late because others do not let it run, the process is killed.
        """
        self.evaluations += 1
        await self.load(call)
        scope = asyncio.timeout(limit_s)
        async with self._begin(request) as answer:
            try:
                async with scope:
                    result: dict[str, Any] = _result_of(await answer)
                    return result
            except TimeoutError:
                if self.evaluations == 1 or await self._answers():
                    raise Late from None
                _end_group(self._process)
                raise Ended("it hung") from None

    async def _ask(self, request: bytes | None) -> None:
        async with self._begin(request) as answer:
            _result_of(await answer)

    @asynccontextmanager
    async def _begin(self, request: bytes | None) -> AsyncIterator["asyncio.Future[Any]"]:
        """Yield the answer to a request.

        A call whose answer nobody waits for may go on in the process: it takes no further calls,
        and is killed once nobody waits for any.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Answer | Ended] = loop.create_future()

        def set_answer(value: _Answer | Ended) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, answer, value)

        with self._lock:
            self._last += 1
            number = self._last
            if self._ended is None:
                self._calls[number] = set_answer
            else:
                answer.set_result(self._ended)
        self._requests.put((number, request))
        try:
            yield answer
        finally:
            with self._lock:
                is_unanswered = self._calls.pop(number, None) is not None
                is_idle = not self._calls
            if is_unanswered:
                self.is_usable = False
            if is_idle and not self.is_usable:
                _end_group(self._process)

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - a pipe was asked for
        with suppress(OSError), stream:  # it has ended: its reader tells
            while (request := self._requests.get()) is not None:
                marshal.dump(request, stream)
                stream.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - a pipe was asked for
        # A grader may write anything to the descriptor, or close it.
        with suppress(Exception), stream:
            while True:
                number, answer = marshal.load(stream)  # noqa: S302 - holds plain data only
                self._is_started = True
                with self._lock:
                    set_answer = self._calls.pop(number, None)
                if set_answer is not None:
                    set_answer(answer)
        self.is_usable = False
        self._requests.put(None)
        ended = Ended(self._how_it_ended())
        with self._lock:
            waiting, self._calls, self._ended = self._calls, {}, ended
        for set_answer in waiting.values():
            set_answer(ended)
        self._end()

    def _how_it_ended(self) -> str:
        self._waiter.join(_CLOSE_S)
        is_killed = self._waiter.is_alive()  # it closed its pipes, but does not end
        _end_group(self._process)
        self._waiter.join()
        if is_killed:
            return "it closed its connection to holodeck"
        code = self._process.returncode
        how = f"exit code {code}"
        if code < 0:
            with suppress(ValueError):
                how = signal.Signals(-code).name
        with suppress(OSError):
            dump = Path(self._crash_file).read_text(errors="replace")
            if dump.startswith(OWN_REASON):
                return dump.removeprefix(OWN_REASON)
            return how + _place_in(dump)
        return how

    def _wait(self) -> None:
        self._process.wait()
        _kill_group(self._process.pid)  # what graders started, and forks that hold the pipes

    def close(self) -> None:
        """Let the process end by itself, else kill it; it is over on return."""
        self.is_usable = False
        self._requests.put(None)
        self._waiter.join(_CLOSE_S)
        _end_group(self._process)
        self._reader.join(_CLOSE_S)
        self._end()


def _kill(process: subprocess.Popen[bytes], guard: GroupGuard, crash_file: str) -> None:
    _end_group(process)
    guard.close()
    Path(crash_file).unlink(missing_ok=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, unless it has ended, and what it started."""
    if process.poll() is None:
        process.kill()
        _kill_group(process.pid)


def _kill_group(group: int) -> None:
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _settle(answer: "asyncio.Future[_Answer | Ended]", value: "_Answer | Ended") -> None:
    if not answer.done():
        answer.set_result(value)


def _result_of(answer: "_Answer | Ended") -> Any:
    match answer:
        case Ended():
            raise answer
        case ("result", result):
            return result
        case ("unreadable", str(why)):
            raise NotSendable(why)
        case ("error", str(message), raised):
            error = EvaluationError(message)
            error.raised = raised if raised is None else RaisedError(**raised)
            raise error
    raise EvaluationError(f"the process of graders answered {answer!r}")


def _place_in(dump: str) -> str:
    """Return the innermost line of the user's code in what `faulthandler` wrote; "" without one."""
    # Imported here because few graders crash.
    from holodeck.lib.user_code.raised import display_path, is_users_file  # noqa: PLC0415

    thread = dump.partition("Current thread")[2].partition("\n\n")[0]
    for line in thread.splitlines():
        _, quote, rest = line.partition('File "')
        file, _, line_and_name = rest.partition('", line ')
        if quote and is_users_file(file):
            return f" ({display_path(file)}:{line_and_name.partition(' ')[0]})"
    return ""
