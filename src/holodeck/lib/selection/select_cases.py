"""From what is asked for to the cases that run, in their order."""

import hashlib
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from holodeck.errors import NothingSelected
from holodeck.lib.selection.request import UNKNOWN_HISTORY, CaseHistory, SelectionRequest, Shard
from holodeck.lib.suggestions import nearest_word
from holodeck.lib.text import one_line
from holodeck.models.selection import Selection
from holodeck.models.test_case import TestCaseModel

_MOST_NAMES = 20
_NAME_LIMIT = 60


@dataclass(frozen=True)
class Filter:
    """What one option does to each case."""

    flag: str
    keeps: Sequence[bool]
    """By the case's place."""
    unknown: tuple[str, ...] = ()
    """A line for each name in it that fits no case."""
    is_strict: bool = False
    """Whether a single unknown name is one too many."""

    @property
    def kept(self) -> int:
        return sum(self.keeps)


def case_title(case: TestCaseModel) -> str:
    """What a case is called; one without a name goes by its id, else by what the user says."""
    return case.name or case.id or case.said


def build_filters(
    request: SelectionRequest, cases: Sequence[TestCaseModel], past: Sequence[CaseHistory]
) -> list[Filter]:
    """The filters that the request has."""
    made = (
        _by_name("--id", "the id", request.ids, [one.id for one in cases]),
        _by_name("--suite", "the suite", request.suites, [one.suite for one in cases]),
        _by_tag(request.tags, cases),
        _without_tag(request.excluded_tags, cases),
        _by_keyword(request, cases),
        _last_failed(past) if request.last_failed else None,
        _new(past) if request.new else None,
    )
    return [one for one in made if one is not None]


def _by_name(
    flag: str, kind: str, wanted: Collection[str], names: Sequence[str | None]
) -> Filter | None:
    """The cases of those names, each of which must be somebody's."""
    if not wanted:
        return None
    unknown = _unknown(flag, kind, wanted, filter(None, names))
    return Filter(flag, [one in wanted for one in names], unknown, is_strict=True)


def _by_tag(wanted: Collection[str], cases: Sequence[TestCaseModel]) -> Filter | None:
    if not wanted:
        return None
    unknown = _unknown("--tag", "the tag", wanted, _tags(cases))
    return Filter("--tag", [not set(one.tags).isdisjoint(wanted) for one in cases], unknown)


def _without_tag(unwanted: Collection[str], cases: Sequence[TestCaseModel]) -> Filter | None:
    if not unwanted:
        return None
    unknown = _unknown("--exclude-tag", "the tag", unwanted, _tags(cases))
    keeps = [set(one.tags).isdisjoint(unwanted) for one in cases]
    return Filter("--exclude-tag", keeps, unknown)


def _by_keyword(request: SelectionRequest, cases: Sequence[TestCaseModel]) -> Filter | None:
    if request.keyword is None:
        return None
    texts = [_searched(one) for one in cases]
    words = [one for one in request.keyword.words if not any(one in text for text in texts)]
    unknown = tuple(f"-k: no name, id or suite holds {word!r}{_such_as(cases)}" for word in words)
    return Filter("-k", list(map(request.keyword.fits, texts)), unknown)


def _searched(case: TestCaseModel) -> str:
    names = [one for one in (case.name, case.id, case.suite) if one]
    return "\n".join(names if case.name or case.id else [*names, case.said]).casefold()


def _such_as(cases: Sequence[TestCaseModel]) -> str:
    names = [repr(one_line(case_title(one), _NAME_LIMIT)) for one in cases[:3]]
    return f"; there are {', '.join(names)}{', …' if len(cases) > 3 else ''}" if names else ""


def _last_failed(past: Sequence[CaseHistory]) -> Filter:
    keeps = [one.passed is False for one in past]
    said = "--last-failed: every case that a recorded run has run passed last time"
    if all(one.passed is None for one in past):
        said = "--last-failed: no recorded run has a result of these cases; run them first"
    return Filter("--last-failed", keeps, () if any(keeps) else (said,))


def _new(past: Sequence[CaseHistory]) -> Filter:
    keeps = [one.passed is None for one in past]
    said = "--new: every case has a result in a recorded run"
    return Filter("--new", keeps, () if any(keeps) else (said,))


def _tags(cases: Sequence[TestCaseModel]) -> list[str]:
    return [tag for one in cases for tag in one.tags]


