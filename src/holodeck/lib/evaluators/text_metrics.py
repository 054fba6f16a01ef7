"""Literal comparisons: exact_match, contains, not_contains."""

import math
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import (
    ComparingEvaluator,
    ComparisonOptions,
    EvaluatorOptions,
    Score,
    ScoredEvaluator,
    quote,
)
from holodeck.lib.patterns import compiled, find
from holodeck.lib.threads import run_in_thread

_SPACE = re.compile(r"\s+")
_NOTHING_LEFT = "is empty once everything that does not count is taken away"


@dataclass(frozen=True, slots=True)
class Normalization:
    """What does not count in a comparison.

    Both sides are always brought to Unicode form NFC, so that an é is an é however it is written.
    Punctuation is Unicode's category P: not the signs + < $, but the dot of 3.14 and a minus
    written as a hyphen (for numbers there is `numeric`).
    """

    ignore_case: bool = False
    ignore_punctuation: bool = False
    normalize_whitespace: bool = False
    strip: bool = False

    def apply(self, text: str) -> str:
        """The text without what does not count."""
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = without_punctuation(unicodedata.normalize("NFC", text))
        text = unicodedata.normalize("NFC", text)  # what punctuation kept apart may belong together
        if self.normalize_whitespace:
            text = _SPACE.sub(" ", text)
        return text.strip() if self.strip else text


def without_punctuation(text: str, also: str = "") -> str:
    """The text without the characters of Unicode's category P, nor those of `also`."""
    drop = {char for char in set(text) if char in also or unicodedata.category(char)[0] == "P"}
    return text.translate(dict.fromkeys(map(ord, drop)))


class TextOptions(ComparisonOptions, total=False):
    """How every literal comparison is run."""

    ignore_case: bool
    ignore_punctuation: bool
    normalize_whitespace: bool


class LiteralEvaluator(ComparingEvaluator):
    """Compares text after the same Normalization of both sides; the score is 1 or 0."""

    def __init__(
        self,
        threshold: float | None = None,
        *,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        normalize_whitespace: bool = False,
        strip: bool = False,
        **comparison: Unpack[ComparisonOptions],
    ) -> None:
        super().__init__(threshold, **comparison)
        self._normalization = Normalization(
            ignore_case, ignore_punctuation, normalize_whitespace, strip
        )
        for text in self._values or ():
            if not self._normalization.apply(text).strip():
                raise ConfigError("value", f"{quote(text)} {_NOTHING_LEFT}")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        wanted = {self._normalization.apply(text): text for text in self._references(kwargs)}
        for normal, text in wanted.items():
            if not normal.strip():
                raise EvaluationError(f"{self.name}: ground_truth {quote(text)} {_NOTHING_LEFT}")
        passed, reason = self._compare(self._normalization.apply(response), wanted)
        return self._row(Score(float(passed), passed, f"{reason}; got {quote(response)}"))

    @abstractmethod
    def _compare(self, said: str, wanted: Mapping[str, str]) -> tuple[bool, str]:
        """The verdict and its reason; `wanted` maps normalized texts to texts as written."""


class ExactMatchEvaluator(LiteralEvaluator):
    """The answer is the expected text, or one of `values`; white space around it does not count."""

    metric = "exact_match"

    def __init__(
        self, threshold: float | None = None, *, strip: bool = True, **options: Unpack[TextOptions]
    ) -> None:
        super().__init__(threshold, strip=strip, **options)

    def _compare(self, said: str, wanted: Mapping[str, str]) -> tuple[bool, str]:
        if said in wanted:
            return True, "equal"
        expected = "expected " + _list_texts(wanted.values(), " or ")
        if len(wanted) > 1:
            return False, expected
        return False, f"{expected}; {_first_difference(next(iter(wanted)), said)}"


class ContainsEvaluator(LiteralEvaluator):
    """The answer contains the expected text: all of `values`, or with match="any" one of them."""

    metric = "contains"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        match: Literal["all", "any"] = "all",
        **options: Unpack[TextOptions],
    ) -> None:
        super().__init__(threshold, **options)
        self._match = match

    def _compare(self, said: str, wanted: Mapping[str, str]) -> tuple[bool, str]:
        missing = [text for normal, text in wanted.items() if normal not in said]
        passed = not missing if self._match == "all" else len(missing) < len(wanted)
        if passed:
            found = [text for text in wanted.values() if text not in missing]
            return True, "found " + _list_texts(found, ", ")
        return False, "did not find " + _list_texts(missing, ", ")


class NotContainsEvaluator(LiteralEvaluator):
    """The answer contains none of the texts."""

    metric = "not_contains"

    def _compare(self, said: str, wanted: Mapping[str, str]) -> tuple[bool, str]:
        present = [text for normal, text in wanted.items() if normal in said]
        if present:
            return False, "found " + _list_texts(present, ", ")
        return True, "did not find " + _list_texts(wanted.values(), ", ")


def _list_texts(texts: Iterable[str], between: str) -> str:
    shown = [quote(text) for text in texts]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return between.join(shown[:5]) + more


def _first_difference(expected: str, said: str) -> str:
    """Where two texts part, with a little of both from there."""
    pairs = enumerate(zip(expected, said, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(expected), len(said)))
    wanted, got = (quote(text[at:], 30) if text[at:] else "the end" for text in (expected, said))
    return f"from character {at + 1} {wanted} was expected, not {got}"


class RegexEvaluator(ScoredEvaluator):
    """The pattern matches somewhere in the answer, or with `fullmatch` the whole of it.

    Patterns are those of the `regex` library, a superset of `re`. One that takes longer than
    `time_limit_ms` is an error, not a hang and not a verdict.
    """

    metric = "regex"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        pattern: str,
        fullmatch: bool = False,
        ignore_case: bool = False,
        time_limit_ms: int = 1000,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        if not pattern:
            raise ConfigError("pattern", "is empty and would match every answer")
        self._pattern = compiled(pattern, ignore_case=ignore_case)
        self._shown = quote(pattern)
        self._fullmatch = fullmatch
        self._seconds = time_limit_ms / 1000

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        try:
            found = await run_in_thread(
                lambda: find(self._pattern, response, self._seconds, whole=self._fullmatch)
            )
        except TimeoutError as error:
            raise EvaluationError(
                f"pattern {self._shown} took longer than {self._seconds:g} s on an answer of "
                f"{len(response)} characters; make it simpler or raise 'time_limit_ms'"
            ) from error
        return self._row(self._grade(found, response))

    def _grade(self, found: str | None, response: str) -> Score:
        if found is not None:
            return Score(1.0, True, f"{self._shown} matches {quote(found)}")
        where = "is not the whole of" if self._fullmatch else "is nowhere in"
        return Score(0.0, False, f"{self._shown} {where} {quote(response)}")


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
        reason = f"expected {_list_numbers(wanted, ' or ')}, {self._got(said, picked, response)}"
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
                f"and there are {len(said)} numbers ({_list_numbers(said, ', ')}); "
                "set 'pick' to first, last or any, or let the agent answer with one"
            )
        return f"got {_list_numbers(picked, ', ')}"


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


def _list_numbers(numbers: Sequence[float], between: str) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return between.join(f"{number:.12g}" for number in numbers[:5]) + more


def _not_one(text: str) -> str:
    return (
        f"{quote(text)} is not one number; write it like 1234.5 "
        "(or set accept_thousands_separators, accept_percent)"
    )
