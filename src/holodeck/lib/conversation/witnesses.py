"""Who in this process wants to know of every result, at once and whoever runs it.

It imports nothing, so that a test runner can ask without loading what it may not need.
"""

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

Witness = Callable[[str, Any], None]
"""Told the name of a scenario and its result."""

_witnesses: list[Witness] = []


def watch(witness: Witness) -> Callable[[], None]:
    """Tell somebody of every result from now on; gives what ends that."""
    _witnesses.append(witness)
    return lambda: _witnesses.remove(witness)


def tell(name: str, result: Any) -> None:
    """Tell of the result of a scenario; a witness that fails harms no run."""
    for witness in _witnesses:
        try:
            witness(name, result)
        except Exception:
            logger.exception("a witness of scenario %r failed", name)
