"""Where workers run: processes of this machine, or, in another module, of a Ray cluster."""

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Protocol

from holodeck.lib.processes.process_guard import guarded
from holodeck.lib.support.environment import process_variables
from holodeck.lib.test_runner.workers.worker_messages import Surroundings, WorkerTask
from holodeck.lib.user_code.code_root import path_for_children

WORKER_PROGRAM = "import gc; gc.disable(); from holodeck.lib.test_runner.worker import main; main()"
"""A start frees nothing; the worker enables the collector once it is ready."""
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
        present = Surroundings(tuple(path_for_children()), process_variables())
        return pickle.dumps(replace(task, surroundings=present))

    @asynccontextmanager
    async def open_worker(self) -> AsyncIterator["ProcessConnection"]:
        """Start a process that ends with this one."""
        connection = await _start_worker()
        async with guarded(connection.pid):
            try:
                yield connection
            finally:
                connection.kill()
                await connection.close()


async def _start_worker() -> "ProcessConnection":
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _PROGRAM, json.dumps(path_for_children())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # a process group, and no Ctrl-C from the terminal
    )
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    return ProcessConnection(process, process.stdout, process.stdin)


class ProcessConnection:
    """The connection to a process, which is the leader of a process group."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.pid = process.pid
        self._reader = reader
        self._writer = writer
        self._process = process
        self._has_ended = False
        self._how = ""

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens if the process has ended."""
        if not self._writer.is_closing():
            self._writer.write(data)

    async def receive(self) -> bytes:
        """Return the next bytes; none once the process has ended."""
        try:
            return await self._reader.read(_CHUNK)
        except ConnectionError:  # it ended without having read everything
            return b""

    def kill(self) -> None:
        """End the process group."""
        if not self._has_ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> str:
        """Return how the process ended, once it has."""
        if not self._has_ended:
            self._how = describe_exit(await self._process.wait())
            self._has_ended = True
        return self._how

    async def close(self) -> None:
        """Wait for the end of the process, and close the connection."""
        await self.ended()
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def describe_exit(code: int) -> str:
    """Return how a worker process ended, by its return code."""
    if code < 0:
        with suppress(ValueError):
            return f"the worker process was ended by {signal.Signals(-code).name}"
    return f"the worker process ended with exit code {code}"
