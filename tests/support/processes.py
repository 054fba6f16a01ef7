"""Whether processes run, by their ids."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60.0


def is_running(pid: int) -> bool:
    """Whether there is a process that has not ended; one that nobody waited for has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds; TimeoutError if it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nobody says when other processes do something
            await asyncio.sleep(0.01)


async def until_gone(*pids: int) -> None:
    """Return once none of the processes runs; TimeoutError if one does not end."""
    await until(lambda: not any(map(is_running, pids)))


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs, without the forks that all tests share.

    Those of `support.nursery` are children of the first process that runs tests, but run for any.
    """
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in _children(task):
                found += [child, *(() if _is_shared(child) else descendants(child))]
    return found


def command_of(pid: int) -> bytes:
    """Return the arguments that a process was started with; nothing if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _is_shared(pid: int) -> bool:
    """Whether it is a process of `support.nursery`."""
    return b"def import_all(package)" in command_of(pid)


def _children(task: Path) -> list[int]:
    """Return the processes that a thread started; none if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [*map(int, (task / "children").read_text().split())]
    return []
