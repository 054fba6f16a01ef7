"""The lines of the user's code around the one that raised."""

import linecache

import pytest

from holodeck.lib.backends.process.messages import answer_error
from holodeck.lib.user_code.raised import raised_error, source_excerpt

SHOP = """PASSWORD = "hunter2"

def price_of(item):
    prices = {}
    if item:
        return prices[item]
    return 0

def other():
    pass
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    linecache.checkcache(str(path))
    return path


@pytest.mark.parametrize(
    ("line", "excerpt"),
    [
        (6, ["  5 | if item:", "> 6 |     return prices[item]"]),
        (
            7,
            [
                "  4 | prices = {}",
                "  5 | if item:",
                "  6 |     return prices[item]",
                "> 7 | return 0",
            ],
        ),
        (4, ["  3 | def price_of(item):", "> 4 |     prices = {}", "  5 |     if item:"]),
        (0, []),
        (99, []),
    ],
    ids=["inner-block", "end", "begin", "unknown", "beyond"],
)  # fmt: skip
def test_an_excerpt_stays_in_the_block_of_the_line(shop, line, excerpt):
    assert source_excerpt(str(shop), line) == excerpt


def test_an_excerpt_has_no_control_characters_and_no_half_lines(shop):
    long = "s" * 300
    shop.write_text(f"def f():\n    x = '{long}'\n    raise ValueError('\x1b[2J\u202e')\n")
    linecache.checkcache(str(shop))

    assert source_excerpt(str(shop), 3) == [
        "  1 | def f():",
        "  2 | … (a long line)",
        "> 3 |     raise ValueError('\\x1b[2J\\u202e')",
    ]


def test_the_frames_are_those_of_the_user_and_the_excerpt_is_of_the_last(shop):
    namespace = {}
    exec(compile(SHOP, str(shop), "exec"), namespace)

    with pytest.raises(KeyError) as caught:
        namespace["price_of"]("tea")

    raised = raised_error(caught.value)
    assert raised.line == 6
    assert raised.excerpt[-1] == "> 6 |     return prices[item]"


@pytest.mark.parametrize(
    ("code", "excerpt"),
    [
        ("return prices[item]", ["  5 | if item:", "> 6 |     return prices[item]"]),
        ("something else", []),
        (None, []),
    ],
    ids=["same", "other", "none"],
)
def test_a_process_has_no_lines_printed_that_it_does_not_know(shop, code, excerpt):
    data = {"type": "KeyError", "file": str(shop), "line": 6, "code": code}

    assert answer_error({"message": "'tea'", "data": data}).raised.excerpt == excerpt
