"""A conversation for people: lines that fit, long data folded, nothing hostile."""

import io
import json
import os
from contextlib import redirect_stderr

import pytest

from holodeck.lib.support.text import columns_of
from holodeck.lib.ui.conversation import Entry, render_lines, show_entries
from holodeck.lib.ui.terminal import ANSIColors

LONG = json.dumps({"rows": list(range(40)), "word": "x" * 200})


def said(text, who="Agent", *, is_data=False):
    return Entry(who, text, ANSIColors.CYAN, is_data)


def test_a_short_text_stands_beside_its_speaker():
    assert render_lines(said("hello"), 80) == ["Agent: hello"]


def test_long_json_is_folded_and_fits():
    lines = render_lines(said(LONG), 40)

    assert lines[:3] == ["Agent:", "  {", '    "rows": [']
    assert lines[-1] == "  … 40 more lines"
    assert len(lines) == 7
    assert all(columns_of(line) <= 40 for line in lines)


def test_short_json_stays_on_its_line():
    assert render_lines(said('{ "id":\n 4 }', "Agent calls look"), 80) == [
        'Agent calls look: {"id": 4}'
    ]


def test_data_is_folded_even_if_it_is_no_json():
    text = "\n".join(map(str, range(9)))

    assert render_lines(said(text, is_data=True), 80)[-1] == "  … 4 more lines"
    assert len(render_lines(said(text), 80)) == 9


@pytest.mark.parametrize("word", ["word", "語語"], ids=["narrow", "wide"])
def test_prose_is_broken_between_words(word):
    lines = render_lines(said(" ".join([word] * 40)), 30)

    assert len(lines) > 1
    assert all(columns_of(line) <= 30 for line in lines)
    assert " ".join(line.strip() for line in lines) == "Agent: " + " ".join([word] * 40)


def test_a_log_gets_a_text_on_one_line_however_long():
    assert len(render_lines(said("word " * 400), None)) == 1


def test_an_empty_text_is_a_line():
    assert [one.rstrip() for one in render_lines(said(""), 80)] == ["Agent:"]
    assert [one.rstrip() for one in render_lines(said("", is_data=True), 80)] == ["Agent:"]


@pytest.mark.parametrize(
    "text", ["{" * 100_000, "[" * 100_000, "[1", "\x1b[2J\u202e"], ids=str.__len__
)
def test_what_looks_like_json_and_is_none_is_a_text_without_control(text):
    shown = "".join(render_lines(said(text, f"Agent calls {text}"), 80))

    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_only_the_speaker_is_coloured_and_every_line_has_the_name(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with redirect_stderr(stream):
        show_entries([said("a\nb")], "a\x1b case")

    name = f"{ANSIColors.YELLOW}[a\\x1b case] {ANSIColors.RESET}"
    agent = f"{ANSIColors.CYAN}Agent:{ANSIColors.RESET}"
    assert stream.getvalue() == f"{name}{agent} a\n{name}  b\n"


def test_a_stream_that_is_closed_or_gone_is_no_trouble():
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        with redirect_stderr(stream):
            show_entries([said("hello")])


def test_a_reader_that_is_gone_is_no_trouble():
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    with redirect_stderr(stream):
        show_entries([said("hello")])

    with pytest.raises(BrokenPipeError):  # what was not written is still there
        stream.close()