def _unknown(flag: str, kind: str, wanted: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """A line for each wanted name that is not among the known."""
    names = sorted(set(known))
    lacking = [one for one in dict.fromkeys(wanted) if one not in set(names)]
    return tuple(f"{flag}: no case has {kind} {one!r}{_near(one, names)}" for one in lacking)


def _near(name: str, known: Sequence[str]) -> str:
    if not known:
        return "; none has any"
    by_folded = {one.casefold(): one for one in known}
    nearest = nearest_word(name.casefold(), by_folded)
    hint = f"; did you mean {by_folded[nearest]!r}?" if nearest else ";"
    shown = ", ".join(one_line(one, _NAME_LIMIT) for one in known[:_MOST_NAMES])
    more = len(known) - _MOST_NAMES
    return f"{hint} there are: {shown}{f' and {more} more' if more > 0 else ''}"


_DIGITS = 8


def split_into_shards(durations: Mapping[int, float | None], count: int) -> list[list[int]]:
    """The places in `count` parts: each place in one, whatever the order they are given in.

    The longest first, each to the part that has least to do so far. What was never timed is taken
    for as long as the others usually are.
    """
    known = [one for one in durations.values() if one is not None]
    usual = median(known) if known else 1.0
    weights = {at: usual if one is None else one for at, one in durations.items()}
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [(0.0, 0, number) for number in range(count)]
    for place in sorted(weights, key=lambda at: (-weights[at], at)):
        load, cases, number = loads[0]
        parts[number].append(place)
        heapq.heapreplace(loads, (load + weights[place], cases + 1, number))
    return parts


def shard_fingerprint(parts: Sequence[Sequence[int]], titles: Mapping[int, str]) -> str:
    """A few digits that are the same wherever the same cases were dealt out in the same way."""
    dealt = [[(at, titles[at]) for at in sorted(part)] for part in parts]
    return hashlib.sha256(repr(dealt).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class SelectedCases:
    """What runs."""

    places: list[int]
    """Of the chosen cases, in the order that they run in."""
    selection: Selection
    warnings: tuple[str, ...] = ()


def select(
    cases: Sequence[TestCaseModel],
    request: SelectionRequest,
    past: Sequence[CaseHistory] | None = None,
) -> SelectedCases:
    """The cases that the request is about. Raises NothingSelected if there are none.

    `past` is what is known of each case, needed where `request.asks_the_past`.
    """
    known = past or [UNKNOWN_HISTORY] * len(cases)
    filters = build_filters(request, cases, known)
    warnings = _judged(filters, request)
    places = [at for at in range(len(cases)) if all(one.keeps[at] for one in filters)]
    if cases and not places and not request.allow_empty:
        raise NothingSelected(_no_case_passes(filters))
    places = _ordered(places, cases, request, known)[: request.limit]
    plan = None
    if request.shard is not None:
        places, plan = _part(places, request.shard, cases, known)
        _refuse_empty_part(places, request)
    return SelectedCases(places, _told(places, cases, request, plan), warnings)


def _judged(filters: Sequence[Filter], request: SelectionRequest) -> tuple[str, ...]:
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
    places: list[int],
    cases: Sequence[TestCaseModel],
    request: SelectionRequest,
    past: Sequence[CaseHistory],
) -> list[int]:
    if request.seed is not None:
        lots = {at: _lot(request.seed, cases[at]) for at in places}
        places = sorted(places, key=lots.__getitem__)
    if request.failed_first:
        places = sorted(places, key=lambda at: past[at].passed is not False)
    return places


def _lot(seed: int, case: TestCaseModel) -> bytes:
    """Where chance puts a case: it depends on the case alone, so that others may come and go."""
    text = "\0".join([str(seed), case.suite or "", case_title(case)])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _part(
    places: list[int], shard: Shard, cases: Sequence[TestCaseModel], past: Sequence[CaseHistory]
) -> tuple[list[int], str]:
    """The shard's own part, in the order of all, and the mark of the whole plan."""
    parts = split_into_shards({at: past[at].whole_run_ms for at in places}, shard.count)
    mark = shard_fingerprint(parts, {at: case_title(cases[at]) for at in places})
    mine = set(parts[shard.number - 1])
    return [at for at in places if at in mine], mark


def _refuse_empty_part(places: list[int], request: SelectionRequest) -> None:
    if places or request.allow_empty:
        return
    raise NothingSelected(
        f"--shard {request.shard}: fewer cases are selected than there are shards; "
        "use fewer shards, or --allow-empty"
    )


def _told(
    places: list[int], cases: Sequence[TestCaseModel], request: SelectionRequest, plan: str | None
) -> Selection:
    return Selection(
        total=len(cases),
        selected=len(places),
        deselected=len(cases) - len(places),
        how=str(request),
        shard=None if request.shard is None else str(request.shard),
        plan=plan,
    )
