"""Sequences that make their items on demand, but behave like lists."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """Items that are made each time they are asked for; equal to the list of them."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazySequence | list):
            return len(self) == len(other) and all(
                one == another for one, another in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __add__(self, other: Iterable[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))
