"""Chunks of texts: how large they are, what they repeat, and which headings are above them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.knowledge.chunking import (
    Section,
    chunk_text,
    split_headings,
    token_count,
)

TEXTS = st.text(alphabet="ab .!?\n\té語😀", max_size=400)


@given(TEXTS, st.integers(5, 40), st.integers(0, 4))
def test_chunks_have_at_most_their_size_and_lose_no_word(text, size, overlap):
    chunks = list(chunk_text(text, size, overlap))

    assert all(token_count(one) <= size for one in chunks)
    assert all(one == one.strip() and one for one in chunks)
    joined = "".join("".join(chunks).split())
    position = 0
    for character in "".join(text.split()):
        position = joined.index(character, position) + 1


def test_chunks_end_after_sentences_and_repeat_the_last_words():
    text = "One two three. Four five six. Seven eight nine."

    assert list(chunk_text(text, 8, 0)) == ["One two three. Four five six.", "Seven eight nine."]
    assert list(chunk_text(text, 8, 2)) == [
        "One two three. Four five six.",
        "six. Seven eight nine.",
    ]


def test_a_long_text_without_spaces_takes_time_in_proportion_to_its_length():
    chunks = list(chunk_text("x" * 1_000_000, 100, 10))

    assert len(chunks) > 2_000


DOCUMENT = """\
Before.

# Terms

## 1 Definitions

A thing.

```sh
# no heading
```

## 2 Returns ##

### Shoes

Thirty days.
"""


def headings_and_first_lines(text, **options):
    return [
        (one.headings, one.text.strip().splitlines()[0])
        for one in split_headings([Section(text)], **options)
    ]


def test_each_heading_begins_a_section_with_the_headings_above():
    assert headings_and_first_lines(DOCUMENT) == [
        ((), "Before."),
        (("Terms", "1 Definitions"), "## 1 Definitions"),
        (("Terms", "2 Returns", "Shoes"), "### Shoes"),
    ]


def test_headings_below_a_depth_are_text():
    assert headings_and_first_lines(DOCUMENT, max_depth=2)[-1] == (
        ("Terms", "2 Returns"),
        "## 2 Returns ##",
    )


def test_a_section_knows_its_page_and_the_headings_of_earlier_pages():
    pages = [Section("# One\n\nText.", page=1), Section("More.", page=2)]

    found = list(split_headings(pages))

    assert [(one.headings, one.page) for one in found] == [(("One",), 1), (("One",), 2)]


@pytest.mark.parametrize(
    ("domain", "line"),
    [
        ("us_legislative", "SEC. 101. SHORT TITLE."),
        ("us_legislative", "TITLE IV—REVENUE"),
        ("au_legislative", "Part 2—Offences"),
        ("academic", "2.1 Related work"),
        ("technical", "3.2.1 Timeouts"),
        ("legal_contract", "ARTICLE II"),
        ("legal_contract", "4.2 Payment"),
    ],
)
def test_documents_of_a_domain_have_headings_of_their_own(domain, line):
    text = f"Text.\n{line}\nMore."

    assert headings_and_first_lines(text, domain=domain)[-1] == ((line,), line)
    assert len(headings_and_first_lines(text)) == 1
