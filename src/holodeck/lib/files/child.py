"""Reads documents and images in a process of its own (see `worker`).

A hostile file costs no more than this process, which
has limits of memory and time, cannot write files, and ends with the one that started it.
"""

import os
from functools import partial
from queue import SimpleQueue

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.files.worker import Job
from holodeck.lib.processes.channel import FrameReader, Head, Parent

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
