"""What of an earlier run still holds, and what has changed since."""

from collections import Counter
from collections.abc import Sequence

from holodeck.lib.records.fingerprint import Fingerprint
from holodeck.lib.records.run import Run
from holodeck.models.record import CaseFinished, PlannedCase
from holodeck.models.test_result import Outcome, TestResult

_UNDECIDED = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}
_MOST_NAMES = 10


def kept_results(
    run: Run, present: Fingerprint, *, retry_errors: bool = False
) -> dict[int, TestResult]:
    """The recorded results that hold for the present cases, by place in the present file.

    A result holds for a case if everything it depends on is the same, wherever the case stands now.
    With `retry_errors` those do not that decided nothing.
    """
    left: dict[str, list[CaseFinished]] = {}
    for one in run.finished.values():
        if not (retry_errors and one.result.outcome in _UNDECIDED):
            left.setdefault(one.hash, []).append(one)
    kept: dict[int, TestResult] = {}
    for index, wanted in enumerate(present.hashes):
        if left.get(wanted):
            kept[index] = left[wanted].pop(0).result
    return kept


def places_of(planned: Sequence[PlannedCase], present: Sequence[PlannedCase]) -> list[int]:
    """Where the planned cases stand now, in the order of the plan; without those that are gone."""
    exact: dict[str, list[int]] = {}
    by_key: dict[tuple[str, ...], int] = {}
    for place, one in enumerate(present):
        exact.setdefault(one.hash, []).append(place)
        by_key.setdefault(one.key, place)
    places = [
        exact[one.hash].pop(0) if exact.get(one.hash) else by_key.get(one.key) for one in planned
    ]
    return list(dict.fromkeys(place for place in places if place is not None))


def changes(run: Run, present: Fingerprint) -> list[str]:
    """What is not as it was in the run, a line each; empty if all is."""
    if run.started is None:
        return ["what was run cannot be read: the record's first line is damaged"]
    before = run.started.hashes
    parts = [name for name in {**before, **present.parts} if _differs(name, before, present.parts)]
    lines = [f"{name}: changed" for name in parts]
    return lines + _case_changes(run.started.cases, present.cases)


def _differs(name: str, before: dict[str, str], now: dict[str, str]) -> bool:
    return before.get(name) != now.get(name)


def _case_changes(before: Sequence[PlannedCase], now: Sequence[PlannedCase]) -> list[str]:
    old, new = Counter(map(_key, before)), Counter(map(_key, now))
    gone = [_named(one, index) for index, one in enumerate(before) if _key(one) in old - new]
    come = [_named(one, index) for index, one in enumerate(now) if _key(one) in new - old]
    changed = [name for name in come if name in gone]
    groups = (
        ("changed", changed),
        ("added", [name for name in come if name not in changed]),
        ("removed", [name for name in gone if name not in changed]),
    )
    return [f"test cases {what}: {_listed(names)}" for what, names in groups if names]


def _key(case: PlannedCase) -> tuple[str | None, str]:
    return case.name, case.hash


def _named(case: PlannedCase, index: int) -> str:
    return f"#{index + 1}" if case.name is None else case.name


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
