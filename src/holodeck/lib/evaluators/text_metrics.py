"""Literal comparisons: exact_match, contains, not_contains."""

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.scored import ComparingEvaluator, ComparisonOptions, quote

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
        expected = "expected " + _listed(wanted.values(), " or ")
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
            return True, "found " + _listed(found, ", ")
        return False, "did not find " + _listed(missing, ", ")


class NotContainsEvaluator(LiteralEvaluator):
    """The answer contains none of the texts."""

    metric = "not_contains"

    def _compare(self, said: str, wanted: Mapping[str, str]) -> tuple[bool, str]:
        present = [text for normal, text in wanted.items() if normal in said]
        if present:
            return False, "found " + _listed(present, ", ")
        return True, "did not find " + _listed(wanted.values(), ", ")


def _listed(texts: Iterable[str], between: str) -> str:
    shown = [quote(text) for text in texts]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return between.join(shown[:5]) + more


def _first_difference(expected: str, said: str) -> str:
    """Where two texts part, with a little of both from there."""
    pairs = enumerate(zip(expected, said, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(expected), len(said)))
    wanted, got = (quote(text[at:], 30) if text[at:] else "the end" for text in (expected, said))
    return f"from character {at + 1} {wanted} was expected, not {got}"
