"""The template process: imports what workers need, and forks them.

It has no threads of Python, no event loop and no connections to elsewhere, so that a fork of it
cannot hang on a lock that nobody releases.

Messages are packets of JSON. To the template:

- `load` library: import it, for the workers to come
- `fork` number, with a socket: start a worker that is told there what to do
- `wait` number, process ID: a worker has ended, or is about to

To the parent: the number, and the process ID or the exit code; null if that is not known.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress

from holodeck.lib.process_exit import exit_now
from holodeck.lib.test_runner import worker
from holodeck.lib.test_runner.worker_template import MAX_PACKET, SEMANTIC_KERNEL


def main() -> None:
    """Serve the parent at the other end of standard input."""
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET, 1)
        if not packet:
            return
        match json.loads(packet):
            case ["load", library]:
                _load(library)
            case ["fork", number]:
                _answer(control, number, _fork(control, descriptors[0]))
                os.close(descriptors[0])
            case ["wait", number, pid]:
                _answer(control, number, _wait(pid))


def _answer(control: socket.socket, number: int, value: int | None) -> None:
    with suppress(BrokenPipeError):  # the parent has ended, which the next look tells
        control.send(json.dumps([number, value]).encode())


def _load(library: str) -> None:
    with suppress(Exception):  # the worker that misses it says what is wrong
        if library == SEMANTIC_KERNEL:
            # Imported here because other agents do not need it.
            import holodeck.lib.backends.semantic_kernel.agent  # noqa: F401


def _wait(pid: int) -> int | None:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def _fork(control: socket.socket, connection: int) -> int | None:
    """Return the process ID of a new worker; None if it would not be safe, or not possible."""
    if threading.active_count() > 1:
        return None
    gc.freeze()  # what the workers share stays shared, as no collection touches it
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        _become_worker(control, connection)
    with suppress(OSError):
        os.setpgid(pid, pid)  # whoever is first: the parent may kill the group from now on
    return pid


def _become_worker(control: socket.socket, connection: int) -> None:
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        control.close()
        for standard in (0, 1):
            os.dup2(connection, standard)
        os.close(connection)
        _seed_libraries()
        worker.main()
    except BaseException:  # noqa: BLE001 - nothing may return to the template's loop
        traceback.print_exc()
    finally:
        exit_now(1)


def _seed_libraries() -> None:
    """Let the workers draw different random numbers; `random` itself does so after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
