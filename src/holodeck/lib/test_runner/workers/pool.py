"""Worker processes that run the cases of an agent; the parent keeps limits, record and progress.

A worker that ends in the middle is replaced, and each of its cases runs once more; a case that ends
two workers is an error of its own. Workers that end without a result between them end the run.
"""

import asyncio
import contextvars
import itertools
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from holodeck.errors import BackendInitError, ExecutionError, HoloDeckError
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import build_limiters
from holodeck.lib.llm.shared_limits import SLOT_MESSAGES, SlotsOfWorker
from holodeck.lib.observability.names import ELSEWHERE
from holodeck.lib.processes.channel import BadMessage, FrameReader, Head, frame
from holodeck.lib.processes.process_exit import note_process_exit
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.test_runner.case_run import CaseSetup, FinishedRun
from holodeck.lib.test_runner.events import FollowedRun
from holodeck.lib.test_runner.workers.connection import (
    ENDED,
    Connection,
    Place,
    WorkerTask,
    unpack_error,
    unpack_result,
)
from holodeck.lib.ui.activity import Activity, current_case, displayed
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

logger = logging.getLogger(__name__)

_GRACE_S = 2.0
"""How long a worker may take to confirm that a run was cancelled, or to close its agent."""
CLOSE_S = 10.0
"""How long the workers of a run may take to close their agents."""
_MAX_FRUITLESS = 3
"""Workers that end one after the other, without a result of any, before the run ends."""
_RAN_AGAIN = "a worker process ended while it ran cases, which ran again"
_MAX_RUNS = 2
"""Workers that a case may end."""


class WorkerEnded(Exception):
    """A worker ended while it ran a case."""


@dataclass(eq=False)
class WorkerRun:
    """A run of a case in a worker process."""

    pool: "WorkerPool"
    index: int
    case: TestCaseModel
    repetition: int
    """From 1."""
    followed: FollowedRun = field(init=False)
    """Publishes the events of the present try."""
    finished: asyncio.Future[FinishedRun] = field(init=False)
    """The end of the present try."""
    is_cancelled: bool = field(default=False, init=False)
    context: contextvars.Context = field(init=False)
    """Of the task that waits: what the run waits for is shown as that of its case."""
    _interrupted: TestResult | None = field(default=None, init=False)

    async def run(self) -> FinishedRun:
        """Run the case, once more if its worker ends. Raises HoloDeckError if all runs end."""
        for last in range(1, _MAX_RUNS + 1):
            try:
                return await self.pool.run(self)
            except WorkerEnded as ended:
                reason = str(ended)
                logger.warning("case %s: %s", self.case.name or self.index + 1, reason)
                if last < _MAX_RUNS:
                    self.pool.add_notes([_RAN_AGAIN])
        reason = f"{reason}, {_MAX_RUNS} times"
        result = self.pool.setup.lost_result(self.index, self.case, reason)
        return FinishedRun(result, failure="error")

    def interrupted_result(self) -> TestResult | None:
        """Return the result of a cancelled run; None if nothing was graded by then."""
        return self._interrupted

    def finish(self, end: FinishedRun | HoloDeckError) -> None:
        """End the present try, unless it has ended."""
        if self.finished.done():
            return
        if isinstance(end, HoloDeckError):
            self.finished.set_exception(end)
        else:
            self.finished.set_result(end)

    def cancelled(self, body: bytes) -> None:
        """Note that the worker has cancelled the run; `body` is its result, or empty."""
        if body:
            self._interrupted = unpack_result(body)
        if self.is_cancelled:
            self.finished.cancel()
        else:
            self.finish(ExecutionError("the agent's code cancelled its own run"))


