"""A process that imports once what the workers of this machine need, and forks each of them.

It has no threads of Python, no event loop and no connections, so that its forks cannot hang on a
lock that nobody releases. It starts before the configuration is read, and imports meanwhile.

Its messages are packets of JSON. To the template:

- `load` library: import it, for the workers to come
- `fork` number, with a socket: start a worker that is told there what to do
- `wait` number, process ID: a worker has ended, or is about to

To the parent: the number, and the process ID or the exit code; null if that is not known.
"""

import asyncio
import gc
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop());"
    " from holodeck.lib.test_runner.worker_template import main; main()"
)
_MAX_PACKET = 2**16


def can_fork() -> bool:
    """Whether a template works here: elsewhere, libraries of the system do not survive a fork."""
    return sys.platform == "linux"


class Template:
    """The template, from the parent's point of view. It ends with the `with` block."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-c", _PROGRAM, json.dumps(sys.path)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C from the terminal
            )
        self._numbers = itertools.count()
        self._lock = asyncio.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()

    def load(self, library: str) -> None:
        """Let it import a library; this returns at once."""
        with suppress(OSError):  # it has ended: `fork` tells
            self._control.send(json.dumps(["load", library]).encode())

    async def fork(self, connection: socket.socket) -> int | None:
        """Return the process ID of a new worker; None if the template cannot make one."""
        return await self._ask("fork", descriptor=connection.fileno())

    async def wait(self, pid: int) -> int | None:
        """Return the exit code of a worker once it has ended; None if the template has, too."""
        return await self._ask("wait", pid)

    async def _ask(self, *message: Any, descriptor: int | None = None) -> int | None:
        number = next(self._numbers)
        kind, *rest = message
        packet = json.dumps([kind, number, *rest]).encode()
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                passed = [] if descriptor is None else [descriptor]
                socket.send_fds(self._control, [packet], passed)
                while answer := await loop.sock_recv(self._control, _MAX_PACKET):
                    answered, value = json.loads(answer)
                    if answered == number:  # else who asked was cancelled
                        return None if value is None else int(value)
            except OSError:
                pass
        return None


def main() -> None:
    """Serve the parent at the other end of standard input."""
    gc.disable()  # imports free nothing; a worker enables it again
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    # Imported here because the parent needs nothing of it.
    from holodeck.lib.test_runner.worker import main as run_worker  # noqa: PLC0415

    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, _MAX_PACKET, 1)
        if not packet:
            return
        match json.loads(packet):
            case ["load", library]:
                _load(library)
            case ["fork", number]:
                _answer(control, number, _fork(run_worker, control, descriptors[0]))
                os.close(descriptors[0])
            case ["wait", number, pid]:
                _answer(control, number, _wait(pid))


def _answer(control: socket.socket, number: int, value: int | None) -> None:
    with suppress(BrokenPipeError):  # the parent has ended, which the next look tells
        control.send(json.dumps([number, value]).encode())


def _load(library: str) -> None:
    # The worker that misses it says what is wrong.
    with suppress(Exception):
        if library == "semantic_kernel":
            from holodeck.lib.backends.semantic_kernel.agent import import_all

            import_all()


def _wait(pid: int) -> int | None:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def _fork(
    run_worker: Callable[[], None], control: socket.socket, connection: int
) -> int | None:
    """Return the process ID of a new worker; None if it would not be safe, or not possible."""
    if threading.active_count() > 1:
        return None
    gc.freeze()  # what the workers share stays shared, as no collection touches it
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        _become_worker(run_worker, control, connection)
    with suppress(OSError):
        os.setpgid(pid, pid)  # whoever is first: the parent may kill the group from now on
    return pid


def _become_worker(
    run_worker: Callable[[], None], control: socket.socket, connection: int
) -> None:
    code = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        control.close()
        for standard in (0, 1):
            os.dup2(connection, standard)
        os.close(connection)
        _seed_libraries()
        run_worker()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return to the template's loop
        traceback.print_exc()
    finally:
        os._exit(code)


def _seed_libraries() -> None:
    """Let the workers draw different random numbers; `random` itself does so after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
