"""Calls graders in a process beside the run, which they can neither end nor hang.

The process starts with the first grader, is reused, and is replaced once it has ended or hangs.
"""

import asyncio
import faulthandler
import logging
import marshal
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from marshal import dumps as dump_plain  # bound before a grader may replace it
from pathlib import Path
from typing import Any, TypeVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import PREPARE_S, Observation, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.processes.channel import FrameReader, Head, Parent
from holodeck.lib.processes.child_process import (
    CLOSE_S,
    ChildEnded,
    FramedChild,
    Launch,
    how_it_ended,
    main_of,
    python_command,
)
from holodeck.lib.processes.process_exit import exit_now, forbid_process_exit
from holodeck.lib.processes.threads import LoopThread, RunLoop
from holodeck.lib.support.source_files import display_code_path, is_users_file
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.code_root import (
    CodeFolders,
    code_roots,
    files_of_agents,
    importing_grader,
    imports_of,
    is_imported_by_others,
    path_for_children,
)
from holodeck.lib.user_code.raised import raised_error
from holodeck.lib.user_code.registry import load_callable, module_file
from holodeck.models.results.outcome import RaisedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

OWN_REASON = "reason: "
"""Begins what the process itself writes into the file for crashes."""
_FIELDS = tuple(field.name for field in fields(Score))
_RESPONSE_S = 2.0
"""How long a process that is called may take to say that it can be called again."""


@dataclass(frozen=True)
class GraderCall:
    """Which grader is called, and how."""

    target: str
    """`module:callable`."""
    base_dir: CodeFolders
    threshold: float | None
    retry_config: RetryConfig


class Late(Exception):
    """A grader exceeded its time limit, and no other code kept it from running."""


class NotSendable(Exception):
    """What the grader is called with cannot be sent to another process."""


def may_run_elsewhere(target: str, base_dir: CodeFolders) -> bool:
    """Whether a grader of the agent's folder gives the same verdict in another process.

    One that shares a module with the agent or with other code of this process has to run here:
    elsewhere, it would not see what they changed. So has a grader whose imports cannot be known.
    """
    file = module_file(target, base_dir)
    if file is None or sys.gettrace() is not None:  # a debugger, or coverage
        return False
    imports = imports_of(file, code_roots(base_dir))
    files = files_of_agents().items()
    agents = [imports_of(path, roots) for path, roots in files if path.is_file()]
    is_known = imports.is_complete and all(agent.is_complete for agent in agents)
    is_shared = any(not imports.files.isdisjoint(agent.files) for agent in agents)
    return is_known and not is_shared and not is_imported_by_others(imports.files)


class IsolatedEvaluator(CustomEvaluator):
    """Calls a grader in the process of graders, if it gives the same verdict there.

    Args:
        target: The grader in this process.
        call: How it is called in the other one.
        process: The process of graders.
        timeout: As for `BaseEvaluator`.
    """

    def __init__(
        self,
        target: Callable[[Observation], Any],
        call: GraderCall,
        process: "GraderProcess",
        timeout: float | None,
    ) -> None:
        super().__init__(target, call.threshold, timeout=timeout, retry_config=call.retry_config)
        self._grader, self._process = call, process
        self._decided: tuple[int, bool] | None = None

    @property
    def is_isolated(self) -> bool:
        """Whether the grader is called in the other process, as far as is known by now."""
        loaded = len(files_of_agents())
        if self._decided is None or self._decided[0] != loaded:
            self._decided = loaded, may_run_elsewhere(self._grader.target, self._grader.base_dir)
        return self._decided[1]

    async def prepare(self) -> None:
        if self.is_isolated:
            await self._process.prepare(self._grader)

    async def _run(self, kwargs: Mapping[str, Any]) -> Score | dict[str, Any]:
        if self.is_isolated:
            try:
                return await self._process.evaluate(
                    self._grader, kwargs["observation"], self.timeout
                )
            except Late as error:
                raise self._late() from error
            except NotSendable as error:
                logger.info("%s runs in this process: %s", self._grader.target, error)
        return await super()._run(kwargs)