class _Worker:
    """A worker process, from the parent's point of view."""

    def __init__(self, pool: "WorkerPool", limiters: Limiters) -> None:
        self._pool = pool
        self._connection: Connection | None = None
        self._is_killed = False
        self._reader = FrameReader()
        self.slots = SlotsOfWorker(limiters, self.send)
        self.ready: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self.runs: dict[int, WorkerRun] = {}
        self.has_finished_any = False
        self._activities: dict[int, Activity] = {}

    def send(self, message: Head, body: bytes = b"") -> None:
        """Send a message."""
        if self._connection is not None:  # nothing may come before `start`
            self._connection.write(frame(message, body))

    async def listen(self, place: Place, task: bytes) -> None:
        """Start the worker and handle what it sends until it ends."""
        ended = "the worker was not started"
        try:
            async with place.open_worker(self._read) as connection:
                self._connection = connection
                if self._is_killed:
                    connection.kill(ENDED)
                self.send(["start"], task)
                ended = await connection.wait()
                self._pool.forget(self)
        except HoloDeckError as error:
            ended = str(error)
        finally:
            self._pool.forget(self)
            await self.slots.close()
            for number in list(self._activities):
                self._end_activity(number)
            self._fail(ended)

    def _read(self, data: bytes) -> None:
        try:
            for message, body in self._reader.feed(data):
                self._handle(message, body)
        except (LookupError, ValueError) as error:
            logger.debug("a worker sent what is no message: %s", error)
            raise BadMessage("the worker process sent what is no message") from error

    def _fail(self, ended: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(BackendInitError(ended))
            self.ready.exception()  # nobody may wait for it any more
        for run in self.runs.values():
            if not run.finished.done():
                run.finished.set_exception(WorkerEnded(ended))

    @property
    def is_ready(self) -> bool:
        """Whether it can run cases."""
        return self.ready.done() and self.ready.exception() is None

    def kill(self) -> None:
        """End the worker and what it has started, now or as soon as it has begun."""
        self._is_killed = True
        if self._connection is not None:
            self._connection.kill(ENDED)

    def _handle(self, message: Head, body: bytes) -> None:
        kind = message[0]
        if kind in SLOT_MESSAGES:
            asking = self.runs.get(message[-1]) if kind == "enter" else None
            if asking is None:
                self.slots.handle(message)
            else:
                asking.context.run(self.slots.handle, message)
        elif kind in {"ready", "failed", "reached", "down", "judge"}:
            self._handle_start(message)
        else:
            self._handle_run(message, body)

    def _handle_start(self, message: Head) -> None:
        match message:
            case ["reached" | "down", _]:
                self._pool.tell_others(self, message)
            case ["judge", _, _, _]:
                self._pool.tell_judges(self, message)
            case ["ready", *_]:
                self._pool.tell_new(self)
                self.ready.set_result(message)
            case ["failed", name, args, fields]:
                self.ready.set_exception(unpack_error(name, args, fields))

    def _handle_run(self, message: Head, body: bytes) -> None:
        match message:
            case ["done", number, failure, is_permanent, refusal, notes]:
                self._pool.add_notes(notes)
                result = unpack_result(body)
                self._finish(number, FinishedRun(result, failure, is_permanent, refusal))
            case ["cancelled", number]:
                self.has_finished_any = True
                self.runs[number].cancelled(body)
            case ["error", number, name, args, fields]:
                self._finish(number, unpack_error(name, args, fields))
            case ["began", number, case_run, text, timed, seconds, reason]:
                ends_at = None if seconds is None else time.monotonic() + seconds
                activity = Activity(text, timed, ends_at, reason, self._case_of(case_run))
                self._begin_activity(number, activity)
            case ["ended", number]:
                self._end_activity(number)
            case ["exit", text]:
                note_process_exit(text)
            case ["log", name, level, text]:
                logging.getLogger(name).log(level, "%s", text, extra={ELSEWHERE: True})
            case ["event", number, stream, kind] if (run := self.runs.get(number)) is not None:
                run.followed.handle(stream, kind, body)

    def _finish(self, number: int, end: FinishedRun | HoloDeckError) -> None:
        self.has_finished_any = True
        self.runs[number].finish(end)

    def _case_of(self, number: int) -> object:
        """Return the case of a run, as the display knows it; None if the run is over."""
        run = self.runs.get(number)
        return None if run is None else run.context.run(current_case)

    def _begin_activity(self, number: int, activity: Activity) -> None:
        activities = displayed.get()
        if activities is not None:
            self._activities[number] = activity
            activities.add(activity)

    def _end_activity(self, number: int) -> None:
        activities, activity = displayed.get(), self._activities.pop(number, None)
        if activities is not None and activity is not None:
            activities.remove(activity)


class WorkerPool:
    """The worker processes of a run.

    Args:
        place: Where they run.
        task: What each of them is told.
        count: How many there are.
        setup: Publishes what happens in the workers, and makes the results of cases that end them.
    """

    def __init__(
        self,
        place: Place,
        task: WorkerTask,
        count: int,
        setup: CaseSetup,
    ) -> None:
        self._place = place
        self._task = task
        self._packed = place.pack(task)
        self._count = count
        self.setup = setup
        self._judges: dict[str, list[Head]] = {}
        """What became of the last requests to each judge."""
        self._limiters = build_limiters(task.settings)
        self._numbers = itertools.count()
        self._workers: list[_Worker] = []
        self._listening: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[tuple[_Worker, Head]] | None = None
        self._fruitless = 0
        self._is_closing = False
        self.concurrency = 1
        """How many cases a worker runs at a time; known once `open` has returned."""
        self.preparation_costs: Sequence[ModelCost] = ()
        """What models cost that the first worker asked before the first case."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the workers, and end them after the block. Raises HoloDeckError."""
        try:
            await self._start_all()
            yield
        finally:
            self._is_closing = True
            if self._starting is not None:
                self._starting.cancel()
            await self._close()

    async def _close(self) -> None:
        """Let the workers close their agents, and end those that take too long or have none."""
        for worker in list(self._workers):
            if worker.ready.done():
                worker.send(["close", is_cancelled()])
            else:  # the run was cancelled or has failed, and this worker has done nothing yet
                worker.kill()
        if self._listening:
            await asyncio.wait(self._listening, timeout=CLOSE_S)
        for worker in list(self._workers):
            worker.kill()
        for listening in list(self._listening):
            if not listening.done():
                await asyncio.wait({listening}, timeout=_GRACE_S)
            listening.cancel()  # it may wait for a place to start at
        await asyncio.gather(*self._listening, return_exceptions=True)

    async def _start_all(self) -> None:
        # The first embeds documents and fills the caches; the others find both.
        alone = 1 if self._task.agent.tools else self._count
        (_, first), *_ = await asyncio.gather(*(self._start() for _ in range(alone)))
        settings = self._task.settings
        if settings.force_ingest:
            settings = settings.model_copy(update={"force_ingest": False})
            self._packed = self._place.pack(replace(self._task, settings=settings))
        await asyncio.gather(*(self._start() for _ in range(self._count - alone)))
        _, self.concurrency, costs, notes = first
        self.preparation_costs = [ModelCost.model_validate(cost) for cost in costs]
        self.add_notes(notes)

    async def _start(self) -> tuple[_Worker, Head]:
        """Start a worker and wait until its agent is ready. Raises HoloDeckError."""
        worker = _Worker(self, self._limiters)
        self._workers.append(worker)
        listening = asyncio.create_task(worker.listen(self._place, self._packed))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return worker, await asyncio.shield(worker.ready)

    def forget(self, worker: _Worker) -> None:
        """Give no more runs to a worker, which has ended."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        if not self._is_closing:
            self._fruitless = 0 if worker.has_finished_any else self._fruitless + 1

    def new_run(self, index: int, case: TestCaseModel, repetition: int) -> WorkerRun:
        """Return a run of the case at that index; repetitions are counted from 1."""
        return WorkerRun(self, index, case, repetition)

    async def run(self, run: WorkerRun) -> FinishedRun:
        """Run a case in the worker with the fewest. Raises WorkerEnded and HoloDeckError."""
        worker, number = await self._free_worker(), next(self._numbers)
        run.followed = FollowedRun(self.setup.events, self.setup.options.on_conversation)
        run.finished = finished = asyncio.get_running_loop().create_future()
        run.context = contextvars.copy_context()
        worker.runs[number] = run
        worker.send(["run", number, run.index, run.repetition])
        error: BaseException | None = None
        try:
            return await asyncio.shield(finished)
        except asyncio.CancelledError:
            run.is_cancelled = True
            worker.send(["cancel", number])
            await asyncio.wait({finished}, timeout=_GRACE_S)
            if not finished.done():  # its code blocks the worker's loop
                worker.kill()
                await asyncio.wait({finished})
            if not finished.cancelled():
                finished.exception()  # is nobody's any more
            raise
        except Exception as raised:
            error = raised
            raise
        finally:
            await run.followed.close(error)
            del worker.runs[number]

    async def _free_worker(self) -> _Worker:
        """Return the worker that runs the fewest cases. Raises HoloDeckError if none starts."""
        if len(self._workers) < self._count:
            self._replace()
        while not (ready := [worker for worker in self._workers if worker.is_ready]):
            assert self._starting is not None  # noqa: S101 - it was started above, then or now
            await asyncio.shield(self._starting)
        return min(ready, key=lambda worker: len(worker.runs))

    def _replace(self) -> None:
        """Replace a worker that has ended, unless a start is under way."""
        if self._fruitless >= _MAX_FRUITLESS:
            raise ExecutionError(
                f"{_MAX_FRUITLESS} worker processes ended one after the other without the result of"
                " a case; run with '--workers 1' to see what ends them"
            )
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start())
            # Nobody waits for it while other workers are there.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())

    def tell_others(self, sender: _Worker, message: Head) -> None:
        """Pass a message of a worker on to the others."""
        for worker in self._workers:
            if worker is not sender:
                worker.send(message)

    def tell_judges(self, sender: _Worker, message: Head) -> None:
        """Tell the other workers what became of a request to a judge."""
        _, key, what, _ = message
        before = self._judges.setdefault(key, [])
        if what == "answered":  # which ends what came in a row
            before[:] = [earlier for earlier in before if earlier[2] == "given up"]
        before.append(message)
        for worker in self._workers:
            if worker is not sender and worker.is_ready:
                worker.send(message)

    def tell_new(self, worker: _Worker) -> None:
        """Tell a worker that is ready now what became of requests to judges before."""
        for messages in self._judges.values():
            for message in messages:
                worker.send(message)

    def add_notes(self, notes: Sequence[str]) -> None:
        """Add the notes of a worker to those of the run."""
        known = self.setup.evaluator_set.notes
        known += [text for text in dict.fromkeys(notes) if text not in known]
