"""`--fail-on regression` with a baseline: what keeps failing decides, noise does not."""

import json

import pytest

from support.checks import assert_one_error

BOT = """
import pathlib

STATE = pathlib.Path(__file__).with_name("asked.json")

def answer(message):
    import json
    asked = json.loads(STATE.read_text()) if STATE.exists() else {}
    asked[message] = asked.get(message, 0) + 1
    STATE.write_text(json.dumps(asked))
    wrong = json.loads(pathlib.Path(__file__).with_name("wrong.json").read_text())
    return "bye" if asked[message] in wrong.get(message, []) else "hello"
"""

NO_ANSWER = """
def answer(message):
    if message == "two":
        raise RuntimeError("no")
    return true_answer(message)
"""
LAST_ANSWER = """
def answer(message):
    if message == "three":
        globals().pop("answer")
    return true_answer(message)
"""


@pytest.fixture
def folder(write_bot, bot_dir):
    """Three cases; `wrong.json` says in which of its runs an agent answers a case wrongly."""
    bot_dir.write("bot.py", BOT)
    write_bot(test_cases=[case(name) for name in ("one", "two", "three")])
    return bot_dir


def case(name):
    checks = [{"metric": "contains", "value": "hello"}]
    return {"name": name, "input": name, "evaluations": checks}


def blessed(folder, wrong, runs=1):
    """Run and bless; the cases are asked again from the next run on."""
    folder.write("wrong.json", json.dumps(wrong))
    for _ in range(runs):
        folder.run("test")
    assert folder.run("bless").code == 0
    return folder


def gated(folder, *more):
    return folder.run("test", "-q", "--baseline", "--fail-on", "regression", *more)


def test_a_case_that_keeps_failing_is_a_regression(folder):
    ran = gated(blessed(folder, {"two": [2, 3, 4, 5]}))

    assert ran.code == 1
    assert "1 regression\n  two: regression, failed in 3 of 3 further runs" in ran.stdout


def test_a_case_that_fails_once_is_no_regression(folder):
    ran = gated(blessed(folder, {"two": [2]}))

    assert ran.code == 0
    assert "0 regressions\n  two: flaky, failed in 0 of 3 further runs" in ran.stdout


def test_most_of_the_further_runs_decide(folder):
    assert gated(blessed(folder, {"two": [2, 3, 5]})).code == 1


def test_a_case_that_failed_in_its_history_must_fail_each_time(folder):
    ran = gated(blessed(folder, {"two": [1, 4, 5, 6]}, runs=3))

    assert ran.code == 0
    assert "two: flaky, failed in 2 of 3 further runs" in ran.stdout


def test_what_failed_before_does_not_decide_and_is_named(folder):
    ran = gated(blessed(folder, {"one": [1, 2]}))

    assert ran.code == 0
    assert "a case failed in the baseline, too: one" in ran.stdout


def test_a_renamed_case_that_fails_is_not_excused(folder, write_bot):
    blessed(folder, {"renamed": [1]})
    write_bot(test_cases=[case(name) for name in ("one", "renamed", "three")])

    ran = gated(folder)

    assert ran.code == 1
    assert "a new case fails: renamed" in ran.stdout
    assert "a case is gone that passed in the baseline: two" in ran.stdout


def test_a_case_that_passed_when_it_was_blessed_is_not_excused_by_older_failures(folder):
    ran = gated(blessed(folder, {"two": [1, 2, 4, 5, 6, 7]}, runs=3))

    assert ran.code == 1
    assert "two: regression, failed in 3 of 3 further runs" in ran.stdout


def test_a_case_that_had_no_verdict_when_it_was_blessed_is_not_excused(folder):
    folder.write("bot.py", f"{BOT}\ntrue_answer = answer\n{NO_ANSWER}")
    blessed(folder, {"two": [1]})
    folder.write("bot.py", BOT)

    ran = gated(folder)

    assert ran.code == 1
    assert "a new case fails: two" in ran.stdout


