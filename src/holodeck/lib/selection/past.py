"""What earlier runs tell of a case."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Past:
    """A case's earlier results in short; None is unknown."""

    passed: bool | None = None
    """Whether its latest result passed; None if it has never had one."""
    duration_ms: float | None = None
    """How long it takes."""


UNKNOWN = Past()
