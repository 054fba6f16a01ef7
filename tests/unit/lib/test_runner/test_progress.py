"""The exact lines a person sees while tests run."""

import functools
import io
import re
import sys

import pytest

from holodeck.lib.reports.terminal import recap_failures
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.models.token_usage import TokenUsage
from support.results import a_result

RULE = "=" * 60


class Terminal(io.StringIO):
    def isatty(self):
        return True


def writing_to(stream, **env):
    """Runs a test with this stdout; pytest sets its own between fixtures and test."""

    def decorate(test):
        @functools.wraps(test)
        def wrapped(*args, **kwargs):
            with pytest.MonkeyPatch.context() as patch:
                for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
                    patch.delenv(name, raising=False)
                for name, value in env.items():
                    patch.setenv(name, value)
                patch.setattr(sys, "stdout", stream())
                test(*args, **kwargs)

        return wrapped

    return decorate


on_terminal = writing_to(Terminal, TERM="xterm")
on_pipe = writing_to(io.StringIO)


def after(*results, total=None, **options):
    progress = ProgressIndicator(len(results) if total is None else total, **options)
    for result in results:
        progress.start_test(result.test_name or "unnamed")
        progress.update(result)
    return progress


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome.PASSED, "[Test 1/5] PASS greets (1.23s)"),
        (Outcome.FAILED, "[Test 1/5] FAIL greets (1.23s)"),
        (Outcome.AGENT_ERROR, "[Test 1/5] ERROR greets (1.23s)"),
        (Outcome.METRIC_ERROR, "[Test 1/5] ERROR greets (1.23s)"),
        (Outcome.UNCHECKED, "[Test 1/5] UNCHECKED greets (1.23s)"),
        (Outcome.FLAKY, "[Test 1/5] FLAKY greets (1.23s)"),
        (Outcome.SKIPPED, "[Test 1/5] SKIPPED greets (1.23s)"),
    ],
)
@on_pipe
def test_off_a_terminal_a_finished_test_is_a_plain_line(outcome, line):
    assert after(a_result(outcome), total=5).get_progress_line() == line


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome.PASSED, "Test 1/5: \x1b[92m✓\x1b[0m greets (1.23s)"),
        (Outcome.FAILED, "Test 1/5: \x1b[91m✗\x1b[0m greets (1.23s)"),
        (Outcome.AGENT_ERROR, "Test 1/5: \x1b[93m⚠\x1b[0m greets (1.23s)"),
        (Outcome.UNCHECKED, "Test 1/5: \x1b[93m?\x1b[0m greets (1.23s)"),
    ],
)
@on_terminal
def test_on_a_terminal_a_finished_test_has_a_coloured_symbol(outcome, line):
    assert after(a_result(outcome), total=5).get_progress_line() == line


@writing_to(Terminal, TERM="xterm", NO_COLOR="1")
def test_without_colours_the_symbol_stays():
    assert after(a_result(), total=5).get_progress_line() == "Test 1/5: ✓ greets (1.23s)"


@on_pipe
def test_a_fast_test_shows_its_time_only_when_verbose():
    fast = a_result(execution_time_ms=999)

    assert after(fast).get_progress_line() == "[Test 1/1] PASS greets"
    assert after(fast, verbose=True).get_progress_line() == "[Test 1/1] PASS greets (999ms)"


@on_pipe
def test_a_test_without_a_name_shows_its_input():
    progress = after(a_result(test_name=None, test_input="Say  hello"))

    assert progress.get_progress_line() == "[Test 1/1] PASS 'Say hello' (1.23s)"


@on_terminal
def test_quiet_shows_only_the_line_of_the_last_test():
    result = a_result(Outcome.FAILED, errors=["boom"])
    progress = after(result, quiet=True)

    assert after(result, total=2, quiet=True).get_progress_line() == ""
    assert progress.get_progress_line() == after(result).get_progress_line()
    assert progress.get_reason_lines() == []
    assert progress.get_spinner_line() == ""
    assert progress.get_heartbeat_line() == ""


@on_pipe
def test_before_the_first_result_there_is_no_progress_line():
    assert ProgressIndicator(2).get_progress_line() == ""


