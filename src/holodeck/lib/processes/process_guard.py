"""A process that ends other processes if holodeck ends without doing it, as by SIGKILL."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

CLOSE_S = 3.0
"""How long the guard may take to end, which has nothing to do any more."""
_PROGRAM = Path(__file__).parents[1] / "backends" / "process" / "guard.py"
_COMMAND = (sys.executable, "-I", "-S", str(_PROGRAM))


class Guard:
    """Kills process groups once holodeck has ended, unless they were released before."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> "Guard":
        devnull = asyncio.subprocess.DEVNULL
        return cls(
            await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=devnull,
                stderr=devnull,
                start_new_session=True,
            )
        )

    def watch(self, group: int) -> None:
        """Kill the group once holodeck has ended."""
        self._write(f"+{group}\n")

    def release(self, group: int) -> None:
        """No longer watch the group, which has ended."""
        self._write(f"-{group}\n")

    async def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(line.encode())


class GroupGuard:
    """Kills one process group once holodeck has ended, also where there is no event loop."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._write(f"+{group}\n")

    def close(self) -> None:
        """No longer watch the group, which has ended."""
        self._write(f"-{self._group}\n", is_last=True)
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _write(self, line: str, *, is_last: bool = False) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - a pipe was asked for
        with suppress(OSError, ValueError):
            stream.write(line.encode())
            stream.flush()
            if is_last:
                stream.close()


class _SharedGuard:
    """The guard of an event loop; it runs while there is a group to watch."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._guard: Guard | None = None
        self._groups = 0

    async def watch(self, group: int) -> None:
        self._groups += 1
        async with self._lock:
            self._guard = self._guard or await Guard.start()
            self._guard.watch(group)

    async def release(self, group: int) -> None:
        self._groups -= 1
        async with self._lock:
            if self._guard is None:  # its start was cancelled
                return
            self._guard.release(group)
            if self._groups == 0:
                guard, self._guard = self._guard, None
                await guard.close()


_of_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, _SharedGuard]" = WeakKeyDictionary()


@asynccontextmanager
async def guarded(group: int) -> AsyncIterator[None]:
    """In the block, have a process group killed if holodeck ends."""
    loop = asyncio.get_running_loop()
    if loop not in _of_loop:
        _of_loop[loop] = _SharedGuard()
    shared = _of_loop[loop]
    try:
        await shared.watch(group)
        yield
    finally:
        await shared.release(group)
