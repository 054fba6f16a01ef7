"""Words for messages."""

import difflib
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word that is most alike, else what is known."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(words[:20])}" if words else ""
