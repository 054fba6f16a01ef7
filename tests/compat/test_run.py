"""The script that runs the originals' own tests: what it changes in them, and what it reports."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # where a script finds its modules

from compat.run import Original, deviations, private_import, read_report, rewrite, updated

SCENARIO = Original("langwatch-scenario", "1.6.0", "scenario", "holodeck.scenario")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("import scenario", "from holodeck import scenario as scenario"),
        ("    import scenario", "    from holodeck import scenario as scenario"),
        ("import scenario.voice as v", "import holodeck.scenario.voice as v"),
        ("from scenario import run", "from holodeck.scenario import run"),
        ("from scenario.types import AgentInput", "from holodeck.scenario.types import AgentInput"),
        ('patch("scenario.judge_agent.x")', 'patch("holodeck.scenario.judge_agent.x")'),
        ('attributes["scenario.role"]', 'attributes["scenario.role"]'),
        ("from scenarios import more", "from scenarios import more"),
        ("result = scenario.run()", "result = scenario.run()"),
    ],
)
def test_only_imports_and_what_is_patched_change(line, wanted):
    assert rewrite(line, SCENARIO) == wanted


def test_a_private_import_at_the_top_of_a_file_is_found():
    text = "import scenario\nfrom scenario._judge.utils import x\n"

    assert private_import(text, SCENARIO) == "scenario._judge.utils.x"
    assert private_import("def f():\n    from scenario._judge import x\n", SCENARIO) is None
    assert private_import("from other._judge import x\n", SCENARIO) is None


def test_a_report_says_which_tests_passed_and_why_others_did_not(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="test_a" name="test_one"/>'
        '<testcase classname="test_a.TestTwo" name="test_two"><failure message="m">line\n'
        "E   assert 1 == 2\nE   more</failure></testcase>"
        '<testcase classname="test_a" name="test_three"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )

    assert read_report(report) == {
        "passed": 1, "skipped": 1, "differs": {"TestTwo::test_two": "assert 1 == 2"},
    }  # fmt: skip


KNOWN = {"passed": 2, "skipped": 0, "differs": {"test_a": "private"}}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"passed": 2, "differs": {"test_a": "why"}}, []),
        ({"passed": 1, "differs": {"test_a": "w", "test_b": "E"}}, ["f: test_b fails: E"]),
        ({"passed": 3, "differs": {}}, ["f: test_a passes now"]),
        ({"passed": 1, "differs": {"test_a": "w"}}, ["f: 1 tests pass, expected 2"]),
        ({"broke": "no module"}, ["f: cannot be imported: no module"]),
    ],
    ids=["as expected", "new difference", "difference gone", "fewer tests", "broken"],
)
def test_whatever_is_not_expected_is_reported(found, wanted):
    assert [*deviations({"f": found}, {"f": KNOWN})] == wanted


def test_files_that_come_go_or_run_now_are_reported():
    known = {"gone": KNOWN, "runs": {"broke": "private"}}

    assert [*deviations({"new": KNOWN, "runs": {"passed": 1, "differs": {}}}, known)] == [
        "gone: is gone", "new: is new", "runs: runs now",
    ]  # fmt: skip


def test_an_update_keeps_the_reasons_and_marks_what_has_none():
    found = {"f": {"passed": 1, "skipped": 0, "differs": {"test_a": "w", "test_b": "E"}}}

    assert updated(found, {"f": KNOWN})["f"]["differs"] == {
        "test_a": "private", "test_b": "unexplained: E",
    }  # fmt: skip
    assert updated({"f": {"broke": "E"}}, {}) == {"f": {"broke": "unexplained: E"}}
