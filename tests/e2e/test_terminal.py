"""What a person sees on a terminal, and what a log gets instead."""

import pytest

from fakes import case, run_in_pty, start_in_pty
from holodeck.lib.ui import ANSIColors, SpinnerMixin
from support.checks import assert_plain
from support.cli import without_durations

CASES = [case("good", "hello", contains="hello"), case("bad", "hello", contains="goodbye")]
BAR, LIVE = "─ 0/2, 0:0", "  good ("


@pytest.fixture
def slow_bot(bot_dir, write_bot):
    """The first case takes long enough to be seen."""
    write_bot(test_cases=[case("good", "sleep 0.4", contains="sleep"), CASES[1]])
    return bot_dir.path


def test_a_terminal_shows_a_live_line_and_keeps_the_finished_ones(slow_bot):
    ran = run_in_pty("test", cwd=slow_bot)
    raw = ran.raw.decode()

    assert ran.code == 1
    assert BAR in raw
    assert LIVE in raw
    assert len([char for char in SpinnerMixin.SPINNER_CHARS if char in raw]) > 1
    assert f"{ANSIColors.GREEN}✓" in raw
    assert f"{ANSIColors.RED}✗" in raw
    lines = ran.screen.splitlines()
    assert lines[0].startswith("Test 1/2: ✓ good")
    assert lines[1].startswith("Test 2/2: ✗ bad")
    assert "─" not in ran.screen
    assert raw.count("\x1b[?25l") == raw.count("\x1b[?25h") == 1


def test_colours_can_be_forbidden_on_a_terminal_without_losing_the_symbols(slow_bot):
    ran = run_in_pty("test", cwd=slow_bot, env={"NO_COLOR": "1"})

    assert b"\x1b[9" not in ran.raw
    assert LIVE in ran.raw.decode()
    assert "✓ good" in ran.screen


def test_a_dumb_terminal_gets_no_sequences_at_all(slow_bot):
    ran = run_in_pty("test", cwd=slow_bot, env={"TERM": "dumb"})

    assert b"\x1b" not in ran.raw
    assert "✓ good" in ran.screen


def test_a_narrow_terminal_never_wraps_the_live_line(bot_dir, write_bot):
    long = "a name that is much longer than the forty columns of this terminal"
    write_bot(test_cases=[case(long, "sleep 0.4", contains="sleep")])

    ran = run_in_pty("test", cwd=bot_dir.path, cols=40)

    assert ran.code == 0
    assert "─ 0/1, 0:0" in ran.raw.decode()
    assert "─" not in ran.screen
    assert ran.screen.replace("\n", "").startswith(f"Test 1/1: ✓ {long}")


def test_quiet_shows_failures_and_summary_alone_on_a_terminal_too(slow_bot):
    ran = run_in_pty("test", "--quiet", cwd=slow_bot)

    assert "good" not in ran.raw.decode().replace("goodbye", "")
    assert ran.screen.split("\n")[:3] == [
        "", "Failures:",
        "  ✗ bad (agent.yaml:9): contains: 0.00: did not find 'goodbye'; got 'hello'",
    ]  # fmt: skip
    assert "─" not in ran.raw.decode()
    assert "Test Results: 1/2 passed (50.0%)" in ran.screen


def test_off_a_terminal_there_are_words_and_no_control_characters(bot_dir, write_bot):
    write_bot(test_cases=CASES)

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert without_durations(ran.stdout).startswith("[Test 1/2] PASS good\n[Test 2/2] FAIL bad\n")
    assert ran.stderr == ""


def test_verbose_shows_every_metric_of_every_test(bot_dir, write_bot):
    write_bot(test_cases=CASES)

    ran = bot_dir.run("test", "--verbose")

    assert_plain(ran)
    details = ran.stdout.partition("Test Details:")[2]
    assert "good" in details
    assert details.count("contains: ") == 2
    assert "1.00" in details


def test_colours_can_be_asked_for_where_there_is_no_terminal(bot_dir, write_bot):
    write_bot(test_cases=CASES)

    ran = bot_dir.run("test", "--verbose", env={"FORCE_COLOR": "1"})

    assert f"[Test 1/2] {ANSIColors.GREEN}PASS{ANSIColors.RESET} good" in ran.stdout
    assert f"{ANSIColors.RED}FAIL{ANSIColors.RESET} bad" in ran.stdout
    assert "\r" not in ran.stdout
    assert ran.stdout.count("\x1b") == 2 * ran.stdout.count(ANSIColors.RESET)


def test_a_failing_test_shows_its_reason_if_verbose_while_the_next_one_runs(bot_dir, write_bot):
    write_bot(test_cases=[CASES[1], case("slow", "sleep 30", contains="sleep")])

    with start_in_pty("test", "--verbose", cwd=bot_dir.path) as run:
        run.read_until("did not find 'goodbye'; got 'hello'")
        run.read_until("─ 1/2, 1 failed, 0:0")
        run.read_until("  slow (")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "slow (" not in ran.screen


def test_what_takes_long_to_load_is_named_instead_of_a_blank_screen(bot_dir, write_bot):
    write_bot(test_cases=CASES)
    bot_dir.write(
        "bot.py", "import time\ntime.sleep(60)\n\ndef answer(message):\n    return message\n"
    )

    with start_in_pty("test", cwd=bot_dir.path) as run:
        run.read_until(" loading bot.py")
        run.interrupt()
        ran = run.finish()

    assert "loading" not in ran.screen


def test_a_terminal_without_unicode_gets_ascii_alone(slow_bot):
    ran = run_in_pty("test", cwd=slow_bot, env={"PYTHONIOENCODING": "ascii"})

    assert ran.raw.isascii()
    assert b"- 0/2, 0:0" in ran.raw
    assert "Test 2/2: FAIL bad" in ran.screen
    assert "\\u" not in ran.screen
