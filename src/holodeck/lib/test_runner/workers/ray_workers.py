"""Workers on a Ray cluster: an actor each, on the node that Ray chooses.

An actor starts the same worker process as elsewhere and passes bytes on, so that messages, limits
and results are the same. The folder of the agent travels as the working folder of the actor,
secrets as variables that the run names, in the call that starts the worker: Ray writes its
`runtime_env` into logs and shows it on its dashboard. In the task, the name of its variable takes
the place of a secret.
"""

import asyncio
import io
import logging
import pickle
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr

import holodeck
from holodeck.config.secrets import collect
from holodeck.errors import BackendInitError, ConfigError, MissingExtra
from holodeck.lib.processes.channel import BadMessage
from holodeck.lib.processes.child_process import how_it_ended
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import process_variables, set_variables
from holodeck.lib.support.text import describe
from holodeck.lib.test_runner.workers.connection import ENDED, WORKER_PROGRAM, OnData, WorkerTask
from holodeck.lib.ui.activity import activity, loading
from holodeck.lib.ui.live import write_raw

START_S = 120.0
"""Seconds for the cluster to find a place for a worker and to copy the agent's folder there."""
_CONNECT_S = 20.0
_WATCH_S, _MISSED = 3.0, 3
"""Seconds between looks at the head, and how many fail in a row before it counts as lost."""
_CHUNK = 2**18
_NO_STATISTICS = "RAY_USAGE_STATS_ENABLED"
_EXCLUDED = (".git", ".holodeck", ".venv", "__pycache__", "node_modules", ".env", ".env.*")
"""Folders, and files with secrets, that do not travel; in the syntax of `.gitignore`."""


