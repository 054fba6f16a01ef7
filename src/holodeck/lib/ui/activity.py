"""What a run does or waits for right now, which the progress display shows.

Code that takes its time says so with `activity()` or `loading()`. Both cost next to nothing, and
have no effect where nobody displays a run.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_TIME = "{time}"


@dataclass(frozen=True, eq=False)
class Activity:
    """What is done or waited for, such as `judging` or `retry 2 of 3 in 4 s: connection refused`.

    Args:
        text: What it is, in a few words.
        timed: The same with the place `{time}` for the seconds that are left; `text` is shown
            when none are.
        ends_at: When the wait ends, by `time.monotonic`; None if nobody knows.
        reason: Why it takes place; it may come from elsewhere.
        case: The object that was passed to `enter_case`; None outside a case.
    """

    text: str
    timed: str = ""
    ends_at: float | None = None
    reason: str = ""
    case: object | None = None
    started: float = field(default_factory=time.monotonic)

    def describe(self, now: float) -> str:
        """Return it in words, with the seconds that are left."""
        left = 0.0 if self.ends_at is None else self.ends_at - now
        words = self.timed.replace(_TIME, _seconds(left)) if self.timed and left > 0 else self.text
        return f"{words}: {self.reason}" if self.reason else words


def _seconds(left: float) -> str:
    return f"{left:.0f} s" if left >= 1 else "1 s"


class Activities:
    """The activities of a run; threads may add and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: dict[int, Activity] = {}

    def add(self, one: Activity) -> None:
        with self._lock:
            self._present[id(one)] = one

    def remove(self, one: Activity) -> None:
        with self._lock:
            self._present.pop(id(one), None)

    def of(self, case: object | None) -> Activity | None:
        """Return the one of the case that began last; None without one."""
        with self._lock:
            own = [one for one in self._present.values() if one.case is case]
        return own[-1] if own else None

    def count_by_text(self, without: object) -> list[tuple[str, int]]:
        """Return how many other cases do or wait for what, the most frequent first."""
        with self._lock:
            texts = {
                id(one.case): one.text
                for one in self._present.values()
                if one.case is not None and one.case is not without
            }
        return Counter(texts.values()).most_common()


displayed: ContextVar[Activities | None] = ContextVar("holodeck_activities", default=None)
"""Takes the activities of the run; None if nobody displays them."""
_case: ContextVar[object | None] = ContextVar("holodeck_displayed_case", default=None)


def enter_case(case: object) -> None:
    """Let the activities of the present task, and of those that it starts, be those of a case."""
    _case.set(case)


def current_case() -> object | None:
    """Return what the present task passed to `enter_case`; None if it did not."""
    return _case.get()


@contextmanager
def activity(
    text: str, *, timed: str = "", seconds: float | None = None, reason: str = ""
) -> Iterator[None]:
    """Show what the block does or waits for; `seconds` is how long, if that is known.

    See `Activity` for `text`, `timed` and `reason`.
    """
    activities = displayed.get()
    if activities is None:
        yield
        return
    ends_at = None if seconds is None else time.monotonic() + seconds
    one = Activity(text, timed, ends_at, reason, _case.get())
    activities.add(one)
    try:
        yield
    finally:
        activities.remove(one)


@contextmanager
def loading(name: str, module: str) -> Iterator[None]:
    """Show that the block imports a library, unless its `module` is imported by now."""
    if module in sys.modules:
        yield
        return
    with activity(f"loading {name}"):
        yield
