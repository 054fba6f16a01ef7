"""Expressions of `-k`: words and quoted phrases, joined by and, or, not and parentheses."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from holodeck.errors import ConfigError
from holodeck.lib.support.text import shorten

FLAG = "-k"
_MAX_DEPTH = 50
_MAX_SHOWN = 40
_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()"'][^\s()]*))"""
)
_OPERATORS = ("and", "or", "not")

Matcher = Callable[[str], bool]
"""Whether a lower-case text matches."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    text: str
    """As it was written."""
    words: tuple[str, ...]
    """Its words and phrases in lower case."""
    matches: Matcher


@dataclass(frozen=True)
class _Token:
    text: str
    position: int
    is_word: bool = False


def parse(text: str) -> Expression:
    """Parse an expression. Raises ConfigError with the position of the error."""
    tokens = _tokenize(text)
    matches = _Parser(text, tokens).parse()
    return Expression(text, tuple(token.text for token in tokens if token.is_word), matches)


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    end = len(text.rstrip())
    position = 0
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            start = len(text) - len(text[position:].lstrip())
            _fail(text, start, f"the quote {text[start]} is never closed")
        kind = str(match.lastgroup)
        value = match[kind].casefold()
        is_quoted = kind in {"double", "single"}
        if is_quoted and not value.strip():
            _fail(text, match.start(kind) - 1, "an empty phrase matches every case; write a text")
        is_word = is_quoted or (kind == "word" and value not in _OPERATORS)
        tokens.append(_Token(value, match.start(kind), is_word))
        position = match.end()
    return tokens


class _Parser:
    """A recursive-descent parser; `not` binds closest, then `and`, then `or`."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def parse(self) -> Matcher:
        matches = self._parse_or()
        if self._peek() is not None:
            self._fail_next("expected 'and', 'or' or the end; put a phrase of words in quotes")
        return matches

    def _parse_or(self) -> Matcher:
        parts = [self._parse_and()]
        while self._accept("or"):
            parts.append(self._parse_and())
        return parts[0] if len(parts) == 1 else lambda text: any(part(text) for part in parts)

    def _parse_and(self) -> Matcher:
        parts = [self._parse_not()]
        while self._accept("and"):
            parts.append(self._parse_not())
        return parts[0] if len(parts) == 1 else lambda text: all(part(text) for part in parts)

    def _parse_not(self) -> Matcher:
        is_negated = False
        while self._accept("not"):
            is_negated = not is_negated
        matches = self._parse_group() if self._accept("(") else self._parse_word()
        return (lambda text: not matches(text)) if is_negated else matches

    def _parse_group(self) -> Matcher:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail_next(f"more than {_MAX_DEPTH} parentheses deep")
        matches = self._parse_or()
        if not self._accept(")"):
            self._fail_next("expected 'and', 'or' or ')'")
        self._depth -= 1
        return matches

    def _parse_word(self) -> Matcher:
        token = self._peek()
        if token is None or not token.is_word:
            self._fail_next("expected a word, 'not' or '('")
        self._next += 1
        return lambda text: token.text in text

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _accept(self, operator: str) -> bool:
        """Skip the next token if it is this operator; return whether it was."""
        token = self._peek()
        is_operator = token is not None and not token.is_word and token.text == operator
        self._next += is_operator
        return is_operator

    def _fail_next(self, expected: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token is None else repr(shorten(token.text, _MAX_SHOWN))
        position = token.position if token else len(self._text)
        _fail(self._text, position, f"found {found}; {expected}")


def _fail(text: str, position: int, problem: str) -> NoReturn:
    shown = shorten(text, 2 * _MAX_SHOWN)
    raise ConfigError(f"{FLAG} {shown!r}", f"character {position + 1}: {problem}")
