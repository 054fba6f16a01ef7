"""What stands at the end of a run: each failure by name, in lines that fit."""

import json

import pytest

from support.checks import assert_plain
from support.cli import run_in_pty

RULE = "=" * 60


def case(name, said, wanted="hello", **fields):
    checks = {"evaluations": [{"metric": "contains", "value": wanted}]}
    return {"name": name, "input": said} | checks | fields


@pytest.mark.parametrize("flag", ["--quiet", "--no-record"])
def test_quiet_or_not_each_failure_is_named_at_the_end_with_its_reason(write_bot, bot_dir, flag):
    write_bot(test_cases=[case("greets", "hello"), case("errs", "bye"), case("breaks", "raise no")])

    ran = bot_dir.run("test", flag)

    assert_plain(ran)
    head, _, recap = ran.stdout.partition("\nFailures:\n")
    assert recap.split(f"\n\n{RULE}\n")[0].splitlines() == [
        "  FAIL errs: contains: 0.00: did not find 'hello'; got 'bye'",
        "  ERROR breaks: RuntimeError: no (bot.py:7: raise RuntimeError(rest))",
    ]
    assert ("[Test 2/3] FAIL errs" in head) is (flag != "--quiet")


def test_a_run_without_failures_has_no_recap(write_bot, bot_dir):
    write_bot(test_cases=[case("greets", "hello")])

    assert "Failures:" not in bot_dir.run("test").stdout


def test_the_same_error_in_60_cases_is_told_once_at_the_end(write_bot, bot_dir):
    write_bot(test_cases=[case(f"n{number}", "raise no") for number in range(60)])

    ran = bot_dir.run("test", "--quiet")

    assert ran.stdout.count("RuntimeError: no") == 1
    assert "    same error in 59 more cases: n1, n2, n3, " in ran.stdout


def test_cases_that_fail_for_the_same_reason_are_named_one_by_one(write_bot, bot_dir):
    write_bot(test_cases=[case("one", "bye"), case("two", "bye")])

    ran = bot_dir.run("test", "--quiet")

    assert ran.stdout.count("did not find 'hello'") == 2
    assert "same error" not in ran.stdout


def test_a_case_without_a_name_shows_its_input(write_bot, bot_dir):
    long = "hello " + "and then " * 20
    write_bot(test_cases=[case(None, "hello"), case(None, long), case(None, "bye")])
    text = (bot_dir.path / "agent.yaml").read_text().replace("name: null\n  ", "")
    bot_dir.write("agent.yaml", text)

    ran = bot_dir.run("test")

    assert "[Test 1/3] PASS 'hello'\n" in ran.stdout
    assert f"[Test 2/3] PASS '{long[:49]}…'\n" in ran.stdout
    assert "  FAIL 'bye': contains: 0.00" in ran.stdout


def test_on_a_terminal_of_40_columns_no_line_of_the_end_wraps(write_bot, bot_dir):
    name = "a name that is far too long for so small a window"
    write_bot(test_cases=[case(name, "raise no"), case(f"{name} 2", "raise no")])

    ran = run_in_pty("test", "--quiet", cwd=bot_dir.path, cols=40)

    lines = [line.rstrip() for line in ran.screen.splitlines()]
    assert lines.count("=" * 40) == 2
    assert [line for line in lines if line.startswith("    same error in 1 more case: ")]
    assert lines[lines.index("Failures:") + 3] == ""


def test_one_is_never_plural(write_bot, bot_dir):
    expected = [{"name": "look", "count": 1}]
    fails = case("errs", "bye", expected_tools=expected)
    write_bot(test_cases=[case("greets", "hello"), fails, case("waits", "hello", skip="later")])

    bot_dir.run("test", "-o", "r.md", "-o", "r.json")

    report = (bot_dir.path / "r.md").read_text()
    assert "**1 test passed** | ❌ **1 test failed** | ⏭️ **1 test skipped**" in report
    assert "look, 1 time" in report
    assert " 1 tests" not in report
    assert " 1 times" not in report
    assert len(json.loads((bot_dir.path / "r.json").read_text())["results"]) == 3
