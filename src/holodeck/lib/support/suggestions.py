"""Suggestions for unknown words: `; did you mean 'bleu'?`"""

from collections.abc import Iterable


def nearest_word(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like `word`, or None if none is similar enough."""
    # Imported here because mistakes are rare.
    from difflib import get_close_matches  # noqa: PLC0415

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(
    word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6
) -> str:
    """Return `; did you mean 'x'?` with the nearest known word, or `otherwise` without one."""
    nearest = nearest_word(word, known, cutoff=cutoff)
    return otherwise if nearest is None else f"; did you mean {nearest!r}?"


def did_you_mean_or_list(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or `; known: …` with the first twenty words."""
    words = list(known)
    return did_you_mean(word, words, f"; known: {', '.join(words[:20])}" if words else "")
