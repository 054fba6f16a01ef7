"""From what is asked for to the cases that run, in their order."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from holodeck.errors import NothingSelected
from holodeck.lib.selection.filters import Filter, filters_of, title_of
from holodeck.lib.selection.past import UNKNOWN, CasePast
from holodeck.lib.selection.request import Request, Shard
from holodeck.lib.selection.shards import shard_fingerprint, shards_of
from holodeck.models.selection import Selection
from holodeck.models.test_case import TestCaseModel


@dataclass(frozen=True)
class Choice:
    """What runs."""

    places: list[int]
    """Of the chosen cases, in the order that they run in."""
    selection: Selection
    warnings: tuple[str, ...] = ()


def choose(
    cases: Sequence[TestCaseModel], request: Request, past: Sequence[CasePast] | None = None
) -> Choice:
    """The cases that the request is about. Raises NothingSelected if there are none.

    `past` is what is known of each case, needed where `request.asks_the_past`.
    """
    known = past or [UNKNOWN] * len(cases)
    filters = filters_of(request, cases, known)
    warnings = _judged(filters, request)
    places = [at for at in range(len(cases)) if all(one.keeps[at] for one in filters)]
    if cases and not places and not request.allow_empty:
        raise NothingSelected(_no_case_passes(filters))
    places = _ordered(places, cases, request, known)[: request.limit]
    plan = None
    if request.shard is not None:
        places, plan = _part(places, request.shard, cases, known)
        _refuse_empty_part(places, request)
    return Choice(places, _told(places, cases, request, plan), warnings)


def _judged(filters: Sequence[Filter], request: Request) -> tuple[str, ...]:
    """What to warn of. Raises NothingSelected for a name that must fit and does not."""
    unknown = [line for one in filters for line in one.unknown]
    if request.allow_empty:
        return tuple(unknown)
    for one in filters:
        if one.unknown and (one.is_strict or one.kept == 0):
            raise NothingSelected("\n".join(unknown))
    return tuple(unknown)


def _no_case_passes(filters: Sequence[Filter]) -> str:
    if len(filters) == 1:
        return f"{filters[0].flag} leaves no case"
    counts = ", ".join(f"{one.flag} ({one.kept} alone)" for one in filters)
    return f"no case passes all of {counts}"


def _ordered(
    places: list[int], cases: Sequence[TestCaseModel], request: Request, past: Sequence[CasePast]
) -> list[int]:
    if request.seed is not None:
        lots = {at: _lot(request.seed, cases[at]) for at in places}
        places = sorted(places, key=lots.__getitem__)
    if request.failed_first:
        places = sorted(places, key=lambda at: past[at].passed is not False)
    return places


def _lot(seed: int, case: TestCaseModel) -> bytes:
    """Where chance puts a case: it depends on the case alone, so that others may come and go."""
    text = "\0".join([str(seed), case.suite or "", title_of(case)])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _part(
    places: list[int], shard: Shard, cases: Sequence[TestCaseModel], past: Sequence[CasePast]
) -> tuple[list[int], str]:
    """The shard's own part, in the order of all, and the mark of the whole plan."""
    parts = shards_of({at: past[at].whole_run_ms for at in places}, shard.count)
    mark = shard_fingerprint(parts, {at: title_of(cases[at]) for at in places})
    mine = set(parts[shard.number - 1])
    return [at for at in places if at in mine], mark


def _refuse_empty_part(places: list[int], request: Request) -> None:
    if places or request.allow_empty:
        return
    raise NothingSelected(
        f"--shard {request.shard}: fewer cases are selected than there are shards; "
        "use fewer shards, or --allow-empty"
    )


def _told(
    places: list[int], cases: Sequence[TestCaseModel], request: Request, plan: str | None
) -> Selection:
    return Selection(
        total=len(cases),
        selected=len(places),
        deselected=len(cases) - len(places),
        how=str(request),
        shard=None if request.shard is None else str(request.shard),
        plan=plan,
    )
