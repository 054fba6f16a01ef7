"""The metric `numeric`: the response contains the expected number."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import ComparingEvaluator, Score
from holodeck.lib.support.text import quote, shorten_list
from holodeck.models.metrics.text import NumericMetric, Pick

# A run of digits, dots, commas and underscores that ends in a digit, with a sign, an exponent and a
# percent sign. Digits that belong to a word (H2O, GPT-4, v1.2) do not count.
_TOKEN = re.compile(
    r"(?<![\w.,])(?<![A-Za-z]-)[-+−]?(?:\.?[0-9](?:[0-9.,_]*[0-9])?)(?:[eE][-+]?[0-9]+)?(?:\s?%)?"
)
_PLAIN = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
# What follows such a run and makes it another number: 0x10, 1.2x10, 1.2M, 2½, 10², 3 million.
_MAGNITUDE = re.compile(
    r"[^\W\d_]*[0-9]\w*|[²³¹⁰-⁹⁻¼-¾⅐-⅞]+|(?:[kKMBT]|bn|mn|tn|mio|mrd)(?![^\W_])"
    r"|[\s-]?(?i:hundred|thousand|million|billion|trillion|dozen)s?(?![^\W_])"
)
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class NumberReader:
    """Finds the numbers in a text.

    A group of digits that is not clearly one number (1.2.3, 3,14, 1_000) is not read as a number,
    and neither is a number that something after it makes another (0x10, 10², 2½, 1.2M, 3 million).
    Neither is 1,234 unless thousands separators are accepted, nor 45% unless percentages are
    accepted (then it is 0.45).
    """

    accept_percent: bool = False
    accept_thousands_separators: bool = False

    def numbers(self, text: str) -> list[float]:
        return [number for _, number in self._tokens(text) if number is not None]

    def unreadable(self, text: str) -> list[str]:
        """Return the groups of digits that are not read as numbers."""
        return [token for token, number in self._tokens(text) if number is None]

    def _tokens(self, text: str) -> Iterator[tuple[str, float | None]]:
        for match in _TOKEN.finditer(text):
            token = match.group()
            magnitude = _MAGNITUDE.match(text, match.end())
            if magnitude is None:
                yield token, self._number(token)
            else:
                yield token + magnitude.group(), None

    def _number(self, token: str) -> float | None:
        digits = token.rstrip("% \t\n\r\f\v\xa0").replace("−", "-")
        is_percent = token.endswith("%")
        if is_percent and not self.accept_percent:
            return None
        if self.accept_thousands_separators and _GROUPED.fullmatch(digits):
            digits = digits.replace(",", "")
        if not _PLAIN.fullmatch(digits):
            return None
        number = float(digits) / (100 if is_percent else 1)
        return number if math.isfinite(number) else None


class NumericEvaluator(ComparingEvaluator, metric="numeric"):
    """The response contains the expected number, or one of `values`, within a tolerance.

    The tolerance is the larger of `absolute_tolerance` and `relative_tolerance` times the expected
    number. `pick` selects the number of the response. The default `only` requires exactly one
    number, because a response that lists many is easily right by accident; "any" allows that.
    """

    settings: NumericMetric

    def _configure(self) -> None:
        settings = self.settings
        self._reader = NumberReader(settings.accept_percent, settings.accept_thousands_separators)
        for text in settings.expected_texts() or ():
            if len(self._reader.numbers(text)) != 1:
                key = "value" if settings.values is None else "values"
                raise ConfigError(key, _not_one_number(text))

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        response = self._response(kwargs)
        expected = [self._expected_number(text) for text in self._references(kwargs)]
        numbers = self._reader.numbers(response)
        picked = _select(numbers, self.settings.pick)
        passed = any(self._is_close(number, other) for number in picked for other in expected)
        result = self._describe(numbers, picked, response)
        reason = f"expected {_list_numbers(expected, ' or ')}, {result}"
        return Score(float(passed), passed, reason)

    def _expected_number(self, text: str) -> float:
        numbers = self._reader.numbers(text)
        if len(numbers) != 1:
            raise EvaluationError(f"{self.name}: ground_truth {_not_one_number(text)}")
        return numbers[0]

    def _is_close(self, number: float, expected: float) -> bool:
        tolerance = self.settings.relative_tolerance * abs(expected)
        return abs(number - expected) <= max(self.settings.absolute_tolerance, tolerance)

    def _describe(self, numbers: Sequence[float], picked: Sequence[float], response: str) -> str:
        if not numbers:
            unread = self._reader.unreadable(response)[:3]
            hint = f" ({', '.join(map(repr, unread))} cannot be read as one)" if unread else ""
            return f"found no number{hint} in {quote(response)}"
        if not picked:
            return (
                f"found {len(numbers)} numbers ({_list_numbers(numbers, ', ')}); "
                "set 'pick' to first, last or any, or let the agent respond with one number"
            )
        return f"got {_list_numbers(picked, ', ')}"


def _select(numbers: Sequence[float], pick: Pick) -> Sequence[float]:
    if pick == "only":
        return numbers if len(numbers) == 1 else []
    return {"first": numbers[:1], "last": numbers[-1:], "any": numbers}[pick]


def _list_numbers(numbers: Sequence[float], between: str) -> str:
    return shorten_list([f"{number:.12g}" for number in numbers], 5, between)


def _not_one_number(text: str) -> str:
    return (
        f"{quote(text)} is not one number; write it like 1234.5 "
        "(or set accept_thousands_separators, accept_percent)"
    )
