"""Keyword search in memory: BM25, and reciprocal rank fusion with other searches."""

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nsmallest
from itertools import pairwise
from math import log
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SATURATION = 1.5
"""`k1` of BM25: how soon further occurrences of a term stop counting."""
_LENGTH_WEIGHT = 0.75
"""`b` of BM25: how much the length of a text counts against it."""
RRF_K = 60
"""The constant of reciprocal rank fusion: how little the first ranks differ."""

_HAN_AND_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"\d+(?:\.\d+)*|[{_HAN_AND_KANA}]+|[^\W\d_{_HAN_AND_KANA}]+")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+")


def count_terms(text: str) -> Counter[str]:
    """Return how often each search term occurs in a text.

    Case, the form of characters and English plurals do not matter. `get_weather` and `getWeather`
    contain the terms `get` and `weather`; the latter also `getweather`. Chinese and Japanese text
    is cut into characters and pairs of them.
    """
    counts: Counter[str] = Counter()
    for word, count in Counter(_WORD.findall(unicodedata.normalize("NFKC", text))).items():
        for term in _terms_of(word):
            counts[term] += count
    return counts


@lru_cache(maxsize=50_000)
def _terms_of(word: str) -> tuple[str, ...]:
    if "\u3040" <= word[0] <= "\u9fff" or "\uf900" <= word[0] <= "\ufaff":
        return (*word, *map("".join, pairwise(word)))
    whole = _singular(word.casefold())
    if word.islower() or word.isupper() or word.istitle():
        return (whole,)
    parts = [_singular(part.casefold()) for part in _CAMEL_PART.findall(word)]
    return (whole, *parts) if len(parts) > 1 else (whole,)


def _singular(word: str) -> str:
    """Return an English plural without its ending, and other words unchanged."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


_STOP_WORDS = count_terms(
    "a an and are as at be but by can could did do does for from had has have how i if in into is"
    " it its me my no not of on or our please shall should so than that the their them then there"
    " these they this those to us was we were what when where which who why will with would you"
    " your"
).keys()
"""Terms that are too common to search for."""


class KeywordIndex(Generic[K]):
    """Texts that are ranked by how well their terms match a query (BM25)."""

    def __init__(self, texts: Mapping[K, str] | None = None) -> None:
        self._lengths: dict[K, int] = {}
        self._numbers: dict[K, int] = {}
        """The order of adding, which ranks texts of equal score."""
        self._counts: dict[str, dict[K, int]] = {}
        """Term → how often each text contains it."""
        self._total_length = 0
        for key, text in (texts or {}).items():
            self.add(key, count_terms(text))

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, key: K, terms: Mapping[str, int]) -> None:
        """Add a text by its terms, as `count_terms` returns them; its key must be a new one."""
        if key in self._lengths:
            raise ValueError(f"{key!r} is already in the index")
        self._numbers[key] = len(self._numbers)
        self._lengths[key] = length = sum(terms.values())
        self._total_length += length
        for term, count in terms.items():
            self._counts.setdefault(term, {})[key] = count

    def search(self, query: str, limit: int | None = None) -> list[tuple[K, float]]:
        """Return the best texts with their scores, best first; only texts with a term of the query.

        Scores have no upper limit, and those of different queries cannot be compared.
        """
        scores = self._scores(count_terms(query))
        size = len(scores) if limit is None else limit
        return nsmallest(
            size, scores.items(), key=lambda scored: (-scored[1], self._numbers[scored[0]])
        )

    def _scores(self, query: Mapping[str, int]) -> dict[K, float]:
        scores: dict[K, float] = {}
        if not self._total_length:
            return scores
        fixed = _SATURATION * (1 - _LENGTH_WEIGHT)
        per_term = _SATURATION * _LENGTH_WEIGHT * len(self._lengths) / self._total_length
        lengths = self._lengths
        # A query of nothing but common words is searched for all the same.
        for term in query.keys() - _STOP_WORDS or query:
            counts = self._counts.get(term, {})
            rarity = log(1 + (len(lengths) - len(counts) + 0.5) / (len(counts) + 0.5))
            weight = rarity * (_SATURATION + 1) * query[term]
            for key, count in counts.items():
                score = weight * count / (count + fixed + per_term * lengths[key])
                scores[key] = scores.get(key, 0.0) + score
        return scores


def fuse_ranks(
    rankings: Iterable[tuple[Sequence[K], float]], rrf_k: int = RRF_K
) -> list[tuple[K, float]]:
    """Merge rankings, each best first and with its weight, by reciprocal rank.

    Returns the items with their scores, best first. A score is 1 for the item that is first in
    every ranking. Items of equal score keep the order of the rankings.
    """
    weighted = list(rankings)
    scores: dict[K, float] = {}
    for items, weight in weighted:
        for rank, item in enumerate(items, start=1):
            scores[item] = scores.get(item, 0.0) + weight / (rrf_k + rank)
    most = sum(weight for _, weight in weighted) / (rrf_k + 1)
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return [(item, score / most) for item, score in ranked] if most else []