@asynccontextmanager
async def connected(
    address: str | None, folder: Path, variables: Sequence[str]
) -> AsyncIterator["RayActors"]:
    """In the block, be connected to a cluster.

    Args:
        address: `ray://host:port`; with None, the cluster that RAY_ADDRESS names, else one that is
            started on this machine and ends with the block.
        folder: The agent's folder, which travels.
        variables: The names of the variables that travel.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: A variable is not set.
        BackendInitError: The cluster cannot be reached.
    """
    try:
        with loading("Ray", "ray"):
            import ray  # few runs need it, and it takes a second
    except ModuleNotFoundError as error:
        raise MissingExtra("ray", "'--on ray'") from error
    known = process_variables()
    missing = [name for name in variables if name not in known]
    if missing:
        raise ConfigError("execution.ray_variables", f"not set: {', '.join(missing)}")
    values = {name: known[name] for name in variables}
    environment = {"working_dir": str(folder), "excludes": list(_EXCLUDED)}
    if _NO_STATISTICS not in known:
        set_variables({_NO_STATISTICS: "0"})
    await _require_listener(address or known.get("RAY_ADDRESS", ""))
    connect = partial(
        ray.init,
        address,
        runtime_env=environment,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        with activity("connecting to Ray"):
            # In a thread, as it takes seconds, and in the main thread it would handle SIGTERM.
            await asyncio.to_thread(connect)
    except Exception as error:
        raise BackendInitError(f"the Ray cluster cannot be used: {describe(error)}") from error
    actors = RayActors(ray, folder, values)
    head = address or ray.get_runtime_context().gcs_address
    watching = asyncio.create_task(_watch(head, actors.end_all))
    try:
        yield actors
    finally:
        watching.cancel()
        await asyncio.to_thread(ray.shutdown)


async def _require_listener(address: str) -> None:
    """Raise BackendInitError if nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # a cluster of this machine, which Ray finds or starts
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        raise BackendInitError(f"no Ray cluster at {address}: {describe(error)}") from error
    writer.close()


async def _watch(head: str, on_lost: Callable[[str], None]) -> None:
    """Call `on_lost` with the reason once nobody listens at the head's address any more.

    Ray itself would end this process after a minute, with the exit code of a failed test.
    """
    missed = 0
    while missed < _MISSED:
        await asyncio.sleep(_WATCH_S)
        try:
            await _require_listener(head)
            missed = 0
        except BackendInitError:
            missed += 1
    on_lost(f"the head of the Ray cluster at {head} does not answer any more")


class RayActors:
    """Workers are actors of a Ray cluster, each with a core."""

    def __init__(self, ray: Any, folder: Path, variables: Mapping[str, str]) -> None:
        self._ray = ray
        self._folder = folder
        self._variables = variables
        self._actor = ray.remote(num_cpus=1, max_restarts=0)(WorkerActor)
        self._connections: set[ActorConnection] = set()
        self._lost: str | None = None
        """Why the cluster cannot be used any more."""

    def end_all(self, reason: str) -> None:
        """End all workers, as the cluster is lost."""
        self._lost = reason
        for connection in self._connections:
            connection.lose(reason)

    @property
    def cores(self) -> int:
        """How many cores the cluster has."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def pack(self, task: WorkerTask) -> bytes:
        """Return the task, with names of variables instead of secrets. Raises ConfigError."""
        buffer = io.BytesIO()
        names = {value: name for name, value in self._variables.items()}
        _Pickler(buffer, names).dump(replace(task, folder=self._folder))
        return buffer.getvalue()

    @asynccontextmanager
    async def open_worker(self, on_data: OnData) -> AsyncIterator["ActorConnection"]:
        """Start an actor with its worker. Raises BackendInitError."""
        if self._lost is not None:
            raise BackendInitError(self._lost)
        actor = self._actor.remote()
        try:
            async with asyncio.timeout(START_S):
                version = await actor.start.remote(sys.version_info[:2], self._variables)
        except TimeoutError as error:
            raise BackendInitError(
                f"the Ray cluster started no worker within {START_S:g} s; it has {self.cores} cores"
                " in all, and other work may hold them"
            ) from error
        except Exception as error:
            raise BackendInitError(f"Ray could not start a worker: {describe(error)}") from error
        connection = ActorConnection(self._ray, actor, on_data)
        try:
            if version != holodeck.__version__:
                raise BackendInitError(
                    f"the node has holodeck {version}, not {holodeck.__version__}"
                )
            self._connections.add(connection)
            yield connection
        finally:
            self._connections.discard(connection)
            connection.kill(ENDED)


class ActorConnection:
    """The connection to a worker by the methods of its actor."""

    def __init__(self, ray: Any, actor: Any, on_data: OnData) -> None:
        self._ray = ray
        self._actor = actor
        self._on_data = on_data
        self._sent = 0
        self._receiving: asyncio.Future[bytes] | None = None
        self._lost: str | None = None

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens if the worker has ended."""
        with suppress(Exception):  # an actor that has ended: `wait` tells
            self._actor.send.remote(self._sent, data)
        self._sent += 1

    async def wait(self) -> str:
        """Pass on what the worker writes until it, its actor or its node ends; return how."""
        try:
            while data := await self._receive():
                self._on_data(data)
            return f"the worker process {how_it_ended(await self._actor.exit_code.remote())}"
        except BadMessage as error:
            return str(error)
        except asyncio.CancelledError:
            if self._lost is None:
                raise
            return self._lost
        except Exception as error:  # noqa: BLE001 - each error of Ray means that the actor is gone
            return f"a worker was lost with its node ({type(error).__name__})"

    async def _receive(self) -> bytes:
        self._receiving = asyncio.ensure_future(self._next())
        return await self._receiving

    async def _next(self) -> bytes:
        data: bytes = await self._actor.receive.remote()
        return data

    def lose(self, reason: str) -> None:
        """Receive nothing more, for this reason."""
        self._lost = reason
        if self._receiving is not None:
            self._receiving.cancel()

    def kill(self, reason: str) -> None:  # noqa: ARG002 - Ray says it itself
        """End the actor, and the worker with it."""
        with suppress(Exception):
            self._ray.kill(self._actor)


class WorkerActor:
    """Runs in the cluster: starts a worker process and passes bytes between it and the run."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._relaying: asyncio.Task[None] | None = None
        self._early: dict[int, bytes] = {}
        self._next = 0

    async def start(self, python: tuple[int, int], variables: Mapping[str, str]) -> str:
        """Start the process with these variables; return the version of holodeck on the node."""
        assert sys.version_info[:2] == tuple(python)  # noqa: S101 - Ray has checked it
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORKER_PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**process_variables(), **variables, "PYTHONSAFEPATH": "1"},
        )
        redactor = Redactor([*collect(), *variables.values()])
        self._relaying = asyncio.create_task(self._relay(redactor))
        return holodeck.__version__

    async def _relay(self, redactor: Redactor) -> None:
        """Write what the process writes to stderr, without secrets: Ray keeps it in its logs."""
        assert self._process is not None  # noqa: S101 - `start` calls it
        assert self._process.stderr is not None  # noqa: S101 - a pipe was asked for
        rest = b""
        while data := await self._process.stderr.read(_CHUNK):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _CHUNK:
                lines, rest = [*lines, rest], b""
            for line in lines:
                write_raw(sys.stderr, redactor.redact(line.decode("utf-8", "replace")) + "\n")
        write_raw(sys.stderr, redactor.redact(rest.decode("utf-8", "replace")))

    async def send(self, number: int, data: bytes) -> None:
        """Pass bytes to the process, in the order of their numbers: Ray may change it."""
        assert self._process is not None  # noqa: S101 - `start` was the first call
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._early[number] = data
        while self._next in self._early:
            self._process.stdin.write(self._early.pop(self._next))
            self._next += 1

    async def receive(self) -> bytes:
        """Return what the process has written since, once there is anything; none at its end."""
        assert self._process is not None  # noqa: S101 - `start` was the first call
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return await self._process.stdout.read(_CHUNK)

    async def exit_code(self) -> int:
        """Return the exit code of the process, once it has ended."""
        assert self._process is not None  # noqa: S101 - `start` was the first call
        return await self._process.wait()


class _Pickler(pickle.Pickler):
    """Writes the name of its variable instead of each secret. Raises ConfigError without it."""

    def __init__(self, file: io.BytesIO, variables: dict[str, str]) -> None:
        super().__init__(file)
        self._variables = variables

    def persistent_id(self, value: object) -> str | None:
        """Return the name of the variable of a secret; None for anything else."""
        if not isinstance(value, SecretStr) or not value.get_secret_value():
            return None
        name = self._variables.get(value.get_secret_value())
        if name is None:
            raise ConfigError(
                "execution.ray_variables",
                "a secret of the configuration is in none of these variables; secrets reach Ray"
                " only as variables, so write '${NAME}' for it and 'ray_variables: [NAME]'",
            )
        return name
