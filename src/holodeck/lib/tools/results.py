"""What a tool returned, made fit for a model to read and a report to keep."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import pydantic_core

MOST_CHARACTERS = 1_000_000
MOST_ITEMS = 10_000
"""Of an iterator, which may have no end."""
MOST_DEPTH = 100
"""Of a value: reports and records nest it in more, and what reads them gives up at some 200."""


def readable(value: Any) -> tuple[Any, str]:
    """The value as JSON holds it, and as text; both bounded in size.

    Text stays as it is; everything else is written as JSON, and what JSON cannot hold as its repr.
    """
    plain = jsonable(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    short = shortened(text)
    return (plain, text) if short == text else (short, short)


def jsonable(value: Any) -> Any:
    """The value made of what JSON holds; as JSON text where it is nested too deep to be kept."""
    if isinstance(value, Iterator):
        value = list(islice(value, MOST_ITEMS))
    try:
        return _converted(value, "utf8")
    except (ValueError, TypeError, RecursionError):
        return _second_try(value)


def shortened(text: str) -> str:
    """The text, or its beginning and a note on how much there was."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n[cut: {len(text):,} characters, {MOST_CHARACTERS:,} shown]"


def _second_try(value: Any) -> Any:
    """For bytes that are no text, text that is no Unicode, and what contains itself."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    try:
        return _converted(value, "base64")
    except (ValueError, TypeError, RecursionError):
        return _described(value)


def _converted(value: Any, bytes_mode: Literal["utf8", "base64"]) -> Any:
    written = pydantic_core.to_json(
        value, bytes_mode=bytes_mode, inf_nan_mode="strings", fallback=_described
    )
    plain = json.loads(written)
    return written.decode() if is_deep(plain, written) else plain


def is_deep(value: Any, written: str | bytes) -> bool:
    """Whether a value is nested deeper than can be kept; as JSON it was `written` so."""
    text = written if isinstance(written, str) else written.decode()
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False  # spares the walk
    level, depth = [value], 0
    while level and depth <= MOST_DEPTH:
        inner = [below for one in level if isinstance(one, dict) for below in one.values()]
        inner += [below for one in level if isinstance(one, list) for below in one]
        level, depth = inner, depth + 1
    return depth > MOST_DEPTH


def _described(value: Any) -> str:
    try:
        return repr(value).encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's __repr__
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
