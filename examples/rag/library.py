"""A function that answers from the documents beside it, and reports what it retrieved."""

import re
from pathlib import Path

COMMON = {
    "a",
    "be",
    "does",
    "for",
    "how",
    "i",
    "is",
    "it",
    "may",
    "my",
    "the",
    "there",
    "what",
    "you",
}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - COMMON


def search(question: str, most: int = 2) -> list[dict]:
    """Return the paragraphs that share the most words with the question."""
    passages = [
        {"text": paragraph, "source": file.name}
        for file in sorted((Path(__file__).parent / "docs").glob("*.md"))
        for paragraph in file.read_text(encoding="utf-8").strip().split("\n\n")
    ]
    found = [passage for passage in passages if words(passage["text"]) & words(question)]
    found.sort(key=lambda passage: -len(words(passage["text"]) & words(question)))
    return found[:most]


def answer(question: str) -> dict:
    found = search(question)
    sentences = [part for passage in found for part in passage["text"].split(". ")]
    best = max(sentences, key=lambda part: len(words(part) & words(question)), default=None)
    response = "I do not know." if best is None else best.rstrip(".") + "."
    return {"response": response, "retrieval_context": found}
