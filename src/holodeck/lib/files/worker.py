"""Processes that read documents: started when needed, reused, and killed at the time limit."""

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from holodeck.errors import MissingExtra
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

    def encode(self, size: int, seconds: float) -> bytes:
        """Return the line that precedes a file of so many bytes."""
        return json.dumps({**asdict(self), "size": size, "seconds": seconds}).encode() + b"\n"


def decode_job(line: bytes) -> tuple[Job, int, float]:
    """Return the job, the bytes of the file, and the seconds that it may take."""
    fields = json.loads(line)
    size, seconds = fields.pop("size"), fields.pop("seconds")
    return Job(**{**fields, "pages": tuple(fields["pages"])}), size, seconds


MAX_PROCESSES = 4
_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT", "TESSDATA_PREFIX", "TMPDIR")
"""What the process gets to know of the environment: no secrets."""


class TimeLimitExceeded(Exception):
    """A file was not read within its time limit; the process is gone."""


class Workers:
    """A pool of processes that read documents and images.

    They end with `close()`, with the pool, and with the program, however that ends.
    """

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._places = threading.BoundedSemaphore(min(MAX_PROCESSES, os.cpu_count() or 1))
        self._end = weakref.finalize(self, _kill_all, self._all)

    def read(self, job: Job, data: bytes, timeout: float) -> str:
        """Return the text of a file; blocks for at most `timeout` seconds once it is its turn.

        Raises ValueError with the reason, MissingExtra, or TimeLimitExceeded.
        """
        with self._places:
            worker = self._take()
            try:
                answer, text = worker.ask(job, data, timeout)
            except BaseException:
                self._all.discard(worker)
                worker.kill()
                raise
            self._idle.append(worker)
        if "missing" in answer:
            raise MissingExtra(answer["missing"], answer["needed_by"])
        if "error" in answer:
            raise ValueError(answer["error"])
        return text

    def close(self) -> None:
        """End the processes; a later call of `read` starts new ones."""
        self._idle.clear()
        _kill_all(self._all)

    def _take(self) -> "_Worker":
        with suppress(IndexError):
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._all.discard(worker)
            worker.kill()
        worker = _Worker()
        self._all.add(worker)
        return worker


def _kill_all(workers: "set[_Worker]") -> None:
    while workers:
        workers.pop().kill()


class _Worker:
    """One process."""

    def __init__(self) -> None:
        given = process_variables()
        variables = {name: given[name] for name in _VARIABLES if name in given}
        self._process = subprocess.Popen(
            # -P: nothing in the working folder may stand in for a module
            [sys.executable, "-P", "-B", "-m", "holodeck.lib.files.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **variables,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONUTF8": "1",
            },
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: Job, data: bytes, timeout: float) -> tuple[Mapping[str, Any], str]:
        """Return the answer to a job and its text. Raises ValueError, TimeLimitExceeded."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - they are pipes
        is_late = threading.Event()
        timer = threading.Timer(timeout, self._end_late, [is_late])
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):
                stdin.write(job.encode(len(data), timeout) + data)
                stdin.flush()
            head = stdout.readline()
            answer = json.loads(head) if head else None
            text = b"" if answer is None else stdout.read(answer["size"])
        finally:
            timer.cancel()
        if answer is not None and len(text) == answer["size"]:
            return answer, text.decode()
        if is_late.is_set():
            raise TimeLimitExceeded
        raise ValueError(f"cannot be read: its parser {self._end_of_process()}")

    def _end_late(self, is_late: threading.Event) -> None:
        is_late.set()
        self._send_kill()

    def _end_of_process(self) -> str:
        code = self._process.wait()
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """End the process and what it started, and release its pipes."""
        self._send_kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _send_kill(self) -> None:
        if self._process.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
