"""Numbers and units in English texts: the same quantity in other words, and another quantity."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

_TWO_TO_TWENTY = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
"""Without `one`, which is a pronoun more often than a number."""
_THIRTY_TO_NINETY = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_OF = {
    **{word: number for number, word in enumerate(_TWO_TO_TWENTY, 2)},
    **{word: 10 * number for number, word in enumerate(_THIRTY_TO_NINETY, 3)},
}
_WORD_OF = {number: word for word, number in _NUMBER_OF.items()}

_KINDS: tuple[tuple[tuple[int, tuple[str, ...]], ...], ...] = (
    (
        (1, ("second",)),
        (60, ("minute",)),
        (3600, ("hour",)),
        (86_400, ("day",)),
        (604_800, ("week",)),
    ),
    ((1, ("month",)), (12, ("year",))),
    (
        (1, ("mm", "millimetre", "millimeter")),
        (10, ("cm", "centimetre", "centimeter")),
        (1000, ("m", "metre", "meter")),
        (1_000_000, ("km", "kilometre", "kilometer")),
    ),
    ((1, ("mg", "milligram")), (1000, ("g", "gram")), (1_000_000, ("kg", "kilogram"))),
    ((1, ("ml", "millilitre", "milliliter")), (1000, ("l", "litre", "liter"))),
    ((1, ("KB",)), (1000, ("MB",)), (1_000_000, ("GB",))),
)
"""Kinds of units, from small to large: how many of the smallest they are, and their spellings."""
_LONGEST_SYMBOL = 2


class Unit(NamedTuple):
    """A unit as it is written."""

    kind: int
    rank: int
    spelling: int

    @property
    def size(self) -> int:
        """How many of the smallest unit of its kind it is."""
        return _KINDS[self.kind][self.rank][0]

    def written(self, number: Fraction) -> str:
        """Return the number in digits, with the unit."""
        name = _KINDS[self.kind][self.rank][1][self.spelling]
        return f"{_digits(number)} {name if number == 1 else _plural(name)}"

    @property
    def neighbours(self) -> list["Unit"]:
        """The next larger unit and the next smaller one, as far as there are any."""
        ranks = (self.rank + 1, self.rank - 1)
        return [self._replace(rank=one) for one in ranks if 0 <= one < len(_KINDS[self.kind])]


def _plural(name: str) -> str:
    return name if len(name) <= _LONGEST_SYMBOL else f"{name}s"


_UNIT_OF = {
    name: Unit(kind, rank, spelling)
    for kind, units in enumerate(_KINDS)
    for rank, (_, spellings) in enumerate(units)
    for spelling, singular in enumerate(spellings)
    for name in (singular, _plural(singular))
}


def _any_of(names: Sequence[str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


_QUANTITY = re.compile(
    r"(?<![\w.,:/-])"
    rf"(?P<number>\d{{1,3}}(?:,\d{{3}})+|\d+(?:\.\d+)?|(?i:{_any_of(list(_NUMBER_OF))}))"
    r"(?!\w|[.,:/]\d)"
    rf"(?: (?P<unit>{_any_of(list(_UNIT_OF))})(?!\w))?"
    r"(?!-)"
)
_LARGEST = 10_000
"""A quantity is not converted to larger numbers, because nobody writes 17280 minutes."""
_DECIMALS = 100
_ENDS = frozenset(" \n.,;!?)")


@dataclass(frozen=True)
class Quantity:
    """A number in a text, with its unit if that is known."""

    start: int
    number_end: int
    end: int
    number: Fraction
    is_word: bool
    unit: Unit | None

    @property
    def value(self) -> tuple[int | None, Fraction]:
        """What equal quantities have in common, whatever their units."""
        return (None, self.number) if self.unit is None else _value(self.number, self.unit)


def _value(number: Fraction, unit: Unit) -> tuple[int | None, Fraction]:
    return unit.kind, number * unit.size


def quantities_in(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text, in digits or English words."""
    for found in _QUANTITY.finditer(text):
        written = found["number"]
        word = _NUMBER_OF.get(written.lower())
        yield Quantity(
            start=found.start(),
            number_end=found.end("number"),
            end=found.end(),
            number=Fraction(written.replace(",", "") if word is None else word),
            is_word=word is not None,
            unit=_UNIT_OF.get(found["unit"] or ""),
        )


def in_another_unit(text: str) -> str | None:
    """Return the text with a quantity in another unit; None if it has none that fits."""
    for one in quantities_in(text):
        for unit in one.unit.neighbours if one.unit else ():
            number = one.value[1] / unit.size
            is_short = (number * _DECIMALS).denominator == 1
            if is_short and 1 <= number <= _LARGEST:
                return _replaced(text, one, unit.written(number))
    return None


def in_words_or_digits(text: str) -> str | None:
    """Return the text with its number words as digits, or else its digits as words."""
    numbers = list(quantities_in(text))
    as_words = [one for one in numbers if one.is_word]
    as_digits = [one for one in numbers if one.number in _WORD_OF and _stands_alone(text, one)]
    for one in reversed(as_words or as_digits):
        number = _digits(one.number) if one.is_word else _WORD_OF[int(one.number)]
        text = text[: one.start] + number + text[one.number_end :]
    return text if as_words or as_digits else None


def _stands_alone(text: str, one: Quantity) -> bool:
    """Whether no sign such as $ or % belongs to the number."""
    before, after = text[: one.start][-1:], text[one.number_end :][:1]
    return before in {"", " ", "\n"} and (not after or after in _ENDS)


def with_another_number(text: str, reference: str) -> str | None:
    """Return the text with a number that contradicts the reference; None if they share none.

    It differs by a quarter at least, so that it is wrong even where the text says "about".
    """
    stated = list(quantities_in(reference))
    for one in quantities_in(text):
        if not _is_stated(one, stated):
            continue
        number = one.number + max(1, round(one.number / 4))
        while any(number == other.number for other in stated):
            number += 1
        return _replaced(text, one, one.unit.written(number) if one.unit else _digits(number))
    return None


def with_another_unit(text: str, reference: str) -> str | None:
    """Return the text with a unit that contradicts the reference; None if they share none."""
    stated = list(quantities_in(reference))
    values = [one.value for one in stated]
    for one in quantities_in(text):
        for unit in one.unit.neighbours if one.unit and _is_stated(one, stated) else ():
            if _value(one.number, unit) not in values:
                return _replaced(text, one, unit.written(one.number))
    return None


def _is_stated(one: Quantity, stated: Sequence[Quantity]) -> bool:
    return any(one.number == other.number or one.value == other.value for other in stated)


def _digits(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):g}"


def _replaced(text: str, one: Quantity, by: str) -> str:
    return text[: one.start] + by + text[one.end :]
