"""Chunks of documents: of a given size with overlap, or along headings with what they refer to.

A token is estimated as four bytes of UTF-8: about right for English, and near for other scripts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holodeck.lib.knowledge.stores.base import Hit, StoredText
from holodeck.lib.support.text import shorten
from holodeck.models.tools.knowledge import HierarchicalDocumentTool

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
                path = {above: text for above, text in path.items() if above < level}
                path[level] = title
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
    title = line.strip()
    return next(((level, title) for level, pattern in patterns if pattern.fullmatch(title)), None)


def _section_of(lines: list[str], path: dict[int, str], whole: Section) -> Iterator[Section]:
    text = "".join(lines)
    # a heading whose text is only in its subsections is part of their breadcrumbs
    if len([line for line in lines if line.strip()]) > 1 or (
        text.strip() and _HEADING.fullmatch(text.strip()) is None
    ):
        yield Section(text, (*whole.headings, *(path[level] for level in sorted(path))), whole.page)


_LONGEST_TERM, _LONGEST_DEFINITION = 80, 400
_MOST_NOTES = 5
"""Definitions, and references, that a result shows for a chunk."""
_DEFINED = re.compile(
    rf'["“](?P<term>[^"”\n]{{2,{_LONGEST_TERM}}})["”]'
    r"\s+(?:(?:shall|will)\s+)?(?:means?|refers?\s+to|has\s+the\s+meaning|have\s+the\s+meaning|"
    r"is\s+defined\s+as|includes?)\b",
    re.IGNORECASE,
)
_GLOSSARY = re.compile(r"\b(?:definitions?|glossary|defined terms)\b", re.IGNORECASE)
_ENTRY = re.compile(
    rf"^[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)(?P<term>[^*_\n]{{2,{_LONGEST_TERM}}})(?:\*\*|__)"
    r"[ \t]*(?::|-|–|—|means\b)",
    re.MULTILINE,
)
_KINDS = (
    r"sections?|sec\.|§§?|articles?|art\.|clauses?|paragraphs?|parts?|chapters?|divisions?|titles?|"
    r"appendix|annex|schedules?|exhibits?"
)
_NUMBER = r"\d+[A-Za-z]{0,2}(?:\.\d+)*(?:\([0-9A-Za-z]{1,4}\))*|[IVXLC]+\b|[A-Z]\b"
_REFERENCE = re.compile(rf"(?<![\w§])(?P<kind>(?i:{_KINDS}))\s?(?P<number>{_NUMBER})")
_NUMBERED = re.compile(rf"\s*(?:(?P<kind>(?i:{_KINDS}))\s?)?(?P<number>{_NUMBER})")
_SAME = {"art.": "article", "appendix": "appendix", "annex": "annex"}
_NUMBER_ONLY = frozenset({"section", "sec.", "§", "clause", "paragraph", ""})
"""Kinds that headings often leave out."""


def split_document(config: HierarchicalDocumentTool, sections: list[Section]) -> list[Passage]:
    """Return the chunks of a document, with what they define and refer to."""
    parts: Iterable[Section] = sections
    if config.chunking_strategy == "structure":
        parts = split_headings(sections, config.document_domain, config.max_subsection_depth)
    passages = list(chunk_sections(parts, config.max_chunk_tokens, config.chunk_overlap))
    if not passages:  # nothing but headings
        passages = list(chunk_sections(sections, config.max_chunk_tokens, config.chunk_overlap))
    return [replace(passage, facts=_facts(passage, config)) for passage in passages]


def _facts(passage: Passage, config: HierarchicalDocumentTool) -> dict[str, object]:
    facts: dict[str, object] = {}
    if config.extract_definitions and (defined := dict(find_definitions(passage))):
        facts["definitions"] = defined
    if config.extract_cross_references and (references := find_references(passage.text)):
        facts["references"] = references
    return facts


def find_definitions(passage: Passage) -> Iterator[tuple[str, str]]:
    """Yield each term that a chunk defines, with the sentence that does so."""
    patterns = [_DEFINED]
    if any(_GLOSSARY.search(heading) for heading in passage.headings):
        patterns.append(_ENTRY)
    for pattern in patterns:
        for match in pattern.finditer(passage.text):
            term = " ".join(match["term"].split()).strip(" .,:")
            if term:
                yield term, _sentence(passage.text, match.start())


def _sentence(text: str, start: int) -> str:
    """Return the sentence or line that begins at a position."""
    rest = text[start : start + 4 * _LONGEST_DEFINITION]
    end = re.search(r"(?<=[.;])\s|\n", rest)
    return shorten(" ".join(rest[: end.start() if end else None].split()), _LONGEST_DEFINITION)


def find_references(text: str) -> list[str]:
    """Return the sections that a text refers to, such as `Section 4.2(b)`, each once."""
    found = (" ".join(match[0].split()) for match in _REFERENCE.finditer(text))
    return list(dict.fromkeys(found))


def _label(kind: str, number: str) -> str:
    """Return what references and headings of the same section have in common."""
    kind = kind.casefold()
    kind = _SAME.get(kind, kind if kind == "sec." else kind.rstrip("s"))
    kind = "§" if kind.startswith("§") else kind
    return number.casefold() if kind in _NUMBER_ONLY else f"{kind} {number.casefold()}"


def _labels_of(reference: str) -> Iterator[str]:
    """Yield the labels to look for, the most exact first: `4.2(b)`, then `4.2`."""
    match = _NUMBERED.match(reference)
    if match is None:
        return
    number = match["number"]
    while number:
        yield _label(match["kind"] or "", number)
        number = number.rpartition("(")[0]


@dataclass(frozen=True)
class Links:
    """What the chunks of a store define, and where their sections are."""

    definitions: Mapping[tuple[str, str], tuple[str, str]]
    """(document, words of the term) → (id of the chunk, definition)."""
    sections: Mapping[tuple[str, str], StoredText]
    """(document, label) → the first chunk of the section."""

    @classmethod
    def of(cls, chunks: Iterable[StoredText]) -> "Links":
        """Collect the links of all chunks."""
        definitions: dict[tuple[str, str], tuple[str, str]] = {}
        sections: dict[tuple[str, str], StoredText] = {}
        for chunk in chunks:
            for term, text in (chunk.metadata.get("definitions") or {}).items():
                definitions.setdefault((chunk.document, _words(term)), (chunk.id, text))
            for heading in reversed(chunk.metadata.get("headings") or ()):
                match = _NUMBERED.match(heading)
                if match is not None:
                    label = _label(match["kind"] or "", match["number"])
                    sections.setdefault((chunk.document, label), chunk)
        return cls(definitions, sections)

    def notes(self, hit: Hit) -> list[str]:
        """Return lines with the definitions of a chunk's terms, and where its references lead."""
        return [*self._definitions_for(hit), *self._references_of(hit)]

    def _definitions_for(self, hit: Hit) -> list[str]:
        words = _words(hit.text)
        found = [
            f"Definition: {text}"
            for (document, term), (chunk_id, text) in self.definitions.items()
            if document == hit.document and chunk_id != hit.id and term in words
        ]
        return found[:_MOST_NOTES]

    def _references_of(self, hit: Hit) -> list[str]:
        notes = []
        for reference in hit.metadata.get("references") or ():
            target = self._target(hit.document, reference)
            if target is not None and target.id != hit.id:
                notes.append(f"See also: {reference} is {_place(target.metadata)}")
        return list(dict.fromkeys(notes))[:_MOST_NOTES]

    def _target(self, document: str, reference: str) -> StoredText | None:
        keys = ((document, label) for label in _labels_of(reference))
        return next((self.sections[key] for key in keys if key in self.sections), None)


def _words(text: str) -> str:
    """Return the words of a text in lower case, each between spaces."""
    words = " ".join(re.findall(r"\w+", text.casefold()))
    return f" {words} "


def _place(metadata: Mapping[str, Any]) -> str:
    headings: Sequence[str] = metadata.get("headings") or ()
    page = metadata.get("page")
    shown = " > ".join(headings)
    return f"{shown}, page {page}" if page is not None else shown
