"""The metric `numeric`: the answer holds the right number."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.scored import ComparingEvaluator, EvaluatorOptions, quote

Pick = Literal["only", "first", "last", "any"]

# A run of digits, dots, commas and underscores that ends in a digit, with a sign, an exponent and a
# percent sign. Digits that belong to a word (H2O, GPT-4, v1.2) do not count.
_TOKEN = re.compile(
    r"(?<![\w.,])(?<![A-Za-z]-)[-+−]?(?:\.?[0-9](?:[0-9.,_]*[0-9])?)(?:[eE][-+]?[0-9]+)?(?:\s?%)?"
)
_PLAIN = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class NumberReader:
    """Finds the numbers of a text.

    A group of digits that is not plainly one number (1.2.3, 3,14, 1_000) is none; so is 1,234
    unless thousands separators are accepted, and 45% unless percents are (then it is 0.45).
    """

    accept_percent: bool = False
    accept_thousands_separators: bool = False

    def numbers(self, text: str) -> list[float]:
        """The numbers of the text, in order."""
        return [number for _, number in self._read(text) if number is not None]

    def unreadable(self, text: str) -> list[str]:
        """Groups of digits that are not taken for numbers."""
        return [token for token, number in self._read(text) if number is None]

    def _read(self, text: str) -> Iterator[tuple[str, float | None]]:
        for match in _TOKEN.finditer(text):
            yield match.group(), self._number(match.group())

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


class NumericEvaluator(ComparingEvaluator):
    """The answer holds the expected number, or one of `values`, within a tolerance.

    The tolerance is the larger of `absolute_tolerance` and `relative_tolerance` times the expected
    number. `pick` says which number of the answer counts. Its default `only` asks for exactly one
    number, because an answer that lists many is right by accident too easily; "any" allows that.
    """

    metric = "numeric"

    def __init__(  # noqa: PLR0913 - one parameter per key of agent.yaml
        self,
        threshold: float | None = None,
        *,
        value: float | str | None = None,
        values: Sequence[float | str] | None = None,
        absolute_tolerance: float = 1e-6,
        relative_tolerance: float = 0.0,
        accept_percent: bool = False,
        accept_thousands_separators: bool = False,
        pick: Pick = "only",
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(
            threshold,
            value=None if value is None else str(value),
            values=None if values is None else [str(one) for one in values],
            **how,
        )
        self._reader = NumberReader(accept_percent, accept_thousands_separators)
        self._absolute, self._relative, self._pick = absolute_tolerance, relative_tolerance, pick
        for one in self._values or ():
            if len(self._reader.numbers(one)) != 1:
                raise ConfigError("value" if values is None else "values", _not_one(one))

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        wanted = [self._wanted(text) for text in self._references(kwargs)]
        said = self._reader.numbers(response)
        picked = _picked(said, self._pick)
        passed = any(self._close(one, other) for one in picked for other in wanted)
        reason = f"expected {_listed(wanted, ' or ')}, {self._got(said, picked, response)}"
        return self._row(Score(float(passed), passed, reason))

    def _wanted(self, text: str) -> float:
        numbers = self._reader.numbers(text)
        if len(numbers) != 1:
            raise EvaluationError(f"{self.name}: ground_truth {_not_one(text)}")
        return numbers[0]

    def _close(self, said: float, wanted: float) -> bool:
        return abs(said - wanted) <= max(self._absolute, self._relative * abs(wanted))

    def _got(self, said: Sequence[float], picked: Sequence[float], response: str) -> str:
        if not said:
            unread = self._reader.unreadable(response)[:3]
            hint = f" ({', '.join(map(repr, unread))} cannot be read as one)" if unread else ""
            return f"and there is no number{hint} in {quote(response)}"
        if not picked:
            return (
                f"and there are {len(said)} numbers ({_listed(said, ', ')}); "
                "set 'pick' to first, last or any, or let the agent answer with one"
            )
        return f"got {_listed(picked, ', ')}"


def _picked(said: Sequence[float], pick: Pick) -> Sequence[float]:
    match pick:
        case "first":
            return said[:1]
        case "last":
            return said[-1:]
        case "only":
            return said if len(said) == 1 else []
        case "any":
            return said


def _listed(numbers: Sequence[float], between: str) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return between.join(f"{number:.12g}" for number in numbers[:5]) + more


def _not_one(text: str) -> str:
    return (
        f"{quote(text)} is not one number; write it like 1234.5 "
        "(or set accept_thousands_separators, accept_percent)"
    )
