"""Calls graders that could crash the interpreter in a process beside the run.

The process starts with the first such grader, is reused, and is replaced once it has ended.
"""

import asyncio
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation, RetriedRun, ScoredEvaluator
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.registry import module_file
from holodeck.lib.source_imports import imports_of
from holodeck.lib.threads import run_in_thread
from holodeck.lib.user_code import files_of_agents, is_imported_by_others

logger = logging.getLogger(__name__)

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop());"
    " from holodeck.lib.evaluators.grader_child import main; main()"
)
_CLOSE_S = 3.0
"""How long the process may take to end by itself, which flushes the files that graders wrote."""
_CANNOT_CRASH = frozenset(
    [
        "__future__",
        "abc",
        "ast",
        "asyncio",
        "base64",
        "bisect",
        "calendar",
        "collections",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "html",
        "inspect",
        "itertools",
        "json",
        "keyword",
        "logging",
        "math",
        "numbers",
        "operator",
        "pathlib",
        "pprint",
        "random",
        "re",
        "statistics",
        "string",
        "textwrap",
        "threading",
        "time",
        "types",
        "typing",
        "unicodedata",
        "urllib",
        "uuid",
        "warnings",
        "zoneinfo",
        "holodeck",
    ]
)
"""Packages with which code cannot end the interpreter."""


@dataclass(frozen=True)
class GraderCall:
    """Which grader is called, and how."""

    target: str
    """`module:callable`."""
    base_dir: Path
    threshold: float | None
    retry_config: RetryConfig


def can_crash(target: str, base_dir: Path | None) -> bool:
    """Whether a grader of the agent's folder might crash the interpreter, and may run elsewhere.

    One that shares a module with the agent or with other code of this process has to run here:
    elsewhere, it would not see what they changed. So has one whose imports cannot be known.
    """
    file = None if base_dir is None else module_file(target, base_dir)
    if file is None or sys.gettrace() is not None:  # a debugger, or coverage
        return False
    imports = imports_of(file)
    if all(name.partition(".")[0] in _CANNOT_CRASH for name in imports.modules):
        return False
    agents = [imports_of(path) for path in files_of_agents() if path.is_file()]
    is_known = imports.is_complete and all(one.is_complete for one in agents)
    is_shared = any(not imports.files.isdisjoint(one.files) for one in agents)
    return is_known and not is_shared and not is_imported_by_others(imports.files)


class Isolation:
    """How one grader is called in the process, if it has to be."""

    def __init__(self, process: "GraderProcess", target: str, base_dir: Path | None) -> None:
        self.process = process
        self._target = target
        self._base_dir = base_dir
        self._decided: tuple[int, bool] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the grader could crash the interpreter, and may run elsewhere."""
        loaded = len(files_of_agents())
        if self._decided is None or self._decided[0] != loaded:
            self._decided = loaded, can_crash(self._target, self._base_dir)
        return self._decided[1]

    def new_run(self, evaluator: ScoredEvaluator, here: RetriedRun) -> RetriedRun:
        """Return an evaluation in the process, or `here` if the inputs cannot be sent there."""
        assert self._base_dir is not None  # noqa: S101 - `is_needed` says so
        settings = (evaluator.threshold, evaluator.retry_config)
        return _IsolatedRun(self.process, GraderCall(self._target, self._base_dir, *settings), here)


class _IsolatedRun(RetriedRun):
    """One evaluation in the process, which repeats it there."""

    def __init__(self, process: "GraderProcess", call: GraderCall, here: RetriedRun) -> None:
        self._process, self._call, self._here = process, call, here
        self.retries = 0

    async def __call__(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._process.evaluate(self._call, kwargs["observation"])
        except NotSendable as error:
            logger.info("%s runs in this process: %s", self._call.target, error)
            return await self._here(kwargs)


class _Ended(Exception):
    """The process ended while it called a grader; the message says how."""


class GraderProcess:
    """The process of a run. It ends with `close()`, with this object, and with the program."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._lock = threading.Lock()

    async def start(self) -> None:
        """Start it, unless it runs; return once it can call graders. Raises EvaluationError."""
        try:
            await self._usable().call(None)
        except _Ended as ended:
            raise EvaluationError(f"the process of graders ended: {ended}") from None

    async def evaluate(self, call: GraderCall, observation: Observation) -> dict[str, Any]:
        """Return the result of a grader. Raises EvaluationError.

        If the process ends, the graders that it called at that time are called again, each in a
        process of its own: that shows which of them ended it.
        """
        try:
            request = pickle.dumps((call, observation))
        except Exception as error:
            raise NotSendable(str(error)) from error
        with suppress(_Ended):
            result: dict[str, Any] = await self._usable().call(request)
            return result
        # Even the only one may have been sent to a process that had ended for another reason.
        alone = _Child()
        try:
            result = await alone.call(request)
        except _Ended as ended:
            raise _crash(call, observation, ended) from None
        finally:
            await run_in_thread(alone.close)
        return result

    def _usable(self) -> "_Child":
        with self._lock:
            if self._child is None or not self._child.is_usable:
                self._child = _Child()
            return self._child

    async def close(self) -> None:
        """End the process; a later call starts another."""
        child, self._child = self._child, None
        if child is not None:
            await run_in_thread(child.close)


