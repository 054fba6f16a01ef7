"""Metrics that compare text: exact_match, contains, not_contains, regex and numeric."""

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
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.patterns import compile_pattern, find
from holodeck.lib.support.text import is_blank

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


class TextOptions(ComparisonOptions, total=False):
    """The options of every literal comparison."""

    ignore_case: bool
    ignore_punctuation: bool
    normalize_whitespace: bool


class LiteralEvaluator(ComparingEvaluator):
    """Compares text after normalizing both sides in the same way; the score is 1 or 0."""

    def __init__(
        self,
        threshold: float | None = None,
        *,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        normalize_whitespace: bool = False,
        strip: bool = False,
        **options: Unpack[ComparisonOptions],
    ) -> None:
        super().__init__(threshold, **options)
        self._normalization = Normalization(
            ignore_case, ignore_punctuation, normalize_whitespace, strip
        )
        for text in self._values or ():
            if self._is_empty(self._normalization.apply(text)):
                raise ConfigError("value", f"{quote(text)} {_EMPTY}")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        expected = {self._normalization.apply(text): text for text in self._references(kwargs)}
        for normal, text in expected.items():
            if self._is_empty(normal):
                raise EvaluationError(f"{self.name}: ground_truth {quote(text)} {_EMPTY}")
        passed, reason = self._compare(self._normalization.apply(response), expected)
        return self._result(Score(float(passed), passed, f"{reason}; got {quote(response)}"))

    def _is_empty(self, text: str) -> bool:
        """Whether the normalized text says nothing that a response could be compared with."""
        return is_blank(text)

    @abstractmethod
    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        """Return the verdict and its reason; `expected` maps normalized texts to the originals."""


class ExactMatchEvaluator(LiteralEvaluator):
    """The response equals the expected text or one of `values`; outer white space is ignored."""

    metric = "exact_match"

    def __init__(
        self, threshold: float | None = None, *, strip: bool = True, **options: Unpack[TextOptions]
    ) -> None:
        super().__init__(threshold, strip=strip, **options)

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        if response in expected:
            return True, "equal"
        reason = "expected " + _list_texts(expected.values(), " or ")
        if len(expected) > 1:
            return False, reason
        return False, f"{reason}; {_first_difference(next(iter(expected)), response)}"


class ContainsEvaluator(LiteralEvaluator):
    """The response contains all of the expected texts, or with match="any" at least one."""

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

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        missing = [text for normal, text in expected.items() if normal not in response]
        passed = not missing if self._match == "all" else len(missing) < len(expected)
        if passed:
            found = [text for text in expected.values() if text not in missing]
            return True, "found " + _list_texts(found, ", ")
        return False, "did not find " + _list_texts(missing, ", ")


class NotContainsEvaluator(LiteralEvaluator):
    """The response contains none of the texts."""

    metric = "not_contains"

    def _is_empty(self, text: str) -> bool:
        """Only white space: an invisible character may be what a response must not contain."""
        return not text.strip()

    def _compare(self, response: str, expected: Mapping[str, str]) -> tuple[bool, str]:
        present = [text for normal, text in expected.items() if normal in response]
        if present:
            return False, "found " + _list_texts(present, ", ")
        return True, "did not find " + _list_texts(expected.values(), ", ")


def _list_texts(texts: Iterable[str], between: str) -> str:
    shown = [quote(text) for text in texts]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return between.join(shown[:5]) + more


def _first_difference(expected: str, response: str) -> str:
    """Describe the first position at which the texts differ."""
    pairs = enumerate(zip(expected, response, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(expected), len(response)))
    left = [quote(text[at:], 30) if text[at:] else "the end" for text in (expected, response)]
    return f"from character {at + 1} on: expected {left[0]}, got {left[1]}"


class RegexEvaluator(ScoredEvaluator):
    """The pattern matches somewhere in the response, or with `fullmatch` all of it.

    The syntax is that of the `regex` library, a superset of `re`. A pattern that takes longer than
    `time_limit_ms` is an error, neither a hang nor a verdict.
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
        **options: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **options)
        if not pattern:
            raise ConfigError("pattern", "is empty and would match every response")
        self._pattern = compile_pattern(pattern, ignore_case=ignore_case)
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
                f"pattern {self._shown} took longer than {self._seconds:g} s on a response of "
                f"{len(response)} characters; simplify it or raise 'time_limit_ms'"
            ) from error
        return self._result(self._grade(found, response))

    def _grade(self, found: str | None, response: str) -> Score:
        if found is not None:
            return Score(1.0, True, f"{self._shown} matches {quote(found)}")
        fails = "does not match all of" if self._fullmatch else "does not match"
        return Score(0.0, False, f"{self._shown} {fails} {quote(response)}")


Pick = Literal["only", "first", "last", "any"]

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
    and neither is one that something after it makes another (0x10, 10², 2½, 1.2M, 3 million).
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


class NumericEvaluator(ComparingEvaluator):
    """The response contains the expected number, or one of `values`, within a tolerance.

    The tolerance is the larger of `absolute_tolerance` and `relative_tolerance` times the expected
    number. `pick` selects the number of the response. The default `only` requires exactly one
    number, because a response that lists many is easily right by accident; "any" allows that.
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
        **options: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(
            threshold,
            value=None if value is None else str(value),
            values=None if values is None else [str(one) for one in values],
            **options,
        )
        self._reader = NumberReader(accept_percent, accept_thousands_separators)
        self._absolute, self._relative, self._pick = absolute_tolerance, relative_tolerance, pick
        for one in self._values or ():
            if len(self._reader.numbers(one)) != 1:
                raise ConfigError("value" if values is None else "values", _not_one_number(one))

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        expected = [self._expected_number(text) for text in self._references(kwargs)]
        found = self._reader.numbers(response)
        picked = _select(found, self._pick)
        passed = any(self._close(one, other) for one in picked for other in expected)
        result = self._describe(found, picked, response)
        reason = f"expected {_list_numbers(expected, ' or ')}, {result}"
        return self._result(Score(float(passed), passed, reason))

    def _expected_number(self, text: str) -> float:
        numbers = self._reader.numbers(text)
        if len(numbers) != 1:
            raise EvaluationError(f"{self.name}: ground_truth {_not_one_number(text)}")
        return numbers[0]

    def _close(self, found: float, expected: float) -> bool:
        return abs(found - expected) <= max(self._absolute, self._relative * abs(expected))

    def _describe(self, found: Sequence[float], picked: Sequence[float], response: str) -> str:
        if not found:
            unread = self._reader.unreadable(response)[:3]
            hint = f" ({', '.join(map(repr, unread))} cannot be read as one)" if unread else ""
            return f"found no number{hint} in {quote(response)}"
        if not picked:
            return (
                f"found {len(found)} numbers ({_list_numbers(found, ', ')}); "
                "set 'pick' to first, last or any, or let the agent respond with one number"
            )
        return f"got {_list_numbers(picked, ', ')}"


def _select(found: Sequence[float], pick: Pick) -> Sequence[float]:
    match pick:
        case "first":
            return found[:1]
        case "last":
            return found[-1:]
        case "only":
            return found if len(found) == 1 else []
        case "any":
            return found


def _list_numbers(numbers: Sequence[float], between: str) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return between.join(f"{number:.12g}" for number in numbers[:5]) + more


def _not_one_number(text: str) -> str:
    return (
        f"{quote(text)} is not one number; write it like 1234.5 "
        "(or set accept_thousands_separators, accept_percent)"
    )
