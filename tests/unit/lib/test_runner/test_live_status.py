"""The rows that move while cases run, at each width of a terminal, and the line for a log."""

import re

import pytest

from holodeck.lib.support.text import columns_of
from holodeck.lib.ui.activity import Activity, LiveStatus, current_case


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


COUNTS = {"done": 12, "failed": 2, "total": 60}
REASON = "no connection to http://127.0.0.1:9/v1: connection refused"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def status(clock):
    """Twelve cases of two seconds are done, three run, and one of these waits for a retry."""
    status = LiveStatus(clock)
    for number in range(12):
        status.start(f"done {number}", 1)
        clock.now += 2
        status.finish(f"done {number}")
    status.start("finds a table for two", 1)
    retry = Activity(
        "retry 3 of 6", "retry 3 of 6 in {time}", clock.now + 5, REASON, current_case()
    )
    status.activities.add(retry)
    for name in ("cancels", "books"):
        status.start(name, 1)
        status.activities.add(Activity("judging", case=current_case()))
    clock.now += 1
    return status


def rows(status, columns, **options):
    options = {"ascii_only": False} | options
    return status.rows(COUNTS, "|", columns, **options).split("\n")


def test_a_terminal_of_forty_columns_shows_everything_that_matters(status):
    assert rows(status, 37) == [
        "| ━───── 12/60, 2 failed, 0:25, ~1:25",
        "  finds a…: retry 3 of 6 in 4 s: … +2",
    ]


def test_a_terminal_of_eighty_columns_has_room_for_a_bar(status):
    assert rows(status, 77) == [
        "| ━━━━━━──────────────────────── 12/60, 2 failed, 0:25, about 1:25 left",
        "  finds a… (1 s): retry 3 of 6 in 4 s: no connection to http://127.0…; 2 more",
    ]


def test_a_wide_terminal_says_what_the_other_cases_do(status):
    assert rows(status, 197)[1] == (
        f"  finds a table for two (1 s): retry 3 of 6 in 4 s: {REASON}; 2 more: 2 judging"
    )


@pytest.mark.parametrize("columns", [1, 5, 17, 30, 37, 50, 77, 117, 197])
def test_no_row_is_wider_than_the_terminal(status, columns):
    status.start("日本語の名前 " * 9, 1)

    assert all(columns_of(row) <= max(columns, 3) for row in rows(status, columns))


def test_without_unicode_the_bar_is_ascii(status):
    assert rows(status, 77, ascii_only=True)[0].startswith("| ######------")


def test_secrets_in_the_reason_of_a_wait_are_hidden(status):
    status.redact = lambda text: text.replace("127.0.0.1", "***")

    assert "http://***:9" in rows(status, 197)[1]


def test_the_line_of_a_log_says_the_same(status):
    assert status.log_line(COUNTS) == (
        "still running: 12 of 60 done, 2 failed, 25 s, about 1:25 left; finds a table for two"
        f" (1 s): retry 3 of 6 in 4 s: {REASON}; 2 more: 2 judging"
    )


def test_what_is_loaded_is_named_before_the_first_case_but_only_if_it_takes_long(clock):
    status = LiveStatus(clock)
    status.activities.add(Activity("starting the agent"))
    status.activities.add(Activity("loading Semantic Kernel"))
    clock.now += 0.1
    assert rows(status, 77) == [""]

    clock.now += 1
    assert rows(status, 77) == ["| loading Semantic Kernel"]


def test_what_is_loaded_beside_a_case_is_named_with_it(clock):
    status = LiveStatus(clock)
    status.activities.add(Activity("loading DeepEval"))
    status.start("greets", 1)

    assert rows(status, 77)[1] == "  greets (0 s): loading DeepEval"


def test_hours_are_shown(clock):
    status = LiveStatus(clock)
    status.start("greets", 1)
    clock.now += 3723

    assert re.search(r"12/60, 2 failed, 1:02:03$", rows(status, 77)[0])
