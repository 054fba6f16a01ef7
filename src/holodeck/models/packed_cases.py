"""Test cases that take little memory, however many there are."""

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import is_
from typing import Any, overload

from pydantic import WrapSerializer, WrapValidator

from holodeck.models.base import shared_names
from holodeck.models.lazy_sequence import LazySequence
from holodeck.models.test_case import TestCaseModel

MOST_UNPACKED = 10_000
"""So many test cases are kept as objects of about 2 kB each, which are faster to use."""
_AT_ONCE = 1_000
Packed = bytes | TestCaseModel
Change = Callable[[int, TestCaseModel], TestCaseModel]
_MADE = object()


class PackedCases(LazySequence[TestCaseModel]):
    """Test cases as bytes; an object is made of a case each time it is asked for.

    A case that has objects of its own, such as metrics, is kept as it is, so that these stay the
    same ones.

    Args:
        packed: What `pack` returns for each case.
    """

    def __init__(self, packed: list[Packed]) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[TestCaseModel]:
        return map(_unpack, self._packed)

    @overload
    def __getitem__(self, at: int) -> TestCaseModel: ...
    @overload
    def __getitem__(self, at: slice) -> "PackedCases": ...
    def __getitem__(self, at: int | slice) -> "TestCaseModel | PackedCases":
        found = self._packed[at]
        return PackedCases(found) if isinstance(found, list) else _unpack(found)

    def at(self, indexes: Iterable[int]) -> "PackedCases":
        """Return the cases at these indexes, in their order."""
        return PackedCases([self._packed[index] for index in indexes])

    def map(self, change: Change) -> "PackedCases":
        """Return `change(index, case)` of each case; the same sequence if that changes none."""
        changed: dict[int, Packed] = {}
        for index, case in enumerate(self):
            new = change(index, case)
            if new is not case:
                changed[index] = pack(new)
        if not changed:
            return self
        return PackedCases([changed.get(at, packed) for at, packed in enumerate(self._packed)])


def cases_at(cases: Sequence[TestCaseModel], indexes: Iterable[int]) -> Sequence[TestCaseModel]:
    """Return the cases at these indexes, in their order."""
    if isinstance(cases, PackedCases):
        return cases.at(indexes)
    return [cases[index] for index in indexes]


def map_cases(cases: Sequence[TestCaseModel], change: Change) -> Sequence[TestCaseModel]:
    """Return `change(index, case)` of each case; the same sequence if that changes none."""
    if isinstance(cases, PackedCases):
        return cases.map(change)
    changed = [change(index, case) for index, case in enumerate(cases)]
    return cases if all(map(is_, changed, cases)) else changed


def pack(case: TestCaseModel) -> Packed:
    """Return a case as bytes, without the keys that have their default.

    The case is returned as it is if it holds more than texts, numbers, and lists and mappings of
    these.
    """
    if type(case) is not TestCaseModel:
        return case
    defaults, made = _defaults()
    given = {
        key: value
        for key, value in vars(case).items()
        if value is not defaults.get(key, _MADE) and (value or key not in made)
    }
    try:
        return marshal.dumps((given, tuple(case.model_fields_set)))
    except ValueError:
        return case


def _unpack(packed: Packed) -> TestCaseModel:
    if isinstance(packed, TestCaseModel):
        return packed
    given, names = marshal.loads(packed)  # noqa: S302 - `pack` made it in this run
    defaults, made = _defaults()
    values = {**defaults, **given}
    for key, make in made.items():
        if key not in given:
            values[key] = make()
    case = TestCaseModel.__new__(TestCaseModel)
    case.__setstate__(
        {
            "__dict__": values,
            "__pydantic_fields_set__": shared_names(frozenset(names)),
            "__pydantic_extra__": None,
            "__pydantic_private__": None,
        }
    )
    return case


@cache
def _defaults() -> tuple[dict[str, Any], dict[str, type]]:
    """Return the default of each key of a case, and the types of those that no two cases may share:
    empty lists and mappings."""
    found = {
        name: field.get_default(call_default_factory=True)
        for name, field in TestCaseModel.model_fields.items()
    }
    made = {name: type(one) for name, one in found.items() if one in ([], {})}
    return {name: _MADE if name in made else one for name, one in found.items()}, made


def _pack_many(
    value: Any, validate: Callable[[Any], list[TestCaseModel]]
) -> Sequence[TestCaseModel]:
    """Validate a list of cases, and pack them if they are many, some at a time."""
    if isinstance(value, PackedCases):
        return value
    if not isinstance(value, list) or len(value) <= MOST_UNPACKED:
        return validate(value)
    packed: list[Packed] = []
    try:
        for start in range(0, len(value), _AT_ONCE):
            packed += map(pack, validate(value[start : start + _AT_ONCE]))
    except ValueError:
        validate(value)  # with the errors of all cases, and their indexes in the whole list
        raise
    return PackedCases(packed)


def _dump(value: Sequence[TestCaseModel], serialize: Callable[[Any], Any]) -> Any:
    return serialize(value if isinstance(value, list) else list(value))


pack_many, dump_all = WrapValidator(_pack_many), WrapSerializer(_dump)
"""How a field that is a list of test cases accepts and keeps many of them."""
