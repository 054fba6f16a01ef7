"""Reads documents and images in a process of its own: `python -m holodeck.lib.files.child`.

It gets jobs on stdin and answers on stdout. A hostile file costs no more than this process, which
has limits of memory and time, cannot write files, and ends with the one that started it.
"""

import json
import os
import sys
import threading
from queue import SimpleQueue
from typing import BinaryIO

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.files.worker import Job, decode_job

MAX_MEMORY_BYTES = 2_000_000_000
MAX_TEXT_BYTES = 20_000_000


def main() -> None:
    """Answer one job after the other until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # parsers may print
    _limit_resources()
    jobs: SimpleQueue[tuple[Job, bytes, float]] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        job, data, seconds = jobs.get()
        _limit_time(seconds)
        answer = _answer(job, data)
        del data
        text = answer.pop("text", "").encode(errors="replace")
        head = json.dumps({**answer, "size": len(text)}).encode()
        answers.write(head + b"\n" + text)
        answers.flush()


def _read_jobs(stream: BinaryIO, jobs: "SimpleQueue[tuple[Job, bytes, float]]") -> None:
    """Pass jobs on, and end the process with its stdin: whoever wanted the answers is gone."""
    while line := stream.readline():
        job, size, seconds = decode_job(line)
        data = stream.read(size)
        if len(data) < size:
            break
        jobs.put((job, data, seconds))
    os._exit(0)


def _answer(job: Job, data: bytes) -> dict[str, str]:
    """Return the text of a file, or the `error`."""
    try:
        text = _read(job, data)
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


def _read(job: Job, data: bytes) -> str:
    # Imported here because each job needs one of them.
    if job.kind == "image":
        from holodeck.lib.files.images import read_text  # noqa: PLC0415

        return read_text(data, job.program or "tesseract")
    from holodeck.lib.files.documents import document_as_markdown  # noqa: PLC0415

    return document_as_markdown(data, job)


def _limit_resources() -> None:
    """Limit memory, and forbid files and core dumps, where the system can."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    for name, limit in (("AS", MAX_MEMORY_BYTES), ("FSIZE", 0), ("CORE", 0)):
        _, hardest = resource.getrlimit(kind := getattr(resource, f"RLIMIT_{name}"))
        resource.setrlimit(kind, (limit, hardest))


def _limit_time(seconds: float) -> None:
    """End the process once it has used so many further seconds of a processor.

    Whoever waits for the answer ends it earlier; this holds if nobody is left.
    """
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 2
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hardest))


if __name__ == "__main__":
    main()
