"""How downloads tell how far they are."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and the model's name. An exception it raises ends a pull
cleanly, and is passed on."""


def silent(done_bytes: int, total_bytes: int, what: str) -> None:
    """Say nothing."""
