"""Processes that read documents and images: started when needed, reused, and killed at the limit.

A hostile file costs no more than such a process, which has limits of memory and time, cannot write
files, and ends with the program that started it.
"""

import asyncio
import os
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.files.documents import Job, document_as_markdown
from holodeck.lib.processes.channel import FrameReader, Head, Parent
from holodeck.lib.processes.child_process import (
    CLOSE_S,
    ChildEnded,
    FramedChild,
    Launch,
    main_of,
    python_command,
)
from holodeck.lib.processes.threads import LoopThread
from holodeck.lib.support.environment import process_variables

MAX_PROCESSES = 4
MAX_ANSWER_BYTES = 100_000_000
_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "TMPDIR")
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
        command = python_command(main_of(__name__), [*filter(None, sys.path)])
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


MAX_MEMORY_BYTES = 2_000_000_000
MAX_TEXT_BYTES = 20_000_000


def main() -> None:
    """Answer one job after the other until stdin ends."""
    parent = Parent(FrameReader())
    _limit_resources()
    jobs: SimpleQueue[list[tuple[Head, bytes]]] = SimpleQueue()
    # Whoever wanted the answers is gone at the end of stdin.
    parent.listen(jobs.put, partial(os._exit, 0))
    while True:
        for (number, fields, seconds), data in jobs.get():
            _limit_time(seconds)
            answer = _answer(Job(**{**fields, "pages": tuple(fields["pages"])}), data)
            text = answer.pop("text", "").encode(errors="replace")
            parent.send([number, answer], text)


def _answer(job: Job, data: bytes) -> dict[str, str]:
    """Return the text of a file, or the `error`."""
    try:
        if job.kind == "image":
            text = _text_in_image(data, job.program or "tesseract")
        else:
            text = document_as_markdown(data, job)
    except MissingExtra as error:
        return {"error": str(error), "missing": error.extra, "needed_by": error.field}
    except MemoryError:
        return {"error": f"needs more than {MAX_MEMORY_BYTES / 1e9:g} GB of memory to be read"}
    except ConfigError as error:
        return {"error": error.message}
    except Exception as error:  # noqa: BLE001 - a parser may raise anything
        return {"error": str(error) or type(error).__name__}
    if len(text) > MAX_TEXT_BYTES:
        return {"error": f"holds {len(text) / 1e6:,.0f} MB of text; at most 20 MB are read"}
    return {"text": text}


def _text_in_image(data: bytes, program: str) -> str:
    """Return the text in an image, as the program reads it. Raises ValueError."""
    done = subprocess.run(  # the caller's limits apply, and its end ends the program
        [program, "stdin", "stdout"], input=data, capture_output=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with {done.returncode}"
        raise ValueError(f"tesseract cannot read it: {reason}")
    return done.stdout.decode(errors="replace").replace("\f", "").strip()


def _limit_resources() -> None:
    """Limit memory, and forbid files and core dumps."""
    for name, limit in (("AS", MAX_MEMORY_BYTES), ("FSIZE", 0), ("CORE", 0)):
        _, hardest = resource.getrlimit(kind := getattr(resource, f"RLIMIT_{name}"))
        resource.setrlimit(kind, (limit, hardest))


def _limit_time(seconds: float) -> None:
    """End the process once it has used so many further seconds of a processor.

    Whoever waits for the answer ends it earlier; this holds if nobody is left.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 2
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hardest))
