"""Regular expressions with a time limit: the adapter for the library `regex`."""

import re
import string
from typing import Any, Literal

from holodeck.errors import ConfigError

MAX_LENGTH = 1000
"""Characters of a pattern; getting ready to search for longer ones can take the library hours,
which no time limit of its own ends."""


def compiled(pattern: str, *, ignore_case: bool = False) -> Any:
    """The pattern made ready, to be given to `find`. Raises ConfigError."""
    import regex

    if len(pattern) > MAX_LENGTH:
        raise ConfigError(
            "pattern",
            f"a regular expression of {len(pattern):,} characters; {MAX_LENGTH:,} are allowed,"
            " split it",
        )
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, OverflowError) as error:
        shown = pattern if len(pattern) <= 80 else f"{pattern[:79]}…"
        raise ConfigError("pattern", f"{shown!r} is not a regular expression: {error}") from error


def find(pattern: Any, text: str, seconds: float, *, whole: bool = False) -> str | None:
    """What a compiled pattern matches in the text, or `whole` of it; None if nothing.

    Lets other threads run meanwhile. Raises TimeoutError after so many seconds.
    """
    search = pattern.fullmatch if whole else pattern.search
    match = search(text, timeout=seconds, concurrent=True)
    return None if match is None else str(match.group())


def replace(pattern: Any, by: str, text: str, seconds: float) -> str:
    """The text with every match of a compiled pattern replaced.

    Raises TimeoutError after so many seconds.
    """
    return str(pattern.sub(lambda _: by, text, timeout=seconds, concurrent=True))


def passes_every_text(pattern: Any, *, whole: bool = False) -> Literal["every", "not blank"] | None:
    """Whether a compiled pattern finds something in every text, or in every one that is not blank.

    It is tried on texts of all kinds, which a sensible pattern does not all match. None for a
    pattern that excludes something by an anchored `(?!…)`: such texts would have to be guessed.
    """
    source = pattern.pattern
    if _EXCLUDES.search(source) and (whole or _ANCHORED.search(source)):
        return None
    counts = [int(number) for number in _NUMBER.findall(source)]
    if max(counts, default=0) > _LONGEST:
        return None
    try:
        if not all(_is_in(pattern, text, whole) for text in (*_TEXTS, *_WORD.findall(source))):
            return None
        if not _is_in(pattern, _LINE * (max(counts, default=0) + 2), whole):
            return None
        blank = all(_is_in(pattern, text, whole) for text in ("", " ", "\n"))
    except TimeoutError:
        return None
    return "every" if blank else "not blank"


def _is_in(pattern: Any, text: str, whole: bool) -> bool:
    return find(pattern, text, _SECONDS, whole=whole) is not None


_TEXTS = ("7", "z", "Z", "@", "é", "☃", string.printable, "No idea.\nReally, none!")
"""Different kinds of text, none of them blank."""
_LINE = "Zq 7@ ☃\n"
_SECONDS = 1.0
_LONGEST = 10_000
"""The highest count in a pattern (`.{0,500}`) that is tried to be exceeded."""
_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"\w+")
_EXCLUDES = re.compile(r"\(\?<?!")
_ANCHORED = re.compile(r"[\^$]|\\[AZzbBG]|\(\?<")
