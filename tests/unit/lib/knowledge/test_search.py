"""Search in chunks: exact matches, hybrid search, and links between chunks."""

import pytest

from holodeck.lib.knowledge.chunking import Links, Passage, find_definitions, find_references
from holodeck.lib.knowledge.search import ChunkIndex, SearchSettings, search
from holodeck.lib.knowledge.stores.base import Hit, StoredText

TEXTS = {
    "a": "The warranty is two years. See SKU-991.",
    "b": "Shoes can be returned. See Section 12(b).",
    "c": "Section 12(b) says thirty days.",
}


class Stored:
    """A store whose order does not depend on the query."""

    async def search(self, embedding, top_k):
        hits = [Hit(one, "doc", TEXTS[one], score, {}) for one, score in (("b", 0.9), ("a", 0.2))]
        return hits[:top_k]


def index():
    return ChunkIndex([StoredText(one, "doc", text, {}) for one, text in TEXTS.items()])


async def found(query, **settings):
    settings = SearchSettings(**{"top_k": 3} | settings)
    hits = await search(query, [1.0], Stored(), index(), settings)
    return [(hit.id, round(hit.score, 2)) for hit in hits]


async def test_each_kind_of_search_ranks_its_own_way_and_has_a_floor():
    hybrid = {"semantic_weight": 0.5, "keyword_weight": 0.3, "exact_weight": 0.2}

    assert await found("warranty") == [("b", 0.9), ("a", 0.2)]
    assert await found("warranty", min_score=0.5) == [("b", 0.9)]
    assert await found("warranty", mode="keyword") == [("a", 1.0)]
    assert await found("warranty", mode="hybrid", **hybrid, rrf_k=1) == [("a", 0.83), ("b", 0.5)]
    assert await found("warranty", mode="hybrid", **hybrid, rrf_k=1, top_k=1) == [("a", 0.83)]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("what is SKU-991?", ["a"]),
        ("what says section 12(b)", ["b", "c"]),
        ('"thirty  days"', ["c"]),
    ],
)
def test_exact_matches_are_numbers_phrases_in_quotes_and_the_whole_query(query, best):
    assert [hit.id for hit in index().search_exact(query, 5)] == best


def test_definitions_are_sentences_that_say_what_a_term_means():
    text = 'The term "Net Price" means the price\nwithout tax; and “Goods” has the meaning given.'
    glossary = Passage("- **Tare**: the weight of the box.\n", ("Glossary",))

    assert dict(find_definitions(Passage(text))) == {
        "Net Price": '"Net Price" means the price',
        "Goods": "“Goods” has the meaning given.",
    }
    assert list(find_definitions(glossary)) == [("Tare", "- **Tare**: the weight of the box.")]


def test_references_lead_to_the_sections_with_their_numbers():
    text = "See Section 4.2(b), sections 3 and Article IV or Appendix B, not Sections of a book."
    chunks = [
        StoredText("1", "doc", "", {"headings": ["4.2 Refunds"], "page": 7}),
        StoredText("2", "doc", "", {"headings": ["ARTICLE IV", "Law"]}),
        StoredText("3", "other", "", {"headings": ["3 Period"]}),
    ]
    references = find_references(text)
    hit = Hit("0", "doc", text, 1.0, {"references": references})

    assert references == ["Section 4.2(b)", "sections 3", "Article IV", "Appendix B"]
    assert Links.of(chunks).notes(hit) == [
        "See also: Section 4.2(b) is 4.2 Refunds, page 7",
        "See also: Article IV is ARTICLE IV > Law",
    ]
