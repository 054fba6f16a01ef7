"""Where workers run: processes of this machine, or, in another module, of a Ray cluster."""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from holodeck.lib.processes.child_process import ChildProcess, Launch, python_command
from holodeck.lib.support.environment import process_variables
from holodeck.lib.test_runner.workers.worker_messages import Surroundings, WorkerTask
from holodeck.lib.user_code.code_root import path_for_children

WORKER_PROGRAM = "import gc; gc.disable(); from holodeck.lib.test_runner.worker import main; main()"
"""A start frees nothing; the worker enables the collector once it is ready."""
OnData = Callable[[bytes], None]
"""Takes the next bytes of a worker. Raises BadMessage if they are no messages."""


class Connection(Protocol):
    """The connection to a worker."""

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens if the worker has ended."""
        ...

    def kill(self, reason: str) -> None:
        """End the worker and what it has started, at once."""
        ...

    async def wait(self) -> str:
        """Return how the worker ended, once it has."""
        ...


class Place(Protocol):
    """Starts workers."""

    @property
    def cores(self) -> int:
        """How many cores there are."""
        ...

    def pack(self, task: WorkerTask) -> bytes:
        """Return the task for the workers."""
        ...

    def open_worker(self, on_data: OnData) -> AbstractAsyncContextManager[Connection]:
        """Return a context with a new worker, which has ended after the block."""
        ...


class LocalProcesses:
    """Workers are processes of this machine."""

    @property
    def cores(self) -> int:
        """How many cores this process may use."""
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def pack(self, task: WorkerTask) -> bytes:
        """Return the task for the workers; it never leaves the machine."""
        present = Surroundings(tuple(path_for_children()), process_variables())
        return pickle.dumps(replace(task, surroundings=present))

    @asynccontextmanager
    async def open_worker(self, on_data: OnData) -> AsyncIterator["_LocalWorker"]:
        """Start a process that ends with this one."""
        worker = _LocalWorker(on_data)
        await worker.start(Launch(python_command(WORKER_PROGRAM, path_for_children()), stderr=None))
        try:
            yield worker
        finally:
            worker.kill(ENDED)
            await worker.close()


ENDED = "the worker process was ended"


class _LocalWorker(ChildProcess):
    """A worker of this machine."""

    name = "the worker process"

    def __init__(self, on_data: OnData) -> None:
        super().__init__()
        self._on_data = on_data

    def data_read(self, data: bytes) -> None:
        self._on_data(data)

    async def wait(self) -> str:
        """Return how it ended, once it has."""
        await asyncio.shield(self.ended)
        return self.failure or ENDED