def test_further_runs_that_cannot_begin_confirm_nothing_and_excuse_nothing(folder):
    blessed(folder, {"two": [2]})
    folder.write("bot.py", f"{BOT}\ntrue_answer = answer\n{LAST_ANSWER}")

    ran = gated(folder, "-j", "1")

    assert ran.code == 1
    assert "two: not confirmed" in ran.stdout
    assert "not all further runs took place: " in ran.stdout


def test_an_agent_that_cannot_be_run_is_not_green(folder):
    blessed(folder, {})
    folder.write("bot.py", "def answer(message):\n    raise RuntimeError('no')\n")

    assert gated(folder).code == 3


def test_a_run_that_is_not_whole_is_not_green(folder):
    ran = gated(blessed(folder, {"one": [2]}), "-x", "-j", "1")

    assert ran.code == 1
    assert "because not all cases ran" in ran.stdout


def test_the_comparison_is_in_the_report_and_without_fail_on_each_failure_counts(folder):
    blessed(folder, {"two": [2]})

    ran = folder.run("test", "--baseline", "--confirm", "1", "-o", "out.json")

    assert ran.code == 1
    [note] = json.loads((folder.path / "out.json").read_text())["notes"]
    assert note.split("\n")[1:] == ["two: flaky, failed in 0 of 1 further run"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fail-on", "regression"], "add --baseline for an earlier run"),
        (["--confirm", "3"], "add --baseline"),
        (["--baseline", "--against", "agent.yaml"], "are two comparisons"),
    ],
)
def test_options_that_lack_a_baseline_are_refused(folder, arguments, said):
    folder.write("wrong.json", "{}")

    ran = folder.run("test", *arguments)

    assert ran.code == 2
    assert said in ran.stderr


def test_a_missing_baseline_is_an_error_before_anything_runs(folder):
    folder.write("wrong.json", "{}")

    assert_one_error(gated(folder), 2, "there is no baseline; `holodeck bless`")
    assert not (folder.path / "asked.json").exists()


def test_a_case_that_passed_and_is_now_skipped_is_named(folder, write_bot):
    blessed(folder, {})
    cases = [case("one"), case("two") | {"skip": "it fails"}, case("three")]
    write_bot(test_cases=cases)

    ran = gated(folder)

    assert ran.code == 0
    assert "0 regressions\n  a case is skipped that passed in the baseline: two" in ran.stdout


def test_a_case_that_passes_with_fewer_or_lower_checks_is_named(folder, write_bot):
    similar = {"metric": "f1_score", "threshold": 0.8}
    checks = [*case("one")["evaluations"], similar, {"metric": "latency", "max_ms": 90_000}]
    one = case("one") | {"ground_truth": "hello", "evaluations": checks}
    write_bot(test_cases=[one, case("two")])
    blessed(folder, {})
    weaker = {**one, "evaluations": [checks[0], similar | {"threshold": 0.5}]}
    write_bot(test_cases=[weaker, case("two")])

    ran = gated(folder)

    assert ran.code == 0
    assert (
        "  one: passes with weaker checks than in the baseline:"
        " 'f1_score' from 0.5 on, not 0.8, without 'latency'"
    ) in ran.stdout
    assert "two: passes" not in ran.stdout


def test_a_case_that_passes_after_its_check_was_rewritten_is_named(folder, write_bot):
    blessed(folder, {})
    easy = case("two") | {"evaluations": [{"metric": "contains", "value": "h"}]}
    write_bot(test_cases=[case("one"), easy, case("three")])

    ran = gated(folder)

    assert ran.code == 0
    assert "a case passes that is not written as in the baseline: two" in ran.stdout


def test_where_nothing_changed_nothing_but_the_count_is_said(folder):
    ran = gated(blessed(folder, {}))

    assert (ran.code, ran.stdout.strip().splitlines()[-1].strip()[-13:]) == (0, "0 regressions")