@on_pipe
def test_the_reasons_of_a_failure_are_shown_at_once_or_at_the_end_but_not_twice():
    result = a_result(Outcome.FAILED, errors=["one", "two\nlines", "three", "four", "five"])

    assert after(result).get_reason_lines() == []
    assert after(result).get_failures().split("\n") == [
        "",
        "Failures:",
        "  FAIL greets",
        "    one",
        "    two lines",
        "    three",
        "    found: hello",
        "    … and 2 more reasons (--verbose shows all)",
    ]
    assert len(after(result, verbose=True).get_reason_lines()) == 5
    assert after(result, verbose=True).get_failures().split("\n")[2:] == ["  FAIL greets: one"]


@on_terminal
def test_names_and_reasons_cannot_steer_the_terminal():
    result = a_result(Outcome.FAILED, test_name="a\x1b[2Jb\r\nc", errors=["\x1b]0;owned\x07"])
    progress = after(result, verbose=True)

    assert "a\\x1b[2Jb c" in progress.get_progress_line()
    assert progress.get_reason_lines() == ["    \\x1b]0;owned\\x07"]


@on_pipe
def test_off_a_terminal_nothing_spins():
    progress = ProgressIndicator(5)
    progress.start_test("first")

    assert (progress.get_spinner_line(), progress.get_live_line()) == ("", "")


@on_terminal
def test_the_spinner_turns_on_a_terminal():
    progress = ProgressIndicator(5)

    lines = [progress.get_spinner_line() for _ in range(11)]

    assert lines[:2] == ["⠋ Test 1/5: Running...", "⠙ Test 1/5: Running..."]
    assert lines[10] == lines[0]


@on_terminal
def test_the_spinner_never_counts_past_the_last_test():
    assert "Test 1/1" in after(a_result()).get_spinner_line()


@on_terminal
def test_a_skipped_test_does_not_end_one_that_runs():
    progress = ProgressIndicator(3)
    progress.start_test("slow")
    progress.update(a_result(Outcome.SKIPPED, test_name="closed"))

    assert "slow" in progress.get_live_line()


@on_terminal
def test_the_live_line_says_what_runs_and_how_many_more():
    progress = ProgressIndicator(5)

    assert progress.get_live_line() == ""
    progress.start_test("first")
    bar, running = progress.get_live_line().split("\n")
    assert re.fullmatch(r"[⠋⠙] ─{30} 0/5, 0:0\d", bar)
    assert re.fullmatch(r"  first \(\d s\)", running)
    progress.start_test("greets")
    progress.start_test("third")
    assert re.search(r"first \(\d+ s\); 2 more$", progress.get_live_line())
    progress.update(a_result())
    assert re.search(r"first \(\d+ s\); 1 more$", progress.get_live_line())


@writing_to(Terminal, TERM="xterm", COLUMNS="80")
def test_a_long_name_does_not_push_out_how_many_more_run():
    progress = ProgressIndicator(12)
    for number in range(10):
        progress.start_test(
            f"test {number} with a name that alone would fill the whole second line"
        )

    line = progress.get_live_line().split("\n")[1]

    assert len(line) == 77
    assert re.search(r"test 0 with .*… \(\d+ s\); 9 more$", line)


@writing_to(Terminal, TERM="xterm", COLUMNS="40", NO_COLOR="1")
def test_rules_and_failures_fit_a_narrow_terminal():
    result = a_result(Outcome.FAILED, errors=["so long a reason " * 9], location="agent.yaml:4:5")
    progress = after(result, quiet=True)

    lines = [*progress.get_failures().splitlines(), *progress.get_summary().splitlines()]

    assert max(map(len, lines)) == 40
    assert lines[:3] == ["", "Failures:", "  ✗ greets: so long a reason so long a …"]
    assert after(result).get_failures().split("\n")[2:5] == [
        "  ✗ greets (agent.yaml:4)",
        "    so long a reason so long a reason so",
        "    long a reason so long a reason so",
    ]


@on_pipe
def test_the_heartbeat_says_how_far_the_run_is():
    assert after(a_result(), total=3).get_heartbeat_line() == "still running: 1 of 3 done, 0 s"


