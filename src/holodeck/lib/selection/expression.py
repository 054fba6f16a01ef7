"""`-k`: words and quoted phrases, joined by and, or, not and parentheses."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from holodeck.errors import ConfigError
from holodeck.lib.text import shorten

FLAG = "-k"
_MOST_DEPTH = 50
_LONGEST_SHOWN = 40
_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()"'][^\s()]*))"""
)
_OPERATORS = ("and", "or", "not")

Fits = Callable[[str], bool]
"""Whether a text, lower-cased, fits."""


@dataclass(frozen=True)
class Expression:
    """What a text must hold."""

    text: str
    """As it was written."""
    words: tuple[str, ...]
    """Its words and phrases, lower-cased."""
    fits: Fits


@dataclass(frozen=True)
class _Token:
    text: str
    at: int
    is_word: bool = False

    def means(self, operator: str) -> bool:
        return not self.is_word and self.text == operator


def parse(text: str) -> Expression:
    """The expression that `text` spells. Raises ConfigError that says where it does not."""
    tokens = _tokens(text)
    fits = _Parser(text, tokens).whole()
    return Expression(text, tuple(one.text for one in tokens if one.is_word), fits)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    end = len(text.rstrip())
    at = 0
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            start = len(text) - len(text[at:].lstrip())
            _refuse(text, start, f"the quote {text[start]} is never closed")
        found.append(_token(text, match))
        at = match.end()
    return found


def _token(text: str, match: re.Match[str]) -> _Token:
    kind = str(match.lastgroup)
    value = match[kind].casefold()
    at = match.start(kind)
    if kind in {"double", "single"} and not value.strip():
        _refuse(text, at - 1, "an empty phrase fits every case; write what it must hold")
    is_word = kind in {"double", "single"} or (kind == "word" and value not in _OPERATORS)
    return _Token(value, at, is_word)


class _Parser:
    """Reads tokens from left to right; `not` binds closest, then `and`, then `or`."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> Fits:
        fits = self._either()
        if self._peek() is not None:
            self._refuse_next("wanted 'and', 'or' or the end; put a phrase of words in quotes")
        return fits

    def _either(self) -> Fits:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda said: any(fits(said) for fits in parts)

    def _both(self) -> Fits:
        parts = [self._negated()]
        while self._takes("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda said: all(fits(said) for fits in parts)

    def _negated(self) -> Fits:
        is_negated = False
        while self._takes("not"):
            is_negated = not is_negated
        fits = self._single()
        return (lambda said: not fits(said)) if is_negated else fits

    def _single(self) -> Fits:
        if self._takes("("):
            return self._group()
        token = self._peek()
        if token is None or not token.is_word:
            self._refuse_next("wanted a word, 'not' or '('")
        self._next += 1
        return lambda said: token.text in said

    def _group(self) -> Fits:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self._refuse_next(f"more than {_MOST_DEPTH} parentheses deep")
        fits = self._either()
        if not self._takes(")"):
            self._refuse_next("wanted 'and', 'or' or ')'")
        self._depth -= 1
        return fits

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, operator: str) -> bool:
        token = self._peek()
        found = token is not None and token.means(operator)
        self._next += found
        return found

    def _refuse_next(self, wanted: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token is None else repr(shorten(token.text, _LONGEST_SHOWN))
        _refuse(self._text, token.at if token else len(self._text), f"found {found}; {wanted}")


def _refuse(text: str, at: int, what: str) -> NoReturn:
    shown = shorten(text, 2 * _LONGEST_SHOWN)
    raise ConfigError(f"{FLAG} {shown!r}", f"character {at + 1}: {what}")
