"""What stands at the end of a run: each failure by name, in lines that fit."""

import json
import re

import pytest

from support.checks import assert_plain
from support.cli import run_in_pty

RULE = "=" * 60


def case(name, said, wanted="hello", **fields):
    checks = {"evaluations": [{"metric": "contains", "value": wanted}]}
    return {"name": name, "input": said} | checks | fields


def recap_of(ran):
    """The lines between the results and the summary, without the numbers of lines in the YAML."""
    recap = ran.stdout.partition("\nFailures:\n")[2].partition(f"\n\n{RULE}\n")[0]
    return re.sub(r"yaml:\d+", "yaml:N", recap).split("\n")


def test_quiet_names_each_failure_on_one_line_with_its_reason(write_bot, bot_dir):
    write_bot(test_cases=[case("greets", "hello"), case("errs", "bye"), case("breaks", "raise no")])

    ran = bot_dir.run("test", "--quiet")

    assert_plain(ran)
    assert recap_of(ran) == [
        "  FAIL errs (agent.yaml:N): contains: 0.00: did not find 'hello'; got 'bye'",
        "  ERROR breaks (agent.yaml:N): RuntimeError: no (bot.py:7: raise RuntimeError(rest))",
    ]


def test_what_was_expected_and_found_is_told_once_and_at_the_end(write_bot, bot_dir):
    long = "bye " * 20
    cases = [case("errs", "bye", ground_truth="hello"), case("rambles", long, ground_truth="hi")]
    write_bot(test_cases=[*cases, case("breaks", "raise no")])

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert ran.stdout.startswith("[Test 1/3] FAIL errs")
    assert ran.stdout.count("got 'bye'") == ran.stdout.count("RuntimeError: no") == 1
    assert recap_of(ran) == [
        "  FAIL errs (agent.yaml:N)",
        "    contains: 0.00: did not find 'hello'; got 'bye'",
        "  FAIL rambles (agent.yaml:N)",
        f"    contains: 0.00: did not find 'hello'; got {long!r}",
        "    expected: hi",
        "  ERROR breaks (agent.yaml:N)",
        "    RuntimeError: no (bot.py:7: raise RuntimeError(rest))",
        '        6 | if word == "raise":',
        "      > 7 |     raise RuntimeError(rest)",
    ]


def test_a_case_that_is_graded_again_is_at_the_line_where_it_is_now(write_bot, bot_dir):
    write_bot(test_cases=[case("errs", "bye", repeat=2)])
    bot_dir.run("test")
    file = bot_dir.path / "agent.yaml"
    file.write_text(f"# moved\n{file.read_text()}")

    graded = bot_dir.run("score", "-o", "r.json")

    line = 1 + next(at for at, text in enumerate(file.read_text().split("\n")) if "errs" in text)
    [result] = json.loads((bot_dir.path / "r.json").read_text())["results"]
    assert result["location"].startswith(f"agent.yaml:{line}:")
    assert recap_of(graded)[0] == "  FAIL errs (agent.yaml:N)"


def test_a_run_without_failures_has_no_recap(write_bot, bot_dir):
    write_bot(test_cases=[case("greets", "hello")])

    assert "Failures:" not in bot_dir.run("test").stdout


@pytest.mark.parametrize(
    ("flag", "lines"),
    [
        ("--quiet", ["  ERROR n0 (agent.yaml:N) and 59 more: RuntimeError: no (bot.py:7: "]),
        (
            "--no-record",
            [
                "  ERROR 60 cases: n0 (agent.yaml:N), n1 (agent.yaml:N), n2 (agent.yaml:N) and 57 more",  # noqa: E501
                "    RuntimeError: no (bot.py:7: ",
                '        6 | if word == "raise":',
                "      > 7 |     ",
            ],
        ),
    ],
)
def test_the_same_error_in_60_cases_is_told_once_at_the_end(write_bot, bot_dir, flag, lines):
    write_bot(test_cases=[case(f"n{number}", "raise no") for number in range(60)])

    ran = bot_dir.run("test", flag)

    assert [line.partition("raise ")[0] for line in recap_of(ran)] == lines


def test_cases_share_a_line_only_if_all_their_reasons_are_equal(write_bot, bot_dir):
    write_bot(test_cases=[case("one", "bye"), case("two", "bye"), case("three", "goodbye")])

    ran = bot_dir.run("test", "--quiet")

    assert [line.partition(": ")[0] for line in recap_of(ran)] == [
        "  FAIL one (agent.yaml:N) and 1 more",
        "  FAIL three (agent.yaml:N)",
    ]


def test_a_case_without_a_name_shows_its_input(write_bot, bot_dir):
    long = "hello " + "and then " * 20
    write_bot(test_cases=[case(None, "hello"), case(None, long), case(None, "bye")])
    text = (bot_dir.path / "agent.yaml").read_text().replace("name: null\n  ", "")
    bot_dir.write("agent.yaml", text)

    ran = bot_dir.run("test")

    assert "[Test 1/3] PASS 'hello'\n" in ran.stdout
    assert f"[Test 2/3] PASS '{long[:49]}…'\n" in ran.stdout
    assert recap_of(ran)[0] == "  FAIL 'bye' (agent.yaml:N)"


@pytest.mark.parametrize("flag", ["--quiet", "--no-record"])
def test_on_a_terminal_of_40_columns_no_line_of_the_end_wraps(write_bot, bot_dir, flag):
    name = "a name that is far too long for so small a window"
    write_bot(test_cases=[case(name, "raise no"), case(f"{name} 2", "raise no")])

    ran = run_in_pty("test", flag, cwd=bot_dir.path, cols=40)

    lines = [line.rstrip() for line in ran.screen.partition("Failures:")[2].splitlines()]
    assert lines.count("=" * 40) == 2
    recap = lines[1 : lines.index("=" * 40) - 1]
    assert all(line.startswith(("  ⚠ ", "    ")) for line in recap)
    assert "RuntimeError: no" in " ".join(map(str.strip, recap)) or flag == "--quiet"
    assert len(recap) == 1 or flag == "--no-record"


def test_one_is_never_plural(write_bot, bot_dir):
    expected = [{"name": "look", "count": 1}]
    fails = case("errs", "bye", expected_tools=expected)
    write_bot(test_cases=[case("greets", "hello"), fails, case("waits", "hello", skip="later")])

    bot_dir.run("test", "-o", "r.md", "-o", "r.json")

    report = (bot_dir.path / "r.md").read_text()
    assert "**1 of 2 tests passed** (50.0%): 1 failed, 1 skipped" in report
    assert "## Not Passed: 1 Test\n" in report
    assert "look, 1 time" in report
    assert " 1 tests" not in report
    assert " 1 times" not in report
    assert len(json.loads((bot_dir.path / "r.json").read_text())["results"]) == 3
