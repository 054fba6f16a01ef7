"""Regular expressions with a time limit: the adapter for the library `regex`."""

import re
import string
from typing import Any, Literal

from holodeck.errors import ConfigError

MAX_LENGTH = 1000
"""Maximum length of a pattern; compiling longer ones can take hours, without a time limit."""


def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile a pattern for `find` and `replace`. Raises ConfigError."""
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
    """Return the first match in the text (`whole`: of the whole text), or None.

    Other threads run meanwhile. Raises TimeoutError after `seconds`.
    """
    search = pattern.fullmatch if whole else pattern.search
    match = search(text, timeout=seconds, concurrent=True)
    return None if match is None else str(match.group())


def replace(pattern: Any, by: str, text: str, seconds: float) -> str:
    """Replace every match in the text. Raises TimeoutError after `seconds`."""
    return str(pattern.sub(lambda _: by, text, timeout=seconds, concurrent=True))


def passes_every_text(pattern: Any, *, whole: bool = False) -> Literal["every", "not blank"] | None:
    """Whether a pattern matches every text, or every text that is not blank.

    The pattern is tried on texts of many kinds, which a useful pattern does not all match. None for
    a pattern that excludes texts by an anchored `(?!…)`, because those are unknown.
    """
    source = pattern.pattern
    if _EXCLUDES.search(source) and (whole or _ANCHORED.search(source)):
        return None
    counts = [int(number) for number in _NUMBER.findall(source)]
    if max(counts, default=0) > _LONGEST:
        return None
    try:
        if not all(_matches(pattern, text, whole) for text in (*_TEXTS, *_WORD.findall(source))):
            return None
        if not _matches(pattern, _LINE * (max(counts, default=0) + 2), whole):
            return None
        blank = all(_matches(pattern, text, whole) for text in ("", " ", "\n"))
    except TimeoutError:
        return None
    return "every" if blank else "not blank"


def _matches(pattern: Any, text: str, whole: bool) -> bool:
    return find(pattern, text, _SECONDS, whole=whole) is not None


_TEXTS = ("7", "z", "Z", "@", "é", "☃", string.printable, "No idea.\nReally, none!")
"""Texts of different kinds, none of them blank."""
_LINE = "Zq 7@ ☃\n"
_SECONDS = 1.0
_LONGEST = 10_000
"""The highest count in a pattern (`.{0,500}`) that is tested with a longer text."""
_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"\w+")
_EXCLUDES = re.compile(r"\(\?<?!")
_ANCHORED = re.compile(r"[\^$]|\\[AZzbBG]|\(\?<")
