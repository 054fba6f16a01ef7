"""Who in this process wants to know of every result, at once and whoever runs it.

It imports nothing, so that a test runner can ask without loading what it may not need.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

logger = logging.getLogger(__name__)

ResultListener = Callable[[str, Any], None]
"""Told the name of a scenario and its result."""

FrameworkOutcome = Literal["failed", "skipped"]
FrameworkOutcomes = Mapping[type[BaseException], FrameworkOutcome]
"""What a test framework means by exceptions of its own."""

_listeners: list[ResultListener] = []
_meanings: list[FrameworkOutcomes] = []


def add_result_listener(
    listener: ResultListener, meanings: FrameworkOutcomes | None = None
) -> Callable[[], None]:
    """Tell somebody of every result from now on; gives what ends that.

    `meanings` say what becomes of a scenario that ends its test by an exception of these kinds.
    """
    known: FrameworkOutcomes = meanings or {}
    _listeners.append(listener)
    _meanings.append(known)

    def end() -> None:
        _listeners.remove(listener)
        _meanings.remove(known)

    return end


def framework_outcome(error: BaseException) -> FrameworkOutcome | None:
    """What a test framework means by the exception; None if it is none of its own."""
    kinds = type(error).__mro__
    return next((one[kind] for one in _meanings for kind in kinds if kind in one), None)


def notify_result_listeners(name: str, result: Any) -> None:
    """Tell of the result of a scenario; a witness that fails harms no run."""
    for listener in _listeners:
        try:
            listener(name, result)
        except Exception:
            logger.exception("a witness of scenario %r failed", name)
