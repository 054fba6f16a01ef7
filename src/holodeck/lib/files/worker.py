"""Processes that read documents: started when needed, reused, and killed at the time limit."""

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from holodeck.errors import MissingExtra
from holodeck.lib.processes.background_loop import LoopThread
from holodeck.lib.processes.child_process import (
    CLOSE_S,
    ChildEnded,
    FramedChild,
    Launch,
    python_command,
)
from holodeck.lib.support.environment import process_variables


class Unreadable(Exception):
    """A document cannot be read, and not because its parser fails; the message says why."""


@dataclass(frozen=True)
class Job:
    """The type of a file, and which part of it is wanted."""

    kind: str
    pages: tuple[int, ...] = ()
    """From 1; empty for all."""
    sheet: str | None = None
    range: str | None = None
    program: str | None = None
    """Path of the program for OCR."""


MAX_PROCESSES = 4
MAX_ANSWER_BYTES = 100_000_000
_PROGRAM = "from holodeck.lib.files.child import main; main()"
_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT", "TESSDATA_PREFIX", "TMPDIR")
"""What the process gets to know of the environment: no secrets."""


class TimeLimitExceeded(Exception):
    """A file was not read within its time limit; the process is gone."""


class Workers:
    """A pool of processes that read documents and images.

    They end with `close()`, with the pool, and with the program, however that ends.
    """

    def __init__(self) -> None:
        self._thread = LoopThread("holodeck-files")
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._places = threading.BoundedSemaphore(min(MAX_PROCESSES, os.cpu_count() or 1))
        self._end = weakref.finalize(self, _end, self._thread, self._all)

    def read(self, job: Job, data: bytes, timeout: float) -> str:
        """Return the text of a file; blocks for at most `timeout` seconds once it is its turn.

        Raises ValueError with the reason, MissingExtra, or TimeLimitExceeded.
        """
        with self._places:
            reading = self._thread.submit(self._read(job, data, timeout))
            try:
                answer, text = reading.result()
            except BaseException:
                reading.cancel()
                raise
        if "missing" in answer:
            raise MissingExtra(answer["missing"], answer["needed_by"])
        if "error" in answer:
            raise ValueError(answer["error"])
        return text.decode()

    async def _read(self, job: Job, data: bytes, seconds: float) -> tuple[Mapping[str, str], bytes]:
        worker = await self._take()
        try:
            with worker.call([asdict(job), seconds], data) as reading:
                async with asyncio.timeout(seconds):
                    (answer,), text = await reading
        except TimeoutError:
            raise TimeLimitExceeded from None
        except ChildEnded as error:
            raise ValueError(f"cannot be read: {error}") from None
        self._idle.append(worker)
        return answer, text

    async def _take(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.is_usable:
                return worker
        worker, workers = _Worker(MAX_ANSWER_BYTES), self._all
        workers.add(worker)
        worker.ended.add_done_callback(lambda _: workers.discard(worker))
        variables = process_variables()
        known = {name: variables[name] for name in _VARIABLES if name in variables}
        command = python_command(_PROGRAM, [*filter(None, sys.path)])
        env = {**known, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        await worker.start(Launch(command, env=env, stderr=subprocess.DEVNULL))
        return worker

    def close(self) -> None:
        """End the processes; a later call of `read` starts new ones."""
        self._idle.clear()
        _end(self._thread, self._all)


def _end(thread: LoopThread, workers: "set[_Worker]") -> None:
    thread.close(CLOSE_S, *(partial(worker.close, 0) for worker in [*workers]))


class _Worker(FramedChild):
    """One process."""

    name = "its parser"
