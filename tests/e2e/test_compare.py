"""`holodeck compare` and `holodeck bless`: a run beside an earlier one; nothing is run."""

import json
import subprocess

import pytest

from support.checks import assert_one_error
from support.html_page import HtmlPage

BOT = """
import pathlib

def answer(message):
    return pathlib.Path(__file__).with_name("prefix.txt").read_text() + message
"""


def case(said, wanted="hello", **fields):
    return {"input": said, "evaluations": [{"metric": "contains", "value": wanted}]} | fields


CASES = [
    case("hello", "hello", name="stays"),
    case("hi", "hi", name="breaks"),
    case("hello to you"),
    case("bye", "Well", name="heals"),
]


@pytest.fixture
def folder(write_bot, bot_dir):
    """An agent whose run 1 is the baseline, and in whose run 2 one case broke and one healed."""
    bot_dir.write("bot.py", BOT)
    bot_dir.write("prefix.txt", "")
    write_bot(test_cases=CASES)
    bot_dir.run("test")
    assert bot_dir.run("bless").code == 0
    bot_dir.write("prefix.txt", "Well, ")
    bot_dir.write("bot.py", BOT.replace(" + message", " + message.replace('hi', 'ho')"))
    bot_dir.run("test")
    return bot_dir


def test_flips_are_told_and_the_unnamed_case_is_paired_by_its_input(folder):
    ran = folder.run("compare")

    assert ran.code == 0
    assert "Passed on both: 2" in ran.stdout
    assert "Passed only on A (regressions): 1" in ran.stdout
    assert "Passed only on B: 1" in ran.stdout
    assert "  breaks\n    B: contains: 0.00: did not find 'hi'; got 'Well, ho'" in ran.stdout
    assert "Only in" not in ran.stdout


def test_only_regressions_fail_and_only_on_request(folder):
    assert folder.run("compare", "--fail-on", "regression").code == 1
    folder.write("prefix.txt", "")
    folder.write("bot.py", BOT)
    folder.run("test")
    assert folder.run("compare", "--fail-on", "regression").code == 0


def test_a_run_is_not_compared_with_itself_when_the_next_one_recorded_nothing(write_bot, bot_dir):
    bot_dir.write("bot.py", BOT)
    bot_dir.write("prefix.txt", "")
    write_bot(test_cases=CASES[:1])
    bot_dir.run("test")
    bot_dir.run("bless")
    bot_dir.write("bot.py", "import nothing_here\n")
    assert bot_dir.run("test").code == 2

    ran = bot_dir.run("compare", "--fail-on", "regression")

    assert_one_error(ran, 2, "HEAD: is the run that BASE is, too", "recorded nothing")


def test_a_run_older_than_the_baseline_is_not_compared_with_it(folder):
    baseline = json.loads((folder.path / "baseline.json").read_text())
    baseline |= {"run": "of-a-colleague", "timestamp": "2999-01-01T00:00:00+00:00"}
    folder.write("baseline.json", json.dumps(baseline))

    ran = folder.run("compare", "--fail-on", "regression")

    assert_one_error(ran, 2, "is older than BASE", "2999-01-01T00:00:00+00:00", "of-a-colleague")


def test_the_names_last_and_previous_are_shown_with_their_runs_and_times(folder):
    records = (folder.path / ".holodeck" / "runs").glob("*/*.jsonl")
    newest, previous = sorted((record.parent.name for record in records), reverse=True)

    ran = folder.run("compare", "previous", "last")

    assert f"A: greeter (run {previous} of 2" in ran.stdout
    assert f"B: greeter (run {newest} of 2" in ran.stdout


def test_the_json_holds_pairs_changes_and_intervals(folder):
    ran = folder.run("compare", "--format", "json")

    found = json.loads(ran.stdout)
    assert [one["verdict"] for one in found["pairs"]] == [
        "both",
        "only_first",
        "both",
        "only_second",
    ]
    assert found["changes"] == ["backend: changed"]
    low, high = found["scores"]["contains"]["interval"]
    assert low <= 0 <= high


def test_a_baseline_holds_no_answer_and_no_input(folder):
    text = (folder.path / "baseline.json").read_text()

    assert "hello" not in text
    assert json.loads(text)["kind"] == "holodeck-baseline"


def test_new_and_vanished_cases_are_listed_and_belong_to_no_pair(folder, write_bot):
    write_bot(test_cases=[*CASES[1:], case("hello", name="new")])
    folder.run("test")

    ran = folder.run("compare")

    assert "Only in A: stays\nOnly in B: new\n" in ran.stdout
    assert "Passed on both: 1" in ran.stdout


def test_two_reports_in_json_are_compared_wherever_they_are(folder):
    folder.run("report", "last", "-o", "head.json")

    ran = folder.run(
        "compare", "baseline.json", "head.json", "-o", "changes.md", "-o", "changes.html"
    )

    assert "Passed only on A (regressions): 1" in ran.stdout
    assert (folder.path / "changes.md").read_text().startswith("# Comparison of Two Runs\n")
    page = HtmlPage((folder.path / "changes.html").read_text())
    page.require_harmless()
    assert (page.index["kind"], page.index["verdict"]) == ("comparison", "regressions")
    assert [one["outcome"] for one in page.index["rows"]] == [
        "both",
        "only_first",
        "both",
        "only_second",
    ]
    assert page.cases[1]["second"]["agent_response"] == "Well, ho"
    assert "first" not in page.cases[1]


def test_main_is_the_baseline_on_that_branch(folder):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], cwd=folder.path, check=True)
    (folder.path / "baseline.json").unlink()

    ran = folder.run("compare", "main")

    assert "A: greeter (baseline.json on main" in ran.stdout


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("nonsense", "is neither a file nor a run recorded in"),
        ("main", "git finds no baseline.json on the branch main"),
        ("agent.json", "is neither a baseline nor a JSON report"),
    ],
)
def test_what_is_no_run_is_one_clear_error(folder, base, said):
    folder.write("agent.json", "{}")

    assert_one_error(folder.run("compare", base), 2, said)


def test_without_a_baseline_the_error_says_how_to_make_one(write_bot, bot_dir):
    write_bot(test_cases=[case("hello")])
    bot_dir.run("test")

    assert_one_error(bot_dir.run("compare"), 2, "`holodeck bless` makes the last run the baseline")


def test_a_run_that_is_not_whole_is_not_blessed(write_bot, bot_dir):
    write_bot(test_cases=[case("no"), case("hello")])
    bot_dir.run("test", "-x", "-j", "1")

    assert_one_error(bot_dir.run("bless"), 2, "cannot be the baseline", "--resume")
    assert not (bot_dir.path / "baseline.json").exists()


def test_a_baseline_counts_how_often_each_case_passed(write_bot, bot_dir):
    bot_dir.write(
        "bot.py",
        "import pathlib\n\n\ndef answer(message):\n"
        "    seen = pathlib.Path(__file__).with_name('seen.txt')\n"
        "    seen.write_text(seen.read_text() + 'x' if seen.exists() else 'x')\n"
        "    return 'hello' if len(seen.read_text()) % 3 else 'bye'\n",
    )
    write_bot(test_cases=[case("greet", name="flickers")])
    for _ in range(3):
        bot_dir.run("test")

    bot_dir.run("bless", "last")

    [found] = json.loads((bot_dir.path / "baseline.json").read_text())["cases"]
    assert (found["passed"], found["ran"], found["outcome"]) == (2, 3, "failed")
