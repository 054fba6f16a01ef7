"""The worker processes of a run: where they are started, and the messages.

The messages are those of `lib.processes.channel`; the first item of a head is the kind of the
message. To the worker:

- `start`: first of all; the body is a pickled WorkerTask
- `run` number, index, repetition: run the case at that index once
- `cancel` number: cancel a run
- `slot` number: the slot that was asked for with `enter`
- `reached` or `down`, URL: what another worker found out about an endpoint
- `close`: close the agent and end

To the parent:

- `ready` concurrency, costs, notes: the agent is ready
- `failed` class, args, fields: it is not, because of this error of holodeck
- `done` number, failure, is permanent, refusal, notes: a run is over; the body is its result
- `cancelled` number: a cancelled run is over; the body is its result, if something was graded
- `error` number, class, args, fields: a run raised an error that ends all runs
- `enter` number, endpoint, kind, run: the run asks for a slot
- `leave` number, failed: gives it back
- `return` number: gives back a slot that came with the run and was not used
- `overload` number, seconds: the endpoint reported an overload for its request
- `pause` endpoint, kind, seconds, reason: the endpoint asks for a pause
- `reached` or `down`, URL: what was found out about an endpoint
- `began` activity, run, text, timed, seconds, reason: what a run waits for, for the display
- `ended` activity: it waits no more
- `exit` text: a thread of the user's code tried to exit, which ends the run with this error
- `log` logger, level, text: a line of the log
- `event` run, stream, type: an event of a case or of its conversation; the body is its JSON
- `judge` key, what, detail: what became of a request to a judge

`judge` also goes to the other workers, whose judges count what happened to all.
"""

import asyncio
import json
import os
import pickle
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ExecutionError, HoloDeckError
from holodeck.lib.processes.child_process import ChildProcess, Launch, main_of, python_command
from holodeck.lib.support.environment import process_variables
from holodeck.lib.user_code.code_root import path_for_children
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestResult

WORKER_PROGRAM = main_of("holodeck.lib.test_runner.worker")
"""What Python runs in a worker process."""
ENDED = "the worker process was ended"


@dataclass(frozen=True)
class WorkerTask:
    """What a worker needs to run cases."""

    path: str
    """The agent.yaml."""
    agent: Agent
    settings: ExecutionConfig
    may_leave_folder: bool
    """Whether paths outside of the agent's folder are allowed."""
    log_levels: Mapping[str, int]
    """The levels of the root logger and of holodeck's, by name."""
    is_displayed: bool
    """Whether somebody watches what the runs wait for."""
    has_events: bool
    """Whether somebody listens to the events of the cases."""
    has_conversations: bool
    """Whether somebody listens to the conversations."""
    has_telemetry: bool
    """Whether the run sends telemetry, as the agent's `observability` says."""
    trace: Mapping[str, str]
    """The headers of the trace that the cases continue; empty without a trace."""
    folder: Path | None = None
    """The folder that travelled, where it was; the worker's working folder is its copy. None if the
    worker runs on the same machine."""
    module_path: Sequence[str] | None = None
    """Where Python looks for modules; None on another machine."""
    variables: Mapping[str, str] | None = None
    """The environment variables; None on another machine."""


def unpack_result(body: bytes) -> TestResult:
    """Return a result that came as a line of a record. Raises ValueError."""
    try:
        return TestResult.model_validate_json(body)
    except ValidationError:  # lone surrogates, and what is deeply nested
        return TestResult.model_validate(json.loads(body))


def pack_error(error: HoloDeckError) -> list[Any]:
    """Return the class of an error of holodeck, its arguments and its fields that JSON can hold."""
    fields = {name: value for name, value in vars(error).items() if _is_plain(value)}
    args = [value if _is_plain(value) else str(value) for value in error.args]
    return [type(error).__name__, args, fields]


def unpack_error(name: str, args: list[Any], fields: dict[str, Any]) -> HoloDeckError:
    """Return the error that was packed; its class is in `holodeck.errors`."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, HoloDeckError)):
        kind = ExecutionError
    error: HoloDeckError = kind.__new__(kind)
    error.args = tuple(args)
    error.__dict__.update(fields)
    return error


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


OnData = Callable[[bytes], None]
"""Takes the next bytes of a worker. Raises BadMessage if they are no messages."""


class Connection(Protocol):
    """The connection to a worker."""

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens if the worker has ended."""

    def kill(self, reason: str) -> None:
        """End the worker and what it has started, at once."""

    async def wait(self) -> str:
        """Return how the worker ended, once it has."""


class Place(Protocol):
    """Starts workers."""

    @property
    def cores(self) -> int:
        """How many cores there are."""

    def pack(self, task: WorkerTask) -> bytes:
        """Return the task for the workers."""

    def open_worker(self, on_data: OnData) -> AbstractAsyncContextManager[Connection]:
        """Return a context with a new worker, which has ended after the block."""


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
        variables = process_variables()
        return pickle.dumps(replace(task, module_path=path_for_children(), variables=variables))

    @asynccontextmanager
    async def open_worker(self, on_data: OnData) -> AsyncIterator["_LocalWorker"]:
        """Start a process that ends with this process."""
        worker = _LocalWorker(on_data)
        await worker.start(Launch(python_command(WORKER_PROGRAM, path_for_children()), stderr=None))
        try:
            yield worker
        finally:
            worker.kill(ENDED)
            await worker.close()


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
