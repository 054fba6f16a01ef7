"""Where workers run: processes of this machine, or, in another module, of a Ray cluster."""

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from holodeck.lib.process_guard import guarded
from holodeck.lib.test_runner.worker_messages import WorkerTask

WORKER_PROGRAM = "from holodeck.lib.test_runner.worker import main; main()"
_PROGRAM = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop()); {WORKER_PROGRAM}"
_CHUNK = 2**18


class Connection(Protocol):
    """The connection to a worker; both directions are bytes of `worker_messages`."""

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens if the worker has ended."""
        ...

    async def receive(self) -> bytes:
        """Return the next bytes; none once the worker has ended."""
        ...

    def kill(self) -> None:
        """End the worker and what it has started, at once."""
        ...

    async def ended(self) -> str:
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

    def open_worker(self) -> AbstractAsyncContextManager[Connection]:
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
        return pickle.dumps(task)

    @asynccontextmanager
    async def open_worker(self) -> AsyncIterator["ProcessConnection"]:
        """Start a process that ends with this one."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, json.dumps(sys.path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a process group, and no Ctrl-C from the terminal
        )
        connection = ProcessConnection(process)
        async with guarded(process.pid):
            try:
                yield connection
            finally:
                connection.kill()
                await process.wait()


class ProcessConnection:
    """The connection to a process by its standard input and output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens if the process has ended."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - a pipe was asked for
        if not stdin.is_closing():
            stdin.write(data)

    async def receive(self) -> bytes:
        """Return the next bytes; none once the process has ended."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - a pipe was asked for
        return await stdout.read(_CHUNK)

    def kill(self) -> None:
        """End the process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> str:
        """Return how the process ended, once it has."""
        return describe_exit(await self._process.wait())


def describe_exit(code: int) -> str:
    """Return how a worker process ended, by its return code."""
    if code < 0:
        with suppress(ValueError):
            return f"the worker process was ended by {signal.Signals(-code).name}"
    return f"the worker process ended with exit code {code}"
