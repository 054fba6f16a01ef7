"""The template of the workers of this machine, a process that imports once what they need.

It starts before the configuration is read and imports meanwhile; its forks are the workers.
"""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

_PROGRAM = (
    "import gc, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv.pop());"
    " from holodeck.lib.test_runner.template_program import main; main()"
)
SEMANTIC_KERNEL = "semantic_kernel"
"""What `Template.load` can import."""
MAX_PACKET = 2**16
"""Bytes of a message."""


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
                (sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C from the terminal
            )
        self._numbers = itertools.count()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

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
        async with self._locks.setdefault(loop, asyncio.Lock()):
            try:
                passed = [] if descriptor is None else [descriptor]
                socket.send_fds(self._control, [packet], passed)
                while answer := await loop.sock_recv(self._control, MAX_PACKET):
                    answered, value = json.loads(answer)
                    if answered == number:  # else who asked was cancelled
                        return None if value is None else int(value)
            except OSError:
                pass
        return None
