"""Markdown that shows any text as it is.

Short text goes through `inline`: every character that could begin markup becomes a backslash
escape, or an entity where tables or GitHub's extensions ignore backslashes. Long text
goes through `fenced`, because nothing inside a fence that is longer than any run of backticks in
it can be markup, while a block quote would still render what it quotes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holodeck.lib.reports.locations import place_of, split_location
from holodeck.lib.support.text import inert, inert_xml, one_line
from holodeck.models.test_result import TestReport, TestResult

MAX_CHARACTERS = 65_536
"""GitHub shows no longer comment, description or issue."""
INLINE_LIMIT = 200
BLOCK_LIMIT = 20_000
"""Characters of a block; a response can have millions."""

_ESCAPES = str.maketrans(
    {
        "\\": "&#92;",
        "`": "&#96;",
        "|": "&#124;",
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
        "$": "&#36;",
        "*": "\\*",
        "[": "\\[",
        "]": "\\]",
        "~": "\\~",
        "#": "\\#",
    }
)
_LONE_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_LIST_START = re.compile(r"^(\d*)([-+.)])(?=[\s-]|$)")
# An entity for a zero-width space separates what GitHub would link after rendering.
_NOT_LINKED_IN_HTML = re.compile(r"@(?=\w)|#(?=\d)|(?i:\bgh)(?=-\d)", re.ASCII)
_EMPTY = frozenset({"", "–"})
_NOT_LINKED = re.compile(r"@(?=\w)|\\#(?=\d)|(?i:\bgh)(?=-\d)", re.ASCII)
_URL_COLON = re.compile(r":(?=//)")
_WWW_DOT = re.compile(r"(?i)\b(www)\.")


MAX_NOTES = 20
"""Notes of a report, and lines of a note, that are shown."""


def note_lines(note: str, limit: int) -> Iterator[str]:
    """Yield a note as lines of Markdown: its first line in bold, the others as a list."""
    title, *details = [line for line in note.split("\n") if line.split()][:MAX_NOTES] or [""]
    yield from (f"**{inline(title, limit)}**", "")
    yield from (f"- {inline(detail, limit)}" for detail in details)
    yield from [""] if details else []


def inline(text: str, limit: int = INLINE_LIMIT) -> str:
    """Return `text` as a single line without markup, for headings, table cells, lists and links."""
    escaped = one_line(text, limit).translate(_ESCAPES)
    # A pattern is only applied where it may match: reports have thousands of short texts.
    if "_" in escaped:
        escaped = _LONE_UNDERSCORE.sub("\\_", escaped)
    if "@" in escaped or "#" in escaped or "-" in escaped:
        escaped = _NOT_LINKED.sub(lambda match: f"{match[0]}&#8203;", escaped)
    if "://" in escaped:
        escaped = _URL_COLON.sub("&#58;", escaped)
    if "." in escaped:
        escaped = _WWW_DOT.sub(r"\1&#46;", escaped)
    escaped = _LIST_START.sub(r"\1\\\2", escaped) if _LIST_START.match(escaped) else escaped
    return inert_xml(escaped)


def code(text: str, limit: int = INLINE_LIMIT) -> str:
    """Return `text` as a code span; not for table cells."""
    content = inert(one_line(text, limit)) or " "
    ticks = "`" * (_longest_run(content) + 1)
    pad = " " if content[0] == "`" or content[-1] == "`" else ""
    return f"{ticks}{pad}{content}{pad}{ticks}"


def html_inline(text: str, limit: int = INLINE_LIMIT) -> str:
    """Return `text` as a single line for HTML, where Markdown's escapes would be seen."""
    escaped = escape(one_line(text, limit))
    escaped = _NOT_LINKED_IN_HTML.sub(lambda match: f"{match[0]}&#8203;", escaped)
    return inert_xml(_WWW_DOT.sub(r"\1&#46;", _URL_COLON.sub("&#58;", escaped)))


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that readers see once they unfold them; `summary` is HTML already."""
    yield from (f"<details><summary>{summary}</summary>", "")
    yield from lines
    yield from ("</details>", "")


def fenced(text: str, info: str = "text", limit: int = BLOCK_LIMIT) -> list[str]:
    """Return `text` as a code block, shortened to `limit` characters."""
    shown = inert(text[:limit])
    fence = "`" * max(3, _longest_run(shown) + 1)
    lines = [f"{fence}{info}", shown.removesuffix("\n"), fence]
    hidden = len(text) - limit
    if hidden > 0:
        lines += [
            "",
            f"*… {hidden:,} of {len(text):,} characters are omitted; the JSON report has them.*",
        ]
    return lines


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table and an empty line, or nothing without rows; the cells are Markdown already.

    A column is left out if no row says anything in it, other than the first.
    """
    lines = list(rows)
    if not lines:
        return []
    columns = range(len(header))
    kept = [at for at in columns if not at or any(row[at] not in _EMPTY for row in lines)]
    shown = [[line[at] for at in kept] for line in (header, ["---"] * len(header), *lines)]
    return [*("| " + " | ".join(line) + " |" for line in shown), ""]


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a tool's arguments or result as JSON."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


@dataclass(frozen=True)
class SourceLinks:
    """Where the lines of YAML can be read."""

    base: str = ""
    """The address of the checkout; empty for links relative to the working folder."""
    checkout: str | None = None
    """The folder of the checkout, unless the report knows it."""

    def link(self, report: TestReport, result: TestResult) -> str:
        """Return a link to the place of a case; empty if it is not in a file."""
        file, line, _ = split_location(result.location)
        if file is None:
            return ""
        shown = inline(file if line is None else f"{file}:{line}")
        path = Path(place_of(report, result, self.checkout)[0] if self.base else file)
        if line is None or path.is_absolute() or (self.base and ".." in path.parts):
            return shown
        return f"[{shown}]({self.base}{quote(path.as_posix(), errors='replace')}#L{line})"
