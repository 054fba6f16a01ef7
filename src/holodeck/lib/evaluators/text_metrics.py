"""Metrics that compare text: exact_match, contains, not_contains, regex and numbers."""

import math
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import ComparingEvaluator, Score, ScoredEvaluator
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.patterns import compile_pattern, find
from holodeck.lib.support.text import is_blank, quote, shorten_list
from holodeck.models.metrics.text import (
    ContainsMetric,
    ExactMatchMetric,
    NumericMetric,
    Pick,
    RegexMetric,
    TextMetric,
)

_SPACE = re.compile(r"\s+")
_EMPTY = "is empty after normalization"


@dataclass(frozen=True, slots=True)
class Normalization:
    """The differences that a comparison ignores.

    Both sides are always brought to Unicode form NFC, so that an é equals an é however it is
    encoded. Punctuation is Unicode category P: it does not include the symbols + < $, but it does
    include the dot of 3.14 and a minus sign written as a hyphen (use `numeric` for numbers).
    """

    ignore_case: bool = False
    ignore_punctuation: bool = False
    normalize_whitespace: bool = False
    strip: bool = False

    def apply(self, text: str) -> str:
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = without_punctuation(unicodedata.normalize("NFC", text))
        text = unicodedata.normalize(
            "NFC", text
        )  # characters that punctuation separated may combine
        if self.normalize_whitespace:
            text = _SPACE.sub(" ", text)
        return text.strip() if self.strip else text


def without_punctuation(text: str, also: str = "") -> str:
    """Return the text without the characters of Unicode category P and those in `also`."""
    drop = {char for char in set(text) if char in also or unicodedata.category(char)[0] == "P"}
    return text.translate(dict.fromkeys(map(ord, drop)))


class LiteralEvaluator(ComparingEvaluator):
    """Compares text after normalizing both sides in the same way; the score is 1 or 0."""

    settings: TextMetric

    def _configure(self) -> None:
        settings = self.settings
        self._normalization = Normalization(
            settings.ignore_case,
            settings.ignore_punctuation,
            settings.normalize_whitespace,
            isinstance(settings, ExactMatchMetric) and settings.strip,
        )
        for text in settings.expected_texts() or ():
            if self._is_empty(self._normalization.apply(text)):
                raise ConfigError("value", f"{quote(text)} {_EMPTY}")

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        response = self._response(kwargs)
        expected = {self._normalization.apply(text): text for text in self._references(kwargs)}
        for normal, text in expected.items():
            if self._is_empty(normal):
                raise EvaluationError(f"{self.name}: ground_truth {quote(text)} {_EMPTY}")
        passed, reason = self._compare(self._normalization.apply(response), expected)
        return Score(float(passed), passed, f"{reason}; got {quote(response)}")

    def _is_empty(self, text: str) -> bool:
        """Whether the normalized text says nothing that a response could be compared with."""
        return is_blank(text)

    @abstractmethod
    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        """Return the verdict and its reason; `expected` maps normalized texts to the originals."""


class ExactMatchEvaluator(LiteralEvaluator, metric="exact_match"):
    """The response equals the expected text or one of `values`; outer white space is ignored."""

    settings: ExactMatchMetric

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        if response in expected:
            return True, "equal"
        reason = "expected " + _list_texts(expected.values(), " or ")
        if len(expected) > 1:
            return False, reason
        return False, f"{reason}; {_first_difference(next(iter(expected)), response)}"


class EqualityEvaluator(ExactMatchEvaluator, metric="equality"):
    """Another name of `exact_match`."""


class ContainsEvaluator(LiteralEvaluator, metric="contains"):
    """The response contains all of the expected texts, or with match="any" at least one."""

    settings: ContainsMetric

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        missing = [text for normal, text in expected.items() if normal not in response]
        passed = not missing if self.settings.match == "all" else len(missing) < len(expected)
        if passed:
            present = [text for text in expected.values() if text not in missing]
            return True, "found " + _list_texts(present, ", ")
        return False, "did not find " + _list_texts(missing, ", ")


class NotContainsEvaluator(LiteralEvaluator, metric="not_contains"):
    """The response contains none of the texts."""

    def _is_empty(self, text: str) -> bool:
        """Only white space: an invisible character may be what a response must not contain."""
        return not text.strip()

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        present = [text for normal, text in expected.items() if normal in response]
        if present:
            return False, "found " + _list_texts(present, ", ")
        return True, "did not find " + _list_texts(expected.values(), ", ")


def _list_texts(texts: Iterable[str], between: str) -> str:
    return shorten_list([quote(text) for text in texts], 5, between)


def _first_difference(expected: str, response: str) -> str:
    """Describe the first position at which the texts differ."""
    pairs = enumerate(zip(expected, response, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(expected), len(response)))
    left = [quote(text[at:], 30) if text[at:] else "the end" for text in (expected, response)]
    return f"from character {at + 1} on: expected {left[0]}, got {left[1]}"


class RegexEvaluator(ScoredEvaluator, metric="regex"):
    """The pattern matches somewhere in the response, or with `fullmatch` all of it.

    The syntax is that of the `regex` library, a superset of `re`. A pattern that takes longer than
    `time_limit_ms` is an error, neither a hang nor a verdict.
    """

    settings: RegexMetric

    def _configure(self) -> None:
        pattern = self.settings.pattern
        self._pattern = compile_pattern(pattern, ignore_case=self.settings.ignore_case)
        self._shown = quote(pattern)

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        response, limit_s = self._response(kwargs), self.settings.time_limit_ms / 1000
        try:
            match = await run_in_thread(
                lambda: find(self._pattern, response, limit_s, whole=self.settings.fullmatch)
            )
        except TimeoutError as error:
            raise EvaluationError(
                f"pattern {self._shown} took longer than {limit_s:g} s on a response of "
                f"{len(response)} characters; simplify it or raise 'time_limit_ms'"
            ) from error
        if match is not None:
            return Score(1.0, True, f"{self._shown} matches {quote(match)}")
        fails = "does not match all of" if self.settings.fullmatch else "does not match"
        return Score(0.0, False, f"{self._shown} {fails} {quote(response)}")


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
