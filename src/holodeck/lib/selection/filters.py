"""The filters: which cases each keeps, and what to say of one that fits none."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holodeck.lib.selection.past import CasePast
from holodeck.lib.selection.request import Request
from holodeck.lib.suggestions import nearest_word
from holodeck.lib.text import one_line
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


def title_of(case: TestCaseModel) -> str:
    """What a case is called; one without a name goes by its id, else by what the user says."""
    return case.name or case.id or case.said


def filters_of(
    request: Request, cases: Sequence[TestCaseModel], past: Sequence[CasePast]
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


def _by_keyword(request: Request, cases: Sequence[TestCaseModel]) -> Filter | None:
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
    names = [repr(one_line(title_of(one), _NAME_LIMIT)) for one in cases[:3]]
    return f"; there are {', '.join(names)}{', …' if len(cases) > 3 else ''}" if names else ""


def _last_failed(past: Sequence[CasePast]) -> Filter:
    keeps = [one.passed is False for one in past]
    said = "--last-failed: every case that a recorded run has run passed last time"
    if all(one.passed is None for one in past):
        said = "--last-failed: no recorded run has a result of these cases; run them first"
    return Filter("--last-failed", keeps, () if any(keeps) else (said,))


def _new(past: Sequence[CasePast]) -> Filter:
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
