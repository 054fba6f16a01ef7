"""Results that are not all in memory, but behave like a list of them."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import WrapSerializer, WrapValidator

R = TypeVar("R")


class ResultSequence(Sequence[R]):
    """Results that are read when they are asked for; equal to the list of them."""

    @abstractmethod
    def as_json(self) -> Iterator[str]:
        """Yield each result as indented JSON.

        Raises PydanticSerializationError for a lone surrogate, which JSON must escape.
        """

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResultSequence | list):
            return len(self) == len(other) and all(
                one == another for one, another in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __add__(self, other: Iterable[R]) -> list[R]:
        return [*self, *other]

    def __radd__(self, other: Iterable[R]) -> list[R]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy needs nothing of what the results are read from


def _keep(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, ResultSequence) else validate(value)


def _dump(value: Sequence[Any], serialize: Callable[[Any], Any]) -> Any:
    return serialize(list(value))


keep_sequence, dump_sequence = WrapValidator(_keep), WrapSerializer(_dump)
"""How a field that is a list of results accepts such a sequence."""
