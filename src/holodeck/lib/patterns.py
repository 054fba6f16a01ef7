"""Regular expressions with a time limit: the one door to the library `regex`."""

from typing import Any

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
