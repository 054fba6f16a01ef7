"""Which cases the command line requests, and what recorded runs know of them.

An expression of `-k` consists of words and quoted phrases, joined by and, or, not and parentheses.
"""

import re
import shlex
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


def parse_expression(text: str) -> Expression:
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


_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")

RESULTS_FOR_A_MEDIAN = 3


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a selection; the first has number 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse such as `2/4`. Raises ConfigError."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            hint = "expected I/N with I from 1 to N, such as 2/4"
            raise ConfigError("--shard", f"found {text[:80]!r}; {hint}")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class SelectionRequest:
    """Filters, all of which a case must match; then the order, the limit and the shard."""

    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Each is the name or id of cases, a suite, or `SUITE::NAME`."""
    suites: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """A case needs any of them."""
    excluded_tags: tuple[str, ...] = ()
    keyword: Expression | None = None
    last_failed: bool = False
    new: bool = False
    seed: int | None = None
    """Of the random order; None keeps the order of the file."""
    failed_first: bool = False
    limit: int | None = None
    shard: Shard | None = None
    allow_empty: bool = False

    @property
    def needs_history(self) -> bool:
        """Whether the selection depends on recorded runs."""
        return self.last_failed or self.new or self.failed_first or self.shard is not None

    @property
    def results_needed(self) -> int:
        """How many recorded results of a case are needed: the last, or some for a median."""
        return RESULTS_FOR_A_MEDIAN if self.shard is not None else 1

    def args(self) -> list[str]:
        """Return the options that request this selection, without `--allow-empty`."""
        options = (
            *(("--id", case_id) for case_id in self.ids),
            *(("--name", name) for name in self.names),
            *(("--suite", suite) for suite in self.suites),
            *(("--tag", tag) for tag in self.tags),
            *(("--exclude-tag", tag) for tag in self.excluded_tags),
            ("-k", self.keyword.text if self.keyword else None),
            ("--last-failed", "" if self.last_failed else None),
            ("--new", "" if self.new else None),
            ("--shuffle", "" if self.seed is not None else None),
            ("--seed", None if self.seed is None else str(self.seed)),
            ("--failed-first", "" if self.failed_first else None),
            ("--limit", None if self.limit is None else str(self.limit)),
            ("--shard", None if self.shard is None else str(self.shard)),
        )
        return [
            part for flag, value in options if value is not None for part in (flag, value) if part
        ]

    def __str__(self) -> str:
        return shlex.join(self.args())


@dataclass(frozen=True)
class CaseHistory:
    """The recorded results of a case; numbers are medians, None means unknown."""

    passed: bool | None = None
    """Whether the latest result passed; None without a result."""
    duration_ms: float | None = None
    whole_run_ms: float | None = None
    """The duration in runs without `--shard`, so that shards do not change later shards."""
    agent_tokens: float | None = None
    judge_calls: float | None = None
    judge_tokens: float | None = None
    simulator_tokens: float | None = None
    cost: float | None = None
    """In the present currency, at the prices of the run."""


UNKNOWN_HISTORY = CaseHistory()
