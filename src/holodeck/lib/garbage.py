"""When Python collects garbage during a run."""

import gc

NEW_OBJECTS = 10_000
"""How many new objects cause a collection. Python's 700 are a few test cases, whose objects are
still needed."""


def collect_from_now_on() -> None:
    """Collect garbage, but nothing that exists by now: that lives until the exit."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()