class NotSendable(Exception):
    """What the grader is called with cannot be sent to another process."""


def _crash(call: GraderCall, observation: Observation, ended: _Ended) -> EvaluationError:
    case = f" in case {observation.case_name!r}" if observation.case_name else ""
    return EvaluationError(f"the grader {call.target!r}{case} ended its process: {ended}")


class _Child:
    """One process. It is asked from any event loop; a thread of it reads the answers."""

    def __init__(self) -> None:
        descriptor, self._crash_file = tempfile.mkstemp(prefix="holodeck-grader-")
        os.close(descriptor)
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-c", _PROGRAM, self._crash_file, json.dumps(sys.path)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # no Ctrl-C from the terminal
        )
        self._calls: dict[int, Callable[[tuple[Any, ...] | _Ended], None]] = {}
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._last = 0
        self.is_usable = True
        """Whether it takes further calls."""
        self._reader = threading.Thread(target=self._read, name="holodeck-grader", daemon=True)
        self._reader.start()
        self._end = weakref.finalize(self, _kill, self._process, Path(self._crash_file))

    async def call(self, request: bytes | None) -> Any:
        """Return the answer to a request. Raises _Ended, EvaluationError and NotSendable.

        A call that is cancelled, as by a time limit, may go on in the process: it takes no further
        calls, and is killed once nobody waits for an answer.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, ...] | _Ended] = loop.create_future()

        def set_answer(value: tuple[Any, ...] | _Ended) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, answer, value)

        with self._lock:
            self._last += 1
            number = self._last
            self._calls[number] = set_answer
        try:
            await run_in_thread(lambda: self._send(number, request))
            return _result_of(await answer)
        except asyncio.CancelledError:
            self._retire(number)
            raise

    def _send(self, number: int, request: bytes | None) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - a pipe was asked for
        with self._writing, suppress(OSError, ValueError):  # it has ended: its reader tells
            pickle.dump((number, request), stream)
            stream.flush()
        if not self._reader.is_alive():
            self._fail()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - a pipe was asked for
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError), stream:
            while True:
                number, *answer = pickle.load(stream)  # noqa: S301 - from our own process
                with self._lock:
                    set_answer = self._calls.pop(number, None)
                if set_answer is not None:
                    set_answer(tuple(answer))
        self._fail()

    def _fail(self) -> None:
        """Tell everybody who waits that the process has ended."""
        self.is_usable = False
        with self._lock:
            waiting, self._calls = self._calls, {}
        self._close_requests()
        ended = _Ended(self._how_it_ended())
        for set_answer in waiting.values():
            set_answer(ended)

    def _how_it_ended(self) -> str:
        code = self._wait_or_kill()
        with suppress(OSError):
            place = Path(self._crash_file).read_text(errors="replace")
            Path(self._crash_file).unlink()
            how = f"exit code {code}"
            if code < 0:
                with suppress(ValueError):
                    how = signal.Signals(-code).name
            return how + _place_in(place)
        return f"exit code {code}"

    def _retire(self, number: int) -> None:
        self.is_usable = False
        with self._lock:
            self._calls.pop(number, None)
            is_idle = not self._calls
        if is_idle:
            self._process.kill()

    def _close_requests(self) -> None:
        with self._writing, suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def close(self) -> None:
        """Let the process end by itself, else kill it; it is over on return."""
        self.is_usable = False
        self._close_requests()
        self._wait_or_kill()
        self._reader.join()
        self._end.detach()

    def _wait_or_kill(self) -> int:
        """Return the exit code; a process that closed its pipes but does not end is killed."""
        try:
            return self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _kill(process: subprocess.Popen[bytes], crash_file: Path) -> None:
    process.kill()
    crash_file.unlink(missing_ok=True)


def _settle(
    answer: "asyncio.Future[tuple[Any, ...] | _Ended]", value: tuple[Any, ...] | _Ended
) -> None:
    if not answer.done():
        answer.set_result(value)


def _result_of(answer: tuple[Any, ...] | _Ended) -> Any:
    match answer:
        case _Ended():
            raise answer
        case ("result", result):
            return result
        case ("unreadable", why):
            raise NotSendable(why)
        case ("error", message, raised):
            error = EvaluationError(message)
            error.raised = raised
            raise error
    raise EvaluationError(f"the process of graders answered {answer!r}")


def _place_in(dump: str) -> str:
    """Return the innermost line of the user's code in what `faulthandler` wrote; "" without one."""
    # Imported here because few graders crash.
    from holodeck.lib.exceptions import display_path, is_users_file  # noqa: PLC0415

    thread = dump.partition("Current thread")[2].partition("\n\n")[0]
    for line in thread.splitlines():
        _, quote, rest = line.partition('File "')
        file, _, line_and_name = rest.partition('", line ')
        if quote and is_users_file(file):
            return f" ({display_path(file)}:{line_and_name.partition(' ')[0]})"
    return ""
