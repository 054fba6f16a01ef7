"""Listeners to the results of all scenarios of this process.

The module imports nothing of holodeck, so that a test framework can subscribe at no cost.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

logger = logging.getLogger(__name__)

ResultListener = Callable[[str, Any], None]
"""Called with the name of a scenario and its result."""

FrameworkOutcome = Literal["failed", "skipped"]
FrameworkOutcomes = Mapping[type[BaseException], FrameworkOutcome]
"""The outcome of a test that raises an exception of its test framework."""

_listeners: list[ResultListener] = []
_outcomes: list[FrameworkOutcomes] = []


def add_result_listener(
    listener: ResultListener, outcomes: FrameworkOutcomes | None = None
) -> Callable[[], None]:
    """Call a listener with every result from now on; returns a function that removes it.

    `outcomes` are those of scenarios that a test framework's own exceptions end.
    """
    known: FrameworkOutcomes = outcomes or {}
    _listeners.append(listener)
    _outcomes.append(known)

    def remove() -> None:
        _listeners.remove(listener)
        _outcomes.remove(known)

    return remove


def framework_outcome(error: BaseException) -> FrameworkOutcome | None:
    """Return the outcome of a test framework's exception; None for any other exception."""
    types = type(error).__mro__
    return next(
        (known[error_type] for known in _outcomes for error_type in types if error_type in known),
        None,
    )


def notify_result_listeners(name: str, result: Any) -> None:
    """Call all listeners; what they raise is logged."""
    for listener in _listeners:
        try:
            listener(name, result)
        except Exception:
            logger.exception("a listener to the result of scenario %r failed", name)
