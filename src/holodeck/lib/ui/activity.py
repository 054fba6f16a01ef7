"""What a run does or waits for right now, which the progress display shows.

Code that takes its time says so with `activity()` or `loading()`. Both cost next to nothing, and
have no effect where nobody displays a run.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.lib.support.text import clip, columns_of, one_line

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
        words = self.text
        if self.timed and left > 0:
            words = self.timed.replace(_TIME, f"{max(left, 1):.0f} s")
        return f"{words}: {self.reason}" if self.reason else words


class Activities:
    """The activities of a run; threads may add and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: dict[int, Activity] = {}

    def add(self, activity: Activity) -> None:
        with self._lock:
            self._present[id(activity)] = activity

    def remove(self, activity: Activity) -> None:
        with self._lock:
            self._present.pop(id(activity), None)

    def of(self, case: object | None) -> Activity | None:
        """Return the activity of the case that began last; None if there is none."""
        with self._lock:
            activities = [each for each in self._present.values() if each.case is case]
        return activities[-1] if activities else None

    def count_by_text(self, without: object) -> list[tuple[str, int]]:
        """Return how many other cases do or wait for what, the most frequent first."""
        with self._lock:
            texts = {
                id(each.case): each.text
                for each in self._present.values()
                if each.case is not None and each.case is not without
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
    present = Activity(text, timed, ends_at, reason, _case.get())
    activities.add(present)
    try:
        yield
    finally:
        activities.remove(present)


@contextmanager
def loading(name: str, module: str) -> Iterator[None]:
    """Show that the block imports a library, unless its `module` is imported by now."""
    if module in sys.modules:
        yield
        return
    with activity(f"loading {name}"):
        yield


MIN_FINISHED = 3
"""There is no estimate before as many cases have finished, and as many as ran at a time."""


class RemainingTime:
    """Measures cases and estimates the rest.

    The unit is a run of a case; a case with `repeat: 5` counts as five. The estimate divides what
    is left by the pace of the run so far, which contains its concurrency, its retries and its
    waits. A case that runs counts as done in part, up to the mean time of the finished ones.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: float | None = None
        self._running: dict[object, tuple[int, float]] = {}
        """Case → its runs, and when it started."""
        self._peak = 0
        self._finished = 0
        self._finished_runs = 0
        self._finished_s = 0.0

    def start(self, key: object, runs: int = 1) -> None:
        """Note that a case starts, which consists of so many runs."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._running[key] = (runs, now)
        self._peak = max(self._peak, len(self._running))

    def finish(self, key: object) -> None:
        """Note that a case which was started has finished."""
        if key in self._running:
            runs, since = self._running.pop(key)
            self._finished += 1
            self._finished_runs += runs
            self._finished_s += self._clock() - since

    def estimate(self, waiting_runs: int) -> float | None:
        """Return the seconds until all is done, with so many runs that have not started.

        None if nothing can be said: too few cases have finished, or nothing is left but cases that
        already take longer than usual.
        """
        if self._began is None or self._finished < max(MIN_FINISHED, self._peak):
            return None
        now, mean = self._clock(), self._finished_s / self._finished_runs
        done, left, longest = float(self._finished_runs), float(waiting_runs), 0.0
        for runs, since in list(self._running.values()):
            expected = mean * runs
            rest = max(expected - (now - since), 0.0)
            share = rest / expected if expected else 0.0
            done += runs * (1 - share)
            left += runs * share
            longest = max(longest, rest)
        if left <= 0 or done <= 0:
            return None
        return max(left * (now - self._began) / done, longest)


_MAX_TEXT = 300
_MIN_NAME = 8
_NARROW = 50
"""With fewer columns, what a case waits for takes the place of how long it has run."""
_MAX_BAR = 30
_MIN_BAR = 6
_SHOW_AFTER_S = 0.5
"""What takes less time than this before the first case is not worth a row."""
_INDENT = "  "


@dataclass(eq=False)
class CaseInProgress:
    """A case that runs."""

    name: str
    since: float


class LiveStatus:
    """The cases that run, what they wait for, and how long the rest will take.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.activities = Activities()
        self.waiting_runs: int | None = None
        """Runs of cases that have not started; None if the cases are counted instead."""
        self.redact: Callable[[str], str] = str
        """Hides secrets in the reasons of waits."""
        self._clock = clock
        self._began = clock()
        self._cases: list[CaseInProgress] = []
        self._remaining = RemainingTime(clock)

    @property
    def is_running(self) -> bool:
        """Whether a case runs."""
        return bool(self._cases)

    def start(self, name: str, runs: int) -> None:
        """Note that a case starts in the present task."""
        case = CaseInProgress(name, self._clock())
        self._cases.append(case)
        self._remaining.start(case, runs)
        if self.waiting_runs is not None:
            self.waiting_runs = max(self.waiting_runs - runs, 0)
        enter_case(case)

    def finish(self, name: str) -> None:
        """Note that the case of the present task, else a case with that name, has finished."""
        if not self._cases:
            return
        case = current_case()
        if not isinstance(case, CaseInProgress) or case not in self._cases:
            # The caller may have started a case without a name under another label: the oldest.
            named = (running for running in self._cases if running.name == name)
            case = next(named, self._cases[0])
        self._cases.remove(case)
        self._remaining.finish(case)

    def rows(
        self, counts: Mapping[str, int], spinner: str, columns: int, *, ascii_only: bool
    ) -> str:
        """Return the bar with the counts, and what runs and waits; empty if nothing goes on.

        `counts` has `done`, `failed` and `total`; each row fits into so many columns.
        """
        head = self._head(counts, f"{spinner} ", columns, ascii_only=ascii_only)
        if self._cases:
            return f"{head}\n{_INDENT}{self._running_row(columns - len(_INDENT))}"
        preparing = self._preparing()
        return clip(f"{spinner} {preparing}", columns) if preparing else ""

    def log_line(self, counts: Mapping[str, int]) -> str:
        """Return how far the run is, and what its oldest case waits for."""
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        line = f"still running: {counts['done']} of {counts['total']} done{failed}"
        line += f", {self._clock() - self._began:.0f} s"
        left = self._time_left(counts)
        line += f", {left}" if left else ""
        what = self._running_row(_MAX_TEXT) if self._cases else self._preparing()
        return f"{line}; {what}" if what else line

    def _head(
        self, counts: Mapping[str, int], start: str, columns: int, *, ascii_only: bool
    ) -> str:
        """Return the first row; the bar gets what room the facts leave, and gives way first."""
        done, total = counts["done"], counts["total"]
        text, room = "", 0
        for text in self._facts(counts):
            room = min(columns - columns_of(start + text) - 1, _MAX_BAR)
            if room >= _MIN_BAR:
                break
        if room < _MIN_BAR or not total:
            return clip(start + text, columns)
        filled, empty = "#-" if ascii_only else "━─"
        part = min(room * done // total, room)
        return f"{start}{filled * part}{empty * (room - part)} {text}"

    def _facts(self, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield the counts and times in words, each time shorter."""
        facts = [f"{counts['done']}/{counts['total']}"]
        if counts["failed"]:
            facts.append(f"{counts['failed']} failed")
        elapsed, left = _clock_time(self._clock() - self._began), self._time_left(counts)
        if not left:
            yield ", ".join([*facts, elapsed])
            return
        yield ", ".join([*facts, elapsed, left])
        brief = left.replace("about ", "~").removesuffix(" left")
        yield ", ".join([*facts, elapsed, brief])
        yield ", ".join([*facts, brief])

    def _time_left(self, counts: Mapping[str, int]) -> str:
        """Return `about 1:20 left`; empty if nothing can be said."""
        waiting = self.waiting_runs
        if waiting is None:
            waiting = max(counts["total"] - counts["done"] - len(self._cases), 0)
        seconds = self._remaining.estimate(waiting)
        if seconds is None:
            return ""
        # What an estimate deserves: from ten seconds 5 s, from ten minutes a minute.
        step = 1 if seconds < 10 else 5 if seconds < 600 else 60
        return f"about {_clock_time(max(round(seconds / step) * step, 1))} left"

    def _running_row(self, columns: int) -> str:
        """Return `greets (3 s): judging; 2 more: 1 judging`, shortened where it matters least."""
        cases = list(self._cases)
        if not cases:
            return ""
        now = self._clock()
        first = cases[0]
        doing = self.activities.of(first) or self.activities.of(None)
        wait = "" if doing is None else f": {self._clean(doing.describe(now))}"
        is_narrow = columns < _NARROW and doing is not None
        time_text = "" if is_narrow else f" ({now - first.since:.0f} s)"
        others = len(cases) - 1
        more = (f" +{others}" if is_narrow else f"; {others} more") if others else ""
        counted = [f"{count} {text}" for text, count in self.activities.count_by_text(first)]
        kinds = f": {', '.join(counted)}" if others and counted else ""
        fixed = columns_of(time_text + more)
        name = one_line(first.name, _MAX_TEXT)
        room = columns - fixed - columns_of(wait)
        if room < columns_of(name):
            name = clip(name, max(room, min(_MIN_NAME, columns - fixed), 1))
        wait = clip(wait, max(columns - fixed - columns_of(name), 0))
        row = f"{name}{time_text}{wait}{more}"
        return clip(row, columns) if columns_of(row + kinds) > columns else row + kinds

    def _preparing(self) -> str:
        """Return what goes on outside of all cases; empty if it has only begun."""
        activity, now = self.activities.of(None), self._clock()
        if activity is None or now - self._began < _SHOW_AFTER_S:
            return ""
        return self._clean(activity.describe(now))

    def _clean(self, text: str) -> str:
        return one_line(self.redact(text), _MAX_TEXT)


def _clock_time(seconds: float) -> str:
    """Return such as `0:34`, `12:05` or `1:02:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