def lines_of(summary):
    return [line for line in summary.split("\n") if not line.startswith("  Duration: ")]


@on_pipe
def test_the_summary_of_a_good_run():
    summary = after(a_result()).get_summary()

    assert lines_of(summary) == ["", RULE, "Test Results: 1/1 passed (100.0%)", RULE]
    assert "\n  Duration: 0.0" in summary


@on_pipe
def test_the_summary_counts_each_way_of_not_passing():
    progress = after(
        a_result(),
        a_result(Outcome.FAILED),
        a_result(Outcome.AGENT_ERROR),
        a_result(Outcome.METRIC_ERROR),
        a_result(Outcome.UNCHECKED),
        total=6,
    )

    assert lines_of(progress.get_summary()) == [
        "",
        RULE,
        "Test Results: 1/5 passed (20.0%)",
        "  Failed: 1",
        "  Errors: 2",
        "  Unchecked: 1",
        "  Not run: 1",
        RULE,
    ]
    assert (progress.passed, progress.failed) == (1, 4)


@on_terminal
def test_the_summary_on_a_terminal_begins_with_a_symbol():
    assert "\n\x1b[92m✓\x1b[0m Test Results: 1/1" in after(a_result()).get_summary()
    failed = after(a_result(Outcome.FAILED))
    assert "\n\x1b[91m✗\x1b[0m Test Results: 0/1" in failed.get_summary()
    broken = after(a_result(Outcome.AGENT_ERROR))
    assert "\n\x1b[93m⚠\x1b[0m Test Results: 0/1" in broken.get_summary()


@on_terminal
def test_a_long_reason_is_broken_between_words():
    words = ["responded"] * 30
    failed = a_result(Outcome.FAILED, errors=[" ".join(words)])

    lines = after(failed, verbose=True).get_reason_lines()

    assert " ".join(lines).split() == words
    assert max(map(len, lines)) <= 80


@on_pipe
def test_the_answer_of_one_of_several_tests_names_the_test():
    failed = [
        a_result(Outcome.FAILED, test_name=name, errors=["no"], agent_response=f"{name}!")
        for name in ("one", "two")
    ]

    assert recap_failures(failed, brief=False).split("\n")[2:] == [
        "  FAIL 2 cases: one, two",
        "    no",
        "    found (one): one!",
    ]


@on_pipe
def test_the_summary_adds_up_the_tokens():
    spent = a_result(token_usage=TokenUsage.of(10, 5))

    assert "  Tokens: 30 (20 prompt, 10 completion)" in after(spent, spent).get_summary()


@on_pipe
def test_a_run_without_tests_says_so():
    assert ProgressIndicator(0).get_summary() == "No tests to execute"


@on_pipe
def test_verbose_shows_every_metric_in_words_off_a_terminal():
    rows = [
        MetricResult(metric_name="bleu", score=0.9, threshold=0.8, passed=True, reasoning="close"),
        MetricResult(metric_name="rouge", score=0.0, threshold=0.5, passed=False),
        MetricResult(metric_name="f1", score=0.4),
        MetricResult(metric_name="meteor", error="no\ndata"),
    ]
    summary = after(
        a_result(Outcome.METRIC_ERROR, metric_results=rows, test_name=None), verbose=True
    ).get_summary()

    assert summary.split("Test Details:\n")[1].split("\n") == [
        "  ERROR Test 1 (1234ms)",
        "      PASS bleu: 0.90 (threshold: 0.80)",
        "        Reasoning: close",
        "      FAIL rouge: 0.00 (threshold: 0.50)",
        "      - f1: 0.40",
        "      ERROR meteor: ERROR: no data",
        RULE,
    ]


@on_pipe
def test_as_text_it_is_the_progress_and_in_the_end_the_summary():
    assert str(after(a_result(), total=2)) == "[Test 1/2] PASS greets (1.23s)"
    assert "Test Results: 1/1" in str(after(a_result()))


def test_the_duration_is_read_from_one_clock():
    now = iter([1000.0, 1007.5])

    summary = after(a_result(), clock=lambda: next(now)).get_summary()

    assert "Duration: 7.50s" in summary
