"""Notices that an object which all test cases share keeps the messages of earlier ones."""

import logging
from collections.abc import Iterator

logger = logging.getLogger(__name__)

MAX_DEPTH = 4
MAX_VALUES = 1_000


class SharedState:
    """Looks for the first message of an earlier conversation in the attributes of an object."""

    def __init__(self, agent: object) -> None:
        self._agent = agent
        self._earlier: str | None = None
        """The first message of an earlier conversation, which the object did not hold before."""
        self._has_warned = False

    def begin(self, message: str) -> None:
        """Note that a conversation begins; warn if the object still holds an earlier one."""
        if self._has_warned:
            return
        if self._earlier is None:
            self._earlier = None if place_of(self._agent, message) else message
            return
        place = place_of(self._agent, self._earlier)
        if place is not None:
            self._has_warned = True
            logger.warning(
                "the agent is shared by all test cases and keeps their messages: %r of an earlier"
                " case is in %s.%s; name its class, or a function without parameters that creates"
                " it, so that each case has its own",
                self._earlier,
                type(self._agent).__name__,
                place,
            )


def place_of(agent: object, text: str) -> str | None:
    """Return where the attributes of an object hold a text, such as `thread.messages[0]`."""
    waiting = [(name, value, 1) for name, value in _parts(agent)]
    for place, value, depth in waiting:  # grows meanwhile
        if isinstance(value, str):
            if value == text:
                return place.removeprefix(".")
        elif depth < MAX_DEPTH and len(waiting) < MAX_VALUES:
            waiting += [(f"{place}{name}", part, depth + 1) for name, part in _parts(value)]
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):  # another mapping may read a file or a database
        yield from ((f"[{key!r}]", one) for key, one in list(value.items())[:MAX_VALUES])
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", one) for index, one in enumerate(value[:MAX_VALUES]))
    elif hasattr(value, "__dict__"):
        yield from ((f".{name}", one) for name, one in list(vars(value).items())[:MAX_VALUES])