class _Child(FramedChild):
    """One process of graders."""

    name = "it"

    def __init__(self) -> None:
        super().__init__()
        self._crash_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._loaded: set[GraderCall] = set()
        self._has_answered = False
        self.evaluations = 0
        """How many it began."""

    async def begin(self) -> None:
        """Start the process."""
        descriptor = self._crash_file.fileno()
        command = python_command(main_of(__name__), path_for_children(), str(descriptor))
        self.ended.add_done_callback(lambda _: self._crash_file.close())
        await self.start(Launch(command, stderr=None, pass_fds=(descriptor,)))

    async def responds(self) -> bool:
        """Whether it takes another call: it is idle, or what it calls lets others run."""
        return self.is_usable and (not self._requests or await self._answers())

    async def load(self, call: GraderCall) -> None:
        """Import a grader. Raises ChildEnded and EvaluationError."""
        if call in self._loaded:
            return
        if not await self._answers():  # an earlier grader left a thread that lets no other run
            raise ChildEnded("it hung")
        await self._ask(pickle.dumps((call, None)), PREPARE_S)
        self._loaded.add(call)

    async def _answers(self) -> bool:
        try:
            await self._ask(b"", _RESPONSE_S if self._has_answered else PREPARE_S)
        except (TimeoutError, ChildEnded):
            return False
        return self.is_usable

    async def _ask(self, request: bytes, limit_s: float) -> None:
        with self.call([], request) as answer:
            async with asyncio.timeout(limit_s):
                _, body = await answer
        self._has_answered = True
        _result_of(body)

    async def evaluate(self, call: GraderCall, request: bytes, limit_s: float | None) -> Score:
        """Return the result of a grader. Raises ChildEnded, Late, EvaluationError, NotSendable.

        If a grader is late because others do not let it run, the process is killed.
        """
        self.evaluations += 1
        await self.load(call)
        with self.call([], request) as answer:
            try:
                async with asyncio.timeout(limit_s):
                    _, body = await answer
            except TimeoutError:
                if self.evaluations == 1 or await self._answers():
                    raise Late from None
                self.kill("it hung")
                raise ChildEnded("it hung") from None
        return Score(**_result_of(body))

    def describe_end(self, code: int | None) -> str:
        """Return how it ended, and where: by what it wrote into the file for crashes."""
        self._crash_file.seek(0)
        dump = self._crash_file.read().decode(errors="replace")
        if dump.startswith(OWN_REASON):
            return dump.removeprefix(OWN_REASON)
        return f"it {how_it_ended(code)}{_place_in(dump)}"


def _result_of(body: bytes) -> Any:
    try:
        answer = marshal.loads(body)  # noqa: S302 - holds plain data only
    except (EOFError, TypeError, ValueError):
        answer = body
    match answer:
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
    """Return the innermost line of the user's code in what `faulthandler` wrote; "" without any."""
    thread = dump.partition("Current thread")[2].partition("\n\n")[0]
    for line in thread.splitlines():
        _, quote, rest = line.partition('File "')
        file, _, line_and_name = rest.partition('", line ')
        if quote and is_users_file(file):
            return f" ({display_code_path(file)}:{line_and_name.partition(' ')[0]})"
    return ""


