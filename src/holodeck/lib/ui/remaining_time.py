"""How long a run will still take, estimated from the cases that are done."""

from collections.abc import Callable
from dataclasses import dataclass

MIN_FINISHED = 3
"""There is no estimate before as many cases have finished, and as many as ran at a time."""


@dataclass
class _Started:
    runs: int
    since: float


class RemainingTime:
    """Measures cases and estimates the rest.

    The unit is one run of a case; a case with `repeat: 5` counts as five. The estimate divides what
    is left by the pace of the run so far, which contains its concurrency, its retries and its
    waits. A case that runs counts as done in part, up to the mean time of the finished ones.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: float | None = None
        self._running: dict[object, _Started] = {}
        self._peak = 0
        self._finished = 0
        self._finished_runs = 0
        self._finished_s = 0.0

    def start(self, key: object, runs: int = 1) -> None:
        """Note that a case starts, which consists of so many runs."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._running[key] = _Started(runs, now)
        self._peak = max(self._peak, len(self._running))

    def finish(self, key: object) -> None:
        """Note that a case which was started has finished."""
        case = self._running.pop(key, None)
        if case is not None:
            self._finished += 1
            self._finished_runs += case.runs
            self._finished_s += self._clock() - case.since

    def estimate(self, waiting_runs: int) -> float | None:
        """Return the seconds until all is done, with so many runs that have not started.

        None if nothing can be said: too few cases have finished, or nothing is left but cases that
        already take longer than usual.
        """
        if self._began is None or self._finished < max(MIN_FINISHED, self._peak):
            return None
        now, mean = self._clock(), self._finished_s / self._finished_runs
        done, left, longest = float(self._finished_runs), float(waiting_runs), 0.0
        for case in list(self._running.values()):
            expected = mean * case.runs
            rest = max(expected - (now - case.since), 0.0)
            share = rest / expected if expected else 0.0
            done += case.runs * (1 - share)
            left += case.runs * share
            longest = max(longest, rest)
        if left <= 0 or done <= 0:
            return None
        return max(left * (now - self._began) / done, longest)
