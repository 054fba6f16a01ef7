"""Results that are not all in memory, but behave like a list of them."""

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import WrapSerializer, WrapValidator

from holodeck.models.lazy_sequence import LazySequence
from holodeck.models.outcome import Outcome


class HasOutcome(Protocol):
    """What such sequences hold."""

    @property
    def outcome(self) -> Outcome:
        """How it ended."""


R = TypeVar("R", bound=HasOutcome)


class ResultSequence(LazySequence[R]):
    """Results that are read when they are asked for; equal to the list of them."""

    @abstractmethod
    def as_json(self) -> Iterator[str]:
        """Yield each result as indented JSON.

        Raises PydanticSerializationError for a lone surrogate, which JSON must escape.
        """

    @abstractmethod
    def outcomes(self) -> Iterable[Outcome]:
        """Return how each of them ended, without reading the results."""

    @abstractmethod
    def at(self, positions: Iterable[int]) -> "ResultSequence[R]":
        """Return the results at these positions of the sequence, which are not negative."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy needs nothing of what the results are read from


def positions_of(results: Sequence[HasOutcome], outcomes: Container[Outcome]) -> list[int]:
    """Return where the results with these outcomes are, reading as few results as possible."""
    if isinstance(results, ResultSequence):
        found = results.outcomes()
    else:
        found = (one.outcome for one in results)
    return [at for at, outcome in enumerate(found) if outcome in outcomes]


def results_at(results: Sequence[R], positions: Iterable[int]) -> Sequence[R]:
    """Return the results at these positions; those that are not in memory are not read yet."""
    if isinstance(results, ResultSequence):
        return results.at(positions)
    return [results[at] for at in positions]


def _keep(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, ResultSequence) else validate(value)


def _dump(value: Sequence[Any], serialize: Callable[[Any], Any]) -> Any:
    return serialize(list(value))


keep_sequence, dump_sequence = WrapValidator(_keep), WrapSerializer(_dump)
"""How a field that is a list of results accepts such a sequence."""
