"""Results of a search, as text for the model and as passages for metrics."""

from collections.abc import Sequence

from holodeck.lib.knowledge.stores.base import Hit
from holodeck.lib.support.text import plural


def format_hits(query: str, hits: Sequence[Hit], passages: Sequence[str]) -> str:
    """Return the result of a search for the model; `passages` are the contents of the hits."""
    if not hits:
        return f"Found no results for: {query}"
    blocks = [
        f"[{rank}] Score: {hit.score:.2f} | Source: {source_of(hit)}\n{passage}"
        for rank, (hit, passage) in enumerate(zip(hits, passages, strict=True), start=1)
    ]
    return "\n\n".join([f"Found {plural(len(hits), 'result')}:", *blocks])


def source_of(hit: Hit) -> str:
    """Return where a chunk comes from, such as `terms.pdf, page 3, Returns > Shoes`."""
    page, headings = hit.metadata.get("page"), hit.metadata.get("headings") or ()
    parts = [hit.document, "" if page is None else f"page {page}", " > ".join(headings)]
    return ", ".join(filter(None, parts))


def passage_of(hit: Hit, notes: Sequence[str] = ()) -> str:
    """Return what the model reads of a chunk: its text, the fields of its record, and notes."""
    record = hit.metadata.get("record") or {}
    fields = [f"{name}: {value}" for name, value in record.items()]
    return "\n".join([hit.text, *fields, *notes])
