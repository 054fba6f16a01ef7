"""Chunks of documents: of a given size with overlap, or along headings.

A token is estimated as four bytes of UTF-8: about right for English, and near for other scripts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

BYTES_PER_TOKEN = 4
_PIECE = re.compile(r"[^\n]*?[.!?;:][ \t]+|[^\n]*\n+|[^\n]+")
"""A sentence, or the rest of a line; joined again they are the text."""
_WORD = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True)
class Section:
    """A part of a document below one heading, or on one page."""

    text: str
    headings: tuple[str, ...] = ()
    """The headings above it, outermost first."""
    page: int | None = None
    """The page where it begins, from 1; None if the document has no pages."""


@dataclass(frozen=True)
class Passage:
    """A chunk of a document, before it has a vector."""

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    facts: dict[str, object] = field(default_factory=dict)
    """What else is known about it."""

    @property
    def breadcrumb(self) -> str:
        """The headings above it, such as `Returns > Shoes`."""
        return " > ".join(self.headings)


def token_count(text: str) -> int:
    """Return the estimated number of tokens."""
    return -(-_size(text) // BYTES_PER_TOKEN)


def chunk_sections(sections: Iterable[Section], size: int, overlap: int) -> Iterator[Passage]:
    """Yield chunks of at most `size` tokens; a chunk never spans two sections."""
    for section in sections:
        for text in chunk_text(section.text, size, overlap):
            yield Passage(text, section.headings, section.page)


def chunk_text(text: str, size: int, overlap: int) -> Iterator[str]:
    """Yield chunks of at most `size` tokens, each with the last `overlap` tokens of the one before.

    Chunks end after sentences and lines where possible. Blank ones are left out.
    """
    most, repeated = size * BYTES_PER_TOKEN, overlap * BYTES_PER_TOKEN
    parts: list[str] = []
    used = 0
    for piece in _pieces(text, most - repeated):
        length = _size(piece)
        if parts and used + length > most:
            chunk = "".join(parts)
            if chunk.strip():
                yield chunk.strip()
            tail = _tail(chunk, repeated)
            parts, used = [tail], _size(tail)
        parts.append(piece)
        used += length
    last = "".join(parts).strip()
    if last:
        yield last


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _pieces(text: str, most: int) -> Iterator[str]:
    """Yield sentences and lines; those of more than `most` bytes in parts."""
    for match in _PIECE.finditer(text):
        piece = match[0]
        if _size(piece) <= most:
            yield piece
        else:
            yield from _parts(piece, most)


def _parts(piece: str, most: int) -> Iterator[str]:
    """Yield the words of a long piece, grouped; a word of more than `most` bytes is cut."""
    group: list[str] = []
    used = 0
    for word in (part for match in _WORD.finditer(piece) for part in _cut(match[0], most)):
        length = _size(word)
        if group and used + length > most:
            yield "".join(group)
            group, used = [], 0
        group.append(word)
        used += length
    yield "".join(group)


def _cut(word: str, most: int) -> Iterator[str]:
    if _size(word) <= most:
        yield word
        return
    step = max(1, most if word.isascii() else most // 4)
    for start in range(0, len(word), step):
        yield word[start : start + step]


def _tail(chunk: str, most: int) -> str:
    """Return the last `most` bytes of a chunk at most, from the beginning of a word."""
    if most == 0:
        return ""
    tail = chunk.encode(errors="replace")[-most:].decode(errors="ignore")
    if len(tail) == len(chunk):
        return chunk
    space = re.search(r"\s", tail)
    return tail if space is None else tail[space.end() :]


_HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")

HEADINGS_OF: dict[str, Sequence[tuple[int, str]]] = {
    "none": (),
    "us_legislative": (
        (1, r"TITLE [IVXLC\d]+\b.*"),
        (2, r"(?:Subtitle|SUBTITLE) [A-Z]\b.*"),
        (3, r"(?:CHAPTER|Chapter|PART|Part) [IVXLC\d]+\b.*"),
        (4, r"(?:SEC\.|SECTION|Section|Sec\.|§) ?\d[\w.-]*.*"),
    ),
    "au_legislative": (
        (1, r"(?:Chapter|CHAPTER) \d+\w*\b.*"),
        (2, r"(?:Part|PART|Schedule|SCHEDULE) \d+\w*\b.*"),
        (3, r"(?:Division|DIVISION) \d+\w*\b.*"),
        (4, r"(?:Subdivision|SUBDIVISION) \w+\b.*"),
        (5, r"\d+[A-Z]{0,3}  ?[A-Z][^.;]*"),
    ),
    "academic": (
        (1, r"(?:Abstract|ABSTRACT|References|REFERENCES|Acknowledge?ments|Appendix\b.*)"),
        (1, r"(?:\d+|[IVX]+)\.? [A-Z][^.]{0,80}"),
        (2, r"\d+\.\d+\.? [A-Z][^.]{0,80}"),
        (3, r"\d+\.\d+\.\d+\.? [A-Z][^.]{0,80}"),
    ),
    "technical": (
        (1, r"(?:\d+\.?|Chapter \d+:?) [A-Z][^.]{0,80}"),
        (2, r"\d+\.\d+\.? [A-Z][^.]{0,80}"),
        (3, r"\d+\.\d+\.\d+\.? [A-Z][^.]{0,80}"),
    ),
    "legal_contract": (
        (1, r"(?:ARTICLE|Article|EXHIBIT|Exhibit|SCHEDULE|Schedule|ANNEX|Annex) [IVXLC\dA-Z]+\b.*"),
        (2, r"(?:SECTION|Section) \d[\d.]*.*"),
        (2, r"\d+\. [A-Z][^.]{0,80}\.?"),
        (3, r"\d+\.\d+\.? [A-Z][^.]{0,80}\.?"),
    ),
}
"""For each domain, the level and the pattern of lines that are headings besides those of Markdown.
"""
_LONGEST_HEADING = 200


def split_headings(
    sections: Iterable[Section], domain: str = "none", max_depth: int | None = None
) -> Iterator[Section]:
    """Yield a section for each heading, with all headings above; texts contain their own heading.

    Headings below the level `max_depth` are text. Headings continue over pages.
    """
    patterns = [(level, re.compile(pattern)) for level, pattern in HEADINGS_OF[domain]]
    path: dict[int, str] = {}
    fence = ""
    for section in sections:
        lines: list[str] = []
        for line in section.text.splitlines(keepends=True):
            mark = _FENCE.match(line)
            if mark is not None and (not fence or mark[1].startswith(fence)):
                fence = "" if fence else mark[1]
            heading = None if fence or mark else _heading(line, patterns)
            if heading is not None and heading[0] <= (max_depth or heading[0]):
                yield from _section_of(lines, path, section)
                level, title = heading
                path = {one: text for one, text in path.items() if one < level} | {level: title}
                lines = []
            lines.append(line)
        yield from _section_of(lines, path, section)


def _heading(line: str, patterns: Sequence[tuple[int, re.Pattern[str]]]) -> tuple[int, str] | None:
    """Return level and title of a heading; None for any other line."""
    line = line.rstrip()
    if not line or len(line) > _LONGEST_HEADING:
        return None
    markdown = _HEADING.fullmatch(line)
    if markdown is not None:
        return (len(markdown[1]), markdown[2]) if markdown[2] else None
    return next(
        ((level, line.strip()) for level, one in patterns if one.fullmatch(line.strip())), None
    )


def _section_of(lines: list[str], path: dict[int, str], whole: Section) -> Iterator[Section]:
    text = "".join(lines)
    # a heading whose text is only in its subsections is part of their breadcrumbs
    if len([line for line in lines if line.strip()]) > 1 or (
        text.strip() and _HEADING.fullmatch(text.strip()) is None
    ):
        yield Section(text, (*whole.headings, *(path[level] for level in sorted(path))), whole.page)
