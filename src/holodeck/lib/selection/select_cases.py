"""Selects the cases to run: filters them, orders them and splits them into shards."""

import hashlib
import heapq
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from holodeck.errors import NothingSelected
from holodeck.lib.selection.request import (
    UNKNOWN_HISTORY,
    CaseHistory,
    Expression,
    SelectionRequest,
    Shard,
)
from holodeck.lib.support.text import nearest_word, one_line, shorten_list
from holodeck.models.results.origin import Selection
from holodeck.models.test_case import TestCaseModel

_MAX_NAMES = 20
_MAX_NAME = 60
_PLAN_DIGITS = 8
_NEAR = 0.8
"""How alike two tags are of which either may be a slip, such as `moke` and `smoke`."""


@dataclass(frozen=True)
class SelectedCases:
    """The cases to run."""

    indexes: list[int]
    """In the order that they run in."""
    selection: Selection
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Filter:
    """The cases that an option selects."""

    flag: str
    matches: Sequence[bool]
    """By the case's index."""
    unknown: tuple[str, ...] = ()
    """A message for each of its names that no case has."""
    is_strict: bool = False
    """Whether an unknown name is an error even if other names match."""
    hints: tuple[str, ...] = ()
    """A message for each name of a case that may be misspelled."""

    @property
    def count(self) -> int:
        return sum(self.matches)


def select(
    cases: Sequence[TestCaseModel],
    request: SelectionRequest,
    history: Sequence[CaseHistory] | None = None,
) -> SelectedCases:
    """Return the requested cases. Raises NothingSelected if there are none.

    `history` is what is known of each case; it is required if `request.needs_history`.
    """
    history = history or [UNKNOWN_HISTORY] * len(cases)
    filters = build_filters(request, cases, history)
    unknown = [message for filter_ in filters for message in filter_.unknown]
    warnings = (*unknown, *(message for filter_ in filters for message in filter_.hints))
    is_unknown = any(
        filter_.unknown and (filter_.is_strict or filter_.count == 0) for filter_ in filters
    )
    if is_unknown and not request.allow_empty:
        raise NothingSelected("\n".join(unknown))
    indexes = [at for at in range(len(cases)) if all(filter_.matches[at] for filter_ in filters)]
    if cases and not indexes and not request.allow_empty:
        raise NothingSelected(_explain_no_match(filters))
    indexes = _order(indexes, cases, request, history)[: request.limit]
    plan = None
    if request.shard is not None:
        indexes, plan = _select_shard(indexes, request.shard, cases, history)
        if not indexes and not request.allow_empty:
            raise NothingSelected(
                f"--shard {request.shard}: fewer cases are selected than there are shards; "
                "use fewer shards, or --allow-empty"
            )
    selection = Selection(
        total=len(cases),
        selected=len(indexes),
        deselected=len(cases) - len(indexes),
        how=str(request),
        shard=None if request.shard is None else str(request.shard),
        plan=plan,
    )
    return SelectedCases(indexes, selection, warnings)


def _explain_no_match(filters: Sequence[Filter]) -> str:
    if len(filters) == 1:
        return f"{filters[0].flag} matches no case"
    counts = ", ".join(f"{filter_.flag} ({filter_.count} alone)" for filter_ in filters)
    return f"no case matches all of {counts}"


def build_filters(
    request: SelectionRequest, cases: Sequence[TestCaseModel], history: Sequence[CaseHistory]
) -> list[Filter]:
    filters = []
    for flag, kind, wanted, names in (
        ("--id", "the id", request.ids, [case.id for case in cases]),
        ("--suite", "the suite", request.suites, [case.suite for case in cases]),
    ):
        if wanted:
            unknown = _unknown_names(flag, kind, wanted, filter(None, names))
            matches = [name in wanted for name in names]
            filters.append(Filter(flag, matches, unknown, is_strict=True))
    if request.names:
        filters.append(_by_name(request.names, cases))
    for flag, wanted, is_excluded in (
        ("--tag", request.tags, False),
        ("--exclude-tag", request.excluded_tags, True),
    ):
        if wanted:
            known = [tag for case in cases for tag in case.tags]
            unknown = _unknown_names(flag, "the tag", wanted, known)
            matches = [set(case.tags).isdisjoint(wanted) == is_excluded for case in cases]
            hints = () if is_excluded else _near_tags(flag, wanted, cases)
            filters.append(Filter(flag, matches, unknown, hints=hints))
    if request.keyword is not None:
        filters.append(_by_keyword(request.keyword, cases))
    if request.last_failed:
        filters.append(_by_last_failure(history))
    if request.new:
        matches = [case.passed is None for case in history]
        message = "--new: every case has a result in a recorded run"
        filters.append(Filter("--new", matches, () if any(matches) else (message,)))
    return filters


def _by_name(wanted: Sequence[str], cases: Sequence[TestCaseModel]) -> Filter:
    names = [_names_of(case) for case in cases]
    known = [case_title(case) for case in cases]
    unknown = [name for name in wanted if not any(name in part for part in names)]
    messages = _unknown_names("--name", "the name", unknown, known)
    matches = [not part.isdisjoint(wanted) for part in names]
    return Filter("--name", matches, messages, is_strict=True)


def _names_of(case: TestCaseModel) -> set[str]:
    """Return what `--name` and `FILE::NAME` may call a case."""
    own = {name for name in (case_title(case), case.id) if name}
    if case.suite is None:
        return own
    return own | {case.suite} | {f"{case.suite}::{name}" for name in own}


