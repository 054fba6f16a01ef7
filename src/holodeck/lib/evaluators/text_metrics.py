"""Metrics that compare text: exact_match, contains, not_contains and regex."""

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Mapping
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
