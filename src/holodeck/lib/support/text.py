"""Text for terminals, logs and reports: made safe, and said of exceptions and unknown words."""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from holodeck.errors import HoloDeckError


def message_of(error: BaseException) -> str:
    """Return the message; empty if `__str__` of the exception raises."""
    try:
        return str(error)
    # The user's exception may raise anything.
    except (Exception, SystemExit, GeneratorExit):  # noqa: BLE001
        return ""


def describe(error: BaseException) -> str:
    """Return type and message on a single line; only the message for holodeck's own errors."""
    text = " ".join(message_of(error).split())
    name = type(error).__name__
    if isinstance(error, HoloDeckError):
        return text or name
    return f"{name}: {text}" if text else name


def nearest_word(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like `word`, or None if none is similar enough."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(
    word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6
) -> str:
    """Return `; did you mean 'x'?` with the nearest known word, or `otherwise`."""
    nearest = nearest_word(word, known, cutoff=cutoff)
    return otherwise if nearest is None else f"; did you mean {nearest!r}?"


def did_you_mean_or_list(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or `; known: …` with the first twenty words."""
    words = list(known)
    return did_you_mean(word, words, f"; known: {', '.join(words[:20])}" if words else "")


class DuplicateKey(ValueError):
    """An object has a key twice; the message names it."""


def load_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text. Raises ValueError, DuplicateKey and RecursionError."""
    return json.loads(text, object_pairs_hook=unique_keys)


def value_in_text(value: Any) -> Any:
    """Return the value that a text contains as JSON; another text and any other value unchanged."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def instance_of(value: object) -> str:
    """Return the type of a value with its article, such as `a list` or `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def to_text(value: Any) -> str:
    """Return a text as it is, and another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_or_none(text: str) -> object | None:
    """Return the JSON value that a text is; None if it is not JSON."""
    try:
        return load_json(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values, for `object_pairs_hook`. Raises DuplicateKey."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise DuplicateKey(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return mapping


# What a terminal obeys, what reorders or hides text, and what no encoder takes. The joiners
# U+200C and U+200D stay: Persian, Indic scripts and emoji are spelled with them.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 without tab and newline
    "\xad\u061c\u180e\u200b\u200e\u200f"  # soft hyphen, marks, zero width space
    "\u2028-\u202e\u2060-\u206f"  # line separators, bidi embeddings and isolates
    "\u115f\u1160\u3164\uffa0"  # letters that print nothing
    "\ufeff\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff"  # halves of a pair
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # tags and the variation selectors that smuggle bytes
)
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
_INVISIBLE_OR_BREAK = re.compile(f"[\t\n{_UNSEEN}]")


# Joiners and variation selectors show nothing by themselves, nor do a blank of Braille, the
# grapheme joiner and two vowels of Khmer.
_VISIBLE = re.compile(f"[^\\s{_UNSEEN}\u034f\u17b4\u17b5\u200c\u200d\u2800\ufe00-\ufe0f]")
_INVISIBLE_OR_COLOR = re.compile(rf"[{_UNSEEN}](?:(?<=\x1b)\[[\d;]*m)?")


# What CI services obey in a log: `::error::` of GitHub after spaces, `##[`, `##vso[` of Azure and
# `##teamcity[` anywhere in a line. `std::vector` and `agent.yaml::case` are none, but a color may
# end with a letter. Patterns that begin with the signs themselves are quick in long texts.
_COMMANDS = (
    re.compile(r"::(?:(?<![\w:]::)|(?<=[\d;\[]m::)):*(?=[A-Za-z][^\n]*?::)"),
    re.compile(r"##(?=\w*\[)"),
)
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def bom_encoding(data: bytes) -> str | None:
    """Return the encoding that a byte order mark names, or None."""
    return next((encoding for mark, encoding in _BOMS if data.startswith(mark)), None)


def printable(text: str, keep_newlines: bool = True) -> str:
    """`text` with invisible and control characters escaped, such as `\\x1b` and `\\u202e`.

    Line ends stay (`\\r\\n` as `\\n`) and so do tabs, unless `keep_newlines` is false.
    """
    if keep_newlines:
        return _INVISIBLE.sub(_escape, _unix(text))
    return _INVISIBLE_OR_BREAK.sub(_escape, text)


def inert(text: str, *, keep_newlines: bool = True) -> str:
    """`text` printable, and with a backslash in what a CI service would obey, as in `:\\:error::`.

    Everything that is printed or logged goes through this function or a variant of it below:
    `echo` and `write_text` call it. Markdown shows the backslash in no paragraph.
    """
    return _spell_commands(printable(text, keep_newlines), "\\".join)


def inert_but_colored(text: str) -> str:
    """`text` as from `inert`, but with the sequences for colors, which can only be ugly."""
    shown = _INVISIBLE_OR_COLOR.sub(
        lambda match: _escape(match) if len(match[0]) == 1 else match[0], _unix(text)
    )
    return _spell_commands(shown, "\\".join)


def inert_json(text: str) -> str:
    """JSON, or YAML in double quotes, as from `inert`: with escapes, so that the values stay."""
    shown = _INVISIBLE.sub(lambda match: _in_json(match[0]), text)
    return _spell_commands(shown, _in_json)


def inert_xml(text: str) -> str:
    """Printable XML or HTML without CI commands: with references, so that the values stay."""
    return _spell_commands(text, lambda signs: "".join(f"&#{ord(sign)};" for sign in signs))


def _spell_commands(text: str, spell: Callable[[str], str]) -> str:
    for pattern in _COMMANDS:
        text = pattern.sub(lambda match: spell(match[0]), text)
    return text


def _in_json(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: it is empty, white space, or invisible."""
    return _VISIBLE.search(text) is None


def replace_surrogates(text: str) -> str:
    """Return `text` with `?` for each half of a surrogate pair, which cannot be encoded."""
    return text.encode(errors="replace").decode()


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with `…` at the end if it is cut."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`: its beginning, `…` and its end."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end - 1]}…{text[len(text) - end :]}"


def one_line(text: str, limit: int) -> str:
    """Return `text` as a single printable line of at most `limit` characters."""
    # Reading more of a long text would be a waste.
    head = " ".join(text[: limit * 4].split())
    if len(text) > limit * 4:
        head += "…"
    return shorten(printable(head, keep_newlines=False), limit)


def plural(number: float, thing: str, things: str | None = None, form: str = "") -> str:
    """Return `1 case` or `2 cases`; `things` is an irregular plural, `form` a format of digits."""
    word = thing if number == 1 else things or f"{thing}s"
    return f"{number:{form}} {word}"


def shorten_list(
    names: Sequence[str], most: int, between: str = ", ", count: int | None = None
) -> str:
    """Return the first names, such as `a, b and 3 more`; `count` says how many there are in all."""
    more = (len(names) if count is None else count) - min(most, len(names))
    return between.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def percent(rate: float, digits: int) -> str:
    """Format a rate of 0 to 100, such as `66.7%`; a rate below 100 never becomes `100%`."""
    shown = round(rate, digits)
    if shown >= 100 > rate:
        shown = 100 - 10**-digits
    return f"{shown:.{digits}f}%"


def columns_of(text: str) -> int:
    """Return the width of `text` in columns of a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def clip(text: str, columns: int) -> str:
    """Cut `text` to a width in columns, with `…` at the end if it is cut."""
    if columns_of(text) <= columns:
        return text
    room = columns - 1
    for index, char in enumerate(text):
        room -= _columns(char)
        if room < 0:
            return text[:index] + ("…" if columns > 0 else "")
    return text


def wrap(text: str, columns: int) -> list[str]:
    """Break `text` between words into lines of a width; a word that is longer is cut in two."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if columns_of(joined) <= columns:
            lines[-1] = joined
            continue
        lines += [word] if lines[-1] else []
        lines[-1] = word
        while columns_of(lines[-1]) > columns > 1:
            head = clip(lines[-1], columns + 1).removesuffix("…")
            lines[-1:] = [head, lines[-1][len(head) :]]
    return lines


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in "\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def quote(text: str, limit: int = 80) -> str:
    """Return the text in quotes on one line, cut to about `limit` characters."""
    return repr(shorten(text, limit))