def _by_keyword(keyword: Expression, cases: Sequence[TestCaseModel]) -> Filter:
    texts = []
    for case in cases:
        names = [name for name in (case.name, case.id, case.suite) if name]
        texts.append(
            "\n".join(names if case.name or case.id else [*names, case.user_input]).casefold()
        )
    words = [word for word in keyword.words if not any(word in text for text in texts)]
    titles = [repr(one_line(case_title(case), _MAX_NAME)) for case in cases[:3]]
    examples = f"; known: {', '.join(titles)}{', …' if len(cases) > 3 else ''}" if titles else ""
    unknown = tuple(f"-k: no name, id or suite contains {word!r}{examples}" for word in words)
    return Filter("-k", list(map(keyword.matches, texts)), unknown)


def _by_last_failure(history: Sequence[CaseHistory]) -> Filter:
    matches = [case.passed is False for case in history]
    message = "--last-failed: every case with a recorded result passed last time"
    if all(case.passed is None for case in history):
        message = "--last-failed: no recorded run has a result of these cases; run them first"
    return Filter("--last-failed", matches, () if any(matches) else (message,))


def case_title(case: TestCaseModel) -> str:
    """Return the name of a case, else its id, else its input."""
    return case.name or case.id or case.user_input


def _unknown_names(
    flag: str, kind: str, wanted: Iterable[str], known: Iterable[str]
) -> tuple[str, ...]:
    """Return a message for each wanted name that is unknown."""
    names = sorted(set(known))
    unknown = [name for name in dict.fromkeys(wanted) if name not in names]
    return tuple(f"{flag}: no case has {kind} {name!r}{_suggest(name, names)}" for name in unknown)


def _near_tags(
    flag: str, wanted: Collection[str], cases: Sequence[TestCaseModel]
) -> tuple[str, ...]:
    """Return a message for each tag like a wanted tag that only cases without a wanted tag have.

    Tags that differ in digits, such as `v1` and `v2`, are different on purpose.
    """
    wanted_tags = {_without_digits(tag): tag for tag in wanted}
    similar: dict[str, list[str]] = {}
    for case in cases:
        if set(case.tags).isdisjoint(wanted):
            for tag in case.tags:
                similar.setdefault(tag, []).append(repr(one_line(case_title(case), _MAX_NAME)))
    messages = []
    for tag, titles in similar.items():
        nearest = nearest_word(_without_digits(tag), wanted_tags, cutoff=_NEAR)
        has_digit = any(map(str.isdigit, tag))
        if nearest is not None and (nearest != _without_digits(tag) or not has_digit):
            messages.append(
                f"{flag} {wanted_tags[nearest]}: leaves out {shorten_list(titles, 3)} with the"
                f" tag {one_line(tag, _MAX_NAME)!r}; did you mean {wanted_tags[nearest]!r} there?"
            )
    return tuple(messages)


def _without_digits(tag: str) -> str:
    return "".join(char for char in tag.casefold() if not char.isdigit())


def _suggest(name: str, known: Collection[str]) -> str:
    if not known:
        return "; no case has one"
    by_folded = {word.casefold(): word for word in known}
    nearest = nearest_word(name.casefold(), by_folded)
    hint = f"; did you mean {by_folded[nearest]!r}?" if nearest else ";"
    return (
        f"{hint} known: {shorten_list([one_line(word, _MAX_NAME) for word in known], _MAX_NAMES)}"
    )


def _order(
    indexes: list[int],
    cases: Sequence[TestCaseModel],
    request: SelectionRequest,
    history: Sequence[CaseHistory],
) -> list[int]:
    if request.seed is not None:
        keys = {at: _shuffle_key(request.seed, cases[at]) for at in indexes}
        indexes = sorted(indexes, key=keys.__getitem__)
    if request.failed_first:
        indexes = sorted(indexes, key=lambda at: history[at].passed is not False)
    return indexes


def _shuffle_key(seed: int, case: TestCaseModel) -> bytes:
    """Return a key that depends on the case alone, so that other cases may come and go."""
    text = "\0".join([str(seed), case.suite or "", case_title(case)])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _select_shard(
    indexes: list[int],
    shard: Shard,
    cases: Sequence[TestCaseModel],
    history: Sequence[CaseHistory],
) -> tuple[list[int], str]:
    """Return the cases of a shard, in their order, and a few digits that are the same for the same
    cases in the same shards."""
    shards = split_into_shards({at: history[at].whole_run_ms for at in indexes}, shard.count)
    # Everything that the files say of a case.
    contents = {
        at: json.dumps(cases[at].model_dump(exclude_defaults=True), sort_keys=True, default=str)
        for at in indexes
    }
    content = [[(at, contents[at]) for at in sorted(part)] for part in shards]
    digest = hashlib.sha256(repr(content).encode("utf-8", "backslashreplace")).hexdigest()
    wanted = set(shards[shard.number - 1])
    return [at for at in indexes if at in wanted], digest[:_PLAN_DIGITS]


def split_into_shards(durations: Mapping[int, float | None], count: int) -> list[list[int]]:
    """Split the indexes into `count` shards of about the same duration.

    The result does not depend on the order of the indexes. The longest case comes first; each goes
    to the shard with the shortest duration so far. An unknown duration counts as the median.
    """
    known = [duration for duration in durations.values() if duration is not None]
    usual = median(known) if known else 1.0
    weights = {at: usual if duration is None else duration for at, duration in durations.items()}
    shards: list[list[int]] = [[] for _ in range(count)]
    loads = [(0.0, 0, number) for number in range(count)]
    for index in sorted(weights, key=lambda at: (-weights[at], at)):
        load, cases, number = loads[0]
        shards[number].append(index)
        heapq.heapreplace(loads, (load + weights[index], cases + 1, number))
    return shards
