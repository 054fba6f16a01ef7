"""The documents that spans of retrievals hold, by the conventions for them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from holodeck.lib.support.text import value_in_text

_LISTS = (
    "langwatch.rag_contexts",
    "langwatch.rag.contexts",
    "retrieval.documents",
    "gen_ai.retrieval.documents",
)
"""Attributes with a list of documents, which may be JSON."""
_PART = re.compile(r"retrieval\.documents\.(\d+)\.document\.(\w+)")
"""An attribute with a part of one document, as OpenInference writes it."""
_TEXT_KEYS = ("content", "text", "page_content", "document.content")


def documents_in(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the documents in the attributes of a span, each a text or a mapping."""
    raw = next((attributes[key] for key in _LISTS if attributes.get(key) is not None), None)
    if raw is None:
        parts: dict[int, dict[str, Any]] = {}
        for key, value in attributes.items():
            match = _PART.fullmatch(key)
            if match is not None:
                parts.setdefault(int(match[1]), {})[match[2]] = value
        return [parts[number] for number in sorted(parts)]
    value = value_in_text(raw)
    return list(value) if isinstance(value, list | tuple) else [value]


def holds_documents(names: Iterable[str]) -> bool:
    """Whether attributes of these names are about documents."""
    return any(name in _LISTS or _PART.fullmatch(name) for name in names)


def text_of_document(document: Any) -> str | None:
    """Return the text of a document; None for one that has only an id, say."""
    if isinstance(document, Mapping):
        document = next((document[key] for key in _TEXT_KEYS if key in document), None)
    return document if isinstance(document, str) else None
