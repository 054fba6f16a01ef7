"""What text from a model or a user looks like once it is fit to be shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.support.text import (
    clip,
    columns_of,
    is_blank,
    one_line,
    percent,
    printable,
    shorten,
    shorten_middle,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("a\x00b", "a\\x00b"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("half \udc80", "half \\udc80"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("line\u2028end", "line\\u2028end"),
        ("over\rwrite", "over\\rwrite"),
    ],
    ids=["colour", "clipboard", "nul", "c1", "bidi", "surrogate", "zwsp", "tag", "ls", "cr"],
)
def test_what_a_terminal_would_obey_or_hide_is_spelled_out(raw, shown):
    assert printable(raw) == shown


def test_readable_text_of_any_script_is_left_alone():
    text = "naïve, 日本語, עברית, می‌خواهم, 👩‍👩‍👧, é\tand\nlines"

    assert printable(text) == text


def test_windows_line_ends_are_line_ends():
    assert printable("a\r\nb") == "a\nb"


def test_line_breaks_are_spelled_out_where_only_one_line_fits():
    assert printable("a\r\n\tb", keep_newlines=False) == "a\\r\\n\\tb"


@given(ANY_TEXT)
def test_nothing_printable_returns_can_steer_a_terminal(text):
    shown = printable(text, keep_newlines=False)

    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    shown.encode()


@given(ANY_TEXT, st.integers(1, 40))
def test_one_line_is_one_line_of_the_length_asked_for(text, limit):
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_shortened_text_says_so():
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


def test_a_run_with_one_failure_is_never_shown_as_all_passed():
    assert percent(99.999, 1) == "99.9%"
    assert percent(100.0, 1) == "100.0%"
    assert percent(200 / 3, 2) == "66.67%"


def test_wide_characters_take_two_columns():
    assert columns_of("日本 é") == 6
    assert clip("日本語テスト", 7) == "日本語…"
    assert clip("short", 7) == "short"


@given(ANY_TEXT, st.integers(1, 30))
def test_clipped_text_fits(text, columns):
    assert columns_of(clip(text, columns)) <= columns


def test_what_is_abridged_keeps_its_beginning_and_its_end():
    assert shorten_middle("0123456789" * 100, 20) == "01234567890123…56789"
    assert shorten_middle("short", 5) == "short"
    assert [len(shorten_middle("x" * 50, limit)) for limit in range(1, 9)] == list(range(1, 9))


@pytest.mark.parametrize(
    "text",
    ["", " \n\u3000", "\u200b", "\ufeff", "\u2060\xad", "\u200d\ufe0f", "\u202e", "\u2800", "\x00"],
    ids=ascii,
)
def test_a_text_of_white_space_and_invisible_characters_is_blank(text):
    assert is_blank(text)
    assert not is_blank(f"{text}.{text}")


@pytest.mark.parametrize("text", ["0", "\u0600", "\ufffd", "\U0001f44d\ufe0f", "\u0301"], ids=ascii)
def test_a_text_that_shows_anything_is_not_blank(text):
    assert not is_blank(text)
