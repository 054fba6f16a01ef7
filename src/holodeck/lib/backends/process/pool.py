"""A pool of the processes of an agent, each of which serves many conversations."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Protocol

from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.backends.process.connection import WorkerProcess
from holodeck.lib.backends.process.messages import PROTOCOL, Abilities, parse_abilities
from holodeck.lib.processes.child_process import Launch
from holodeck.lib.user_code.raised import with_location

logger = logging.getLogger(__name__)

HANGS = "the agent's process hangs"


class Worker:
    """A process that is ready, and how many conversations and messages it has."""

    def __init__(
        self, process: WorkerProcess, abilities: Abilities, tap: "WorkerTap | None" = None
    ) -> None:
        self.process = process
        self.abilities = abilities
        self.tap = tap
        """Sees what it does in a turn; None without a tap."""
        self.concurrency = 1 if tap is not None else abilities.concurrency
        """How many messages it gets at a time; with a tap, one, as they cannot be told apart."""
        self.slots = asyncio.Semaphore(self.concurrency)
        self.messages = 0
        """Messages under way or waiting."""
        self.conversations = 0


class WorkerTap(Protocol):
    """A tap that sees the requests of one process to models."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that lead the process to it."""
        ...

    async def observe(self, send: Callable[[], Awaitable[ExecutionResult]]) -> ExecutionResult:
        """Return the result of a turn with what the tap saw. Raises BackendError."""
        ...


class WorkerTaps(Protocol):
    """The taps of the processes of a pool."""

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start listening, for processes in that environment. Raises BackendInitError."""
        ...

    def open(self) -> WorkerTap:
        """Return the tap of a further process."""
        ...

    async def close(self) -> None:
        """Stop listening; may be called twice."""
        ...


class Pool:
    """Processes that are started once, and each replaced when it is needed after its end.

    Args:
        launch: How a process is started.
        size: The number of processes.
        start_timeout: Seconds until each is ready.
        max_answer_bytes: How long an answer may be.
        taps: See what each sends to models; None without taps.
    """

    def __init__(
        self,
        launch: Launch,
        size: int,
        start_timeout: float,
        max_answer_bytes: int,
        taps: WorkerTaps | None = None,
    ) -> None:
        self._launch = launch
        self._max_answer_bytes = max_answer_bytes
        self._size = size
        self._start_timeout = start_timeout
        self._taps = taps
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore()
        self._workers: list[Worker] = []
        self._ending: list[Worker] = []
        """Those that have ended or hang, and were replaced."""
        self.abilities = Abilities()
        """Those of the first process."""

    @property
    def is_started(self) -> bool:
        return bool(self._workers)

    @property
    def concurrency(self) -> int:
        """How many messages the processes take at a time."""
        return self._size * (1 if self._taps is not None else self.abilities.concurrency)

    async def start(self) -> None:
        """Start the processes, unless they run on this event loop already.

        Raises BackendInitError.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._workers:
            return
        if self._loop is not loop:
            self._abandon()
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            if self._workers:
                return
            if self._taps is not None:
                await self._taps.start(self._launch.env or {})
            started = [asyncio.create_task(self._start_worker()) for _ in range(self._size)]
            try:
                workers = await asyncio.gather(*started)
            except BaseException:
                for task in started:
                    task.cancel()
                results = await asyncio.gather(*started, return_exceptions=True)
                await self._close_all([ready for ready in results if isinstance(ready, Worker)])
                raise
            self.abilities = workers[0].abilities
            self._slots = asyncio.Semaphore(self.concurrency)
            self._workers = [*workers]

    @asynccontextmanager
    async def slot(self, worker: Worker | None) -> AsyncIterator[Worker]:
        """Wait for a slot of that worker, or of the one with the least to do, and yield it.

        A worker that has ended is replaced. Raises BackendError.
        """
        await self.start()
        async with self._slots:
            while True:
                chosen = worker or await self._least_busy()
                chosen.messages += 1
                try:
                    async with chosen.slots:
                        if worker is None and not chosen.process.is_usable:
                            continue
                        yield chosen
                        return
                finally:
                    chosen.messages -= 1

    async def close(self) -> None:
        """Close all processes."""
        if self._loop is not asyncio.get_running_loop():
            self._abandon()
            return
        workers, self._workers = self._workers, []
        ending, self._ending = self._ending, []
        await self._close_all([*workers, *ending])

    async def _least_busy(self) -> Worker:
        """Return the worker with the least to do; a new one if no other has a free slot."""
        free = self._free_worker()
        if free is not None:
            return free
        async with self._lock:
            free = self._free_worker()
            for index, worker in enumerate(self._workers):
                if free is None and not worker.process.is_usable:
                    logger.info("%s; starting it again", worker.process.failure or HANGS)
                    free = self._workers[index] = await self._start_worker()
                    self._ending.append(worker)
        return free or min(self._workers, key=_load)

    def _free_worker(self) -> Worker | None:
        usable = [worker for worker in self._workers if worker.process.is_usable]
        best = min(usable, key=_load, default=None)
        return None if best is None or best.messages >= best.concurrency else best

    async def _start_worker(self) -> Worker:
        """Start a process and return it once it is ready. Raises BackendInitError."""
        tap, launch = None, self._launch
        if self._taps is not None:
            tap = self._taps.open()
            launch = replace(launch, env={**(launch.env or {}), **tap.variables})
        process = WorkerProcess(self._max_answer_bytes)
        await process.start(launch)
        greeting = {"protocol": PROTOCOL, "max_answer_bytes": self._max_answer_bytes}
        try:
            async with asyncio.timeout(self._start_timeout):
                result = await process.ask("initialize", greeting)
            abilities = parse_abilities(result)
        except TimeoutError as error:
            why = (
                f"the agent's process was not ready within {self._start_timeout:g} s"
                f" (backend.start_timeout){process.tail()}"
            )
            await self._dispose(process, why)
            raise BackendInitError(why) from error
        except BackendInitError as error:
            await self._dispose(process, str(error))
            raise
        except BackendError as error:
            await self._dispose(process, str(error))
            failure = BackendInitError(f"the agent cannot be created: {with_location(error)}")
            raise failure from error
        except BaseException:
            process.kill("the start of the agent's process was cancelled")
            raise
        process.can_cancel = abilities.cancel
        return Worker(process, abilities, tap)

    @staticmethod
    async def _dispose(process: WorkerProcess, why: str) -> None:
        process.kill(why)
        await process.close()

    async def _close_all(self, workers: Sequence[Worker]) -> None:
        await asyncio.gather(*(worker.process.close() for worker in workers))

    def _abandon(self) -> None:
        """Kill the processes of an event loop that runs no more."""
        for worker in (*self._workers, *self._ending):
            with suppress(RuntimeError):  # the loop is closed
                worker.process.kill("its event loop has ended")
        self._workers, self._ending = [], []


def _load(worker: Worker) -> tuple[int, int]:
    return worker.messages, worker.conversations
