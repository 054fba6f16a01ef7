"""Whether the tool calls correspond to the expected ones, in the order that a case asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from holodeck.errors import EvaluationError
from holodeck.lib.checks.call_matching import Comparison, Trajectory
from holodeck.models.cases.expectations import ExpectedTool, ToolOrder
from holodeck.models.results.evidence import unknown_reason

Fits = Sequence[Sequence[bool]]
"""For each expected call, which calls meet it."""


@dataclass(frozen=True)
class _Compared:
    """The expected calls, each compared with every call."""

    rows: list[list[Comparison | None]]

    @property
    def met(self) -> Fits:
        return [[fit is not None and fit.is_met for fit in row] for row in self.rows]

    @property
    def perhaps(self) -> Fits:
        return [[fit is not None and fit.may_be_met for fit in row] for row in self.rows]

    @property
    def unknown(self) -> str:
        """Why calls cannot be compared."""
        every = [fit for row in self.rows for fit in row if fit is not None and fit.may_be_met]
        return next(reason for fit in every for reason in fit.unknown)


def is_in_order(
    order: ToolOrder, expected: Sequence[str | ExpectedTool], trajectory: Trajectory
) -> bool:
    """Return whether the calls correspond to the expected ones. Raises EvaluationError.

    It is raised if unknown calls, arguments or results decide.
    """
    compared = _compare(expected, trajectory)
    if trajectory.evidence.tool_calls is None:
        decided = _decide_by_part(order, compared)
        if decided is None:
            raise EvaluationError(unknown_reason("tool_calls", trajectory.evidence))
        return decided
    total = len(trajectory.calls)
    if _holds(order, compared.met, total):
        return True
    if _holds(order, compared.perhaps, total):
        raise EvaluationError(compared.unknown)
    return False


def _count(expected: str | ExpectedTool) -> int:
    return 1 if isinstance(expected, str) else expected.count or 1


def _compare(expected: Sequence[str | ExpectedTool], trajectory: Trajectory) -> _Compared:
    rows = []
    most = len(trajectory.calls) + 1  # further ones change nothing
    for tool in expected:
        row = [trajectory.compare(tool, call) for call in trajectory.calls]
        rows += [row] * min(_count(tool), most)
    return _Compared(rows)


def _holds(order: ToolOrder, fits: Fits, total: int) -> bool:
    if order == "exact":
        return len(fits) == total and all(row[at] for at, row in enumerate(fits))
    if order == "in_order":
        return _follow(fits, total)
    if order == "subset":
        return _assign(_transposed(fits, total))
    return _assign(fits)


def _decide_by_part(order: ToolOrder, compared: _Compared) -> bool | None:
    """Return what some of the calls decide already; None if others may change it."""
    total = len(compared.rows[0])
    if order == "exact":
        fits = _transposed(compared.perhaps, total)
        return None if _follow(fits, len(compared.rows)) else False
    if order == "subset":
        return None if _holds(order, compared.perhaps, total) else False
    return True if _holds(order, compared.met, total) else None


def _transposed(fits: Fits, total: int) -> Fits:
    return [[row[at] for row in fits] for at in range(total)]


def _follow(fits: Fits, total: int) -> bool:
    """Whether each of the first fits one of the second, in the same order."""
    left = iter(range(total))
    return all(any(row[at] for at in left) for row in fits)


def _assign(fits: Fits) -> bool:
    """Whether each of the first fits one of the second that is its own (a bipartite matching)."""
    owners: dict[int, int] = {}
    return all(_find_place(index, fits, owners) for index in range(len(fits)))


def _find_place(start: int, fits: Fits, owners: dict[int, int]) -> bool:
    """Give `start` a place of its own, for which others may move to another one of theirs."""
    places = {owner: place for place, owner in owners.items()}
    wanted_by: dict[int, int] = {}
    waiting = [start]
    while waiting:
        one = waiting.pop()
        for place in (at for at, is_fit in enumerate(fits[one]) if is_fit and at not in wanted_by):
            wanted_by[place] = one
            if place in owners:
                waiting.append(owners[place])
                continue
            moved: int | None = place
            while moved is not None:
                owner = wanted_by[moved]
                owners[moved] = owner
                moved = places.get(owner)
            return True
    return False
