"""Documents with structure: chunks along headings, with definitions and cross-references."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holodeck.lib.knowledge.chunking import Passage, Section, chunk_sections, split_headings
from holodeck.lib.knowledge.stores.base import Hit, StoredText
from holodeck.lib.support.text import shorten
from holodeck.models.tools.knowledge import HierarchicalDocumentTool

_LONGEST_TERM, _LONGEST_DEFINITION = 80, 400
_MOST_NOTES = 5
"""Definitions, and references, that a result shows for one chunk."""
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
    found = list(chunk_sections(parts, config.max_chunk_tokens, config.chunk_overlap))
    if not found:  # nothing but headings
        found = list(chunk_sections(sections, config.max_chunk_tokens, config.chunk_overlap))
    return [replace(one, facts=_facts(one, config)) for one in found]


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
        found = (self.sections.get((document, label)) for label in _labels_of(reference))
        return next((one for one in found if one is not None), None)


def _words(text: str) -> str:
    """Return the words of a text in lower case, each between spaces."""
    words = " ".join(re.findall(r"\w+", text.casefold()))
    return f" {words} "


def _place(metadata: Mapping[str, Any]) -> str:
    headings: Sequence[str] = metadata.get("headings") or ()
    page = metadata.get("page")
    shown = " > ".join(headings)
    return f"{shown}, page {page}" if page is not None else shown