class GraderProcess:
    """The process of a run, on an event loop of its own. It ends with `close()` and the program."""

    def __init__(self) -> None:
        self._thread = LoopThread("holodeck-grader")
        self._child: _Child | None = None
        self._starting = asyncio.Lock()

    async def prepare(self, call: GraderCall) -> None:
        """Start it, unless it runs, and load a grader there. Raises EvaluationError."""
        with suppress(ChildEnded):  # the evaluation finds out who ended it
            await self._run(self._prepare(call))

    async def evaluate(
        self, call: GraderCall, observation: Observation, limit_s: float | None
    ) -> Score:
        """Return the result of a grader. Raises EvaluationError, Late and NotSendable.

        If the process ends or hangs, the graders that it called are called again, each in a process
        of its own and for `limit_s` seconds: that shows which of them ended it.
        """
        try:
            request = pickle.dumps((call, observation))
        except Exception as error:
            raise NotSendable(str(error)) from error
        try:
            return await self._run(self._evaluate(call, request, limit_s))
        except ChildEnded as ended:
            case = f" in case {observation.case_name!r}" if observation.case_name else ""
            message = f"the grader {call.target!r}{case} ended its process: {ended}"
            raise EvaluationError(message) from None

    async def close(self) -> None:
        """End the process; a later call starts another."""
        child, self._child, self._starting = self._child, None, asyncio.Lock()
        if child is not None:
            await self._run(child.close())
        self._thread.close(CLOSE_S)

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(coroutine))

    async def _prepare(self, call: GraderCall) -> None:
        await (await self._usable()).load(call)

    async def _evaluate(self, call: GraderCall, request: bytes, limit_s: float | None) -> Score:
        child = await self._usable()
        try:
            return await child.evaluate(call, request, limit_s)
        except ChildEnded:
            if child.evaluations == 1:
                raise
        alone = _Child()
        try:
            await alone.begin()
            return await alone.evaluate(call, request, limit_s)
        finally:
            await alone.close()

    async def _usable(self) -> _Child:
        """Return a process that responds; another finishes the calls that it has."""
        child = self._child
        is_usable = child is not None and await child.responds()
        async with self._starting:
            if self._child is None or (self._child is child and not is_usable):
                child = _Child()
                await child.begin()
                self._child = child
            return self._child


def main() -> None:
    """Call graders until standard input ends."""
    parent = Parent(FrameReader())
    _be_killed_first()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as dump:
        faulthandler.enable(dump)
        forbid_process_exit()
        try:
            with asyncio.Runner(loop_factory=RunLoop) as runner:
                runner.run(_serve(parent))
        except BaseException as error:  # noqa: BLE001 - a grader broke the event loop or a library
            faulthandler.disable()
            dump.write(f"{OWN_REASON}it broke its event loop ({type(error).__name__})")
            dump.close()
            exit_now(1)
        faulthandler.disable()


def _be_killed_first() -> None:
    """Let Linux kill this process, not the run, when memory is exhausted."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


async def _serve(parent: Parent[tuple[Head, bytes]]) -> None:
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    running = set[asyncio.Task[None]]()

    def begin(requests: list[tuple[Head, bytes]]) -> None:
        for (number,), request in requests:
            task = loop.create_task(_answer(number, request, parent))
            running.add(task)
            task.add_done_callback(running.discard)

    def end() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_over.set)

    parent.listen(lambda requests: loop.call_soon_threadsafe(begin, requests), end)
    await is_over.wait()


async def _answer(number: int, request: bytes, parent: Parent[tuple[Head, bytes]]) -> None:
    answer = await _evaluate(request)
    try:
        data = dump_plain(answer)
    except ValueError:  # an object of the user's
        why = f"the grader's result holds more than text and numbers: {answer!r:.200}"
        data = dump_plain(("error", why, None))
    with suppress(OSError):  # a grader has closed the descriptor
        parent.send([number], data)


async def _evaluate(request: bytes) -> tuple[Any, ...]:
    if not request:
        return "result", None
    try:
        call, observation = pickle.loads(request)  # noqa: S301 - from holodeck
    except Exception as error:  # noqa: BLE001 - a class of the user's may raise anything
        return "unreadable", describe(error)
    try:
        evaluator = _evaluator(call)
        if observation is None:
            return "result", None
        score = await evaluator.evaluate_observation(observation)
        return "result", {name: getattr(score, name) for name in _FIELDS}
    except BaseException as error:  # noqa: BLE001 - user code; no signal ends this process
        message, raised = describe(error), raised_error(error)
        if not isinstance(error, Exception):
            message = f"{call.target} raised {message}"
        return "error", message, None if raised is None else raised.model_dump()


@cache
def _evaluator(call: GraderCall) -> CustomEvaluator:
    """Return the evaluator of a grader, whose time limit is the caller's."""
    with importing_grader():
        target = load_callable(call.target, call.base_dir)
    return CustomEvaluator(target, call.threshold, timeout=None, retry_config=call.retry_config)
