"""What is to be read of a document or an image, as it is sent to the process that reads it."""

import json
from dataclasses import asdict, dataclass


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
