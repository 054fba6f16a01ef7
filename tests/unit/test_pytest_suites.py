"""Suites as tests, in a pytest of its own: files of suites, and the suites of an agent.yaml."""

from functools import partial
from xml.etree import ElementTree as ET

import pytest

from support.own_pytest import run_pytest

AGENT = """
name: echo
backend: "echo:answer"
evaluations: {metrics: [{metric: contains, value: hello}]}
test_cases:
  - {name: own, input: hello}
suites:
  - {name: inline, test_cases: [{name: greets, input: hello}, {name: shouts, input: HELLO}]}
  - {name: rows, test_cases_file: rows.csv}
"""
ECHO = """
said = []

def answer(text):
    said.append(text)
    if "first" in text and said.count(text) == 1:
        raise ConnectionError("nobody there yet")
    return text if "twice" not in text or said.count(text) > 1 else "what?"
"""
SUITE = """
suite: {name: manners, config: {retries: 1}}
test_cases:
  - {name: greets, input: hello}
  - {name: deaf, input: HELLO}
  - {name: later, input: hello, skip: not before May}
  - {name: at the second try, input: hello first}
  - {name: not always, input: hello twice, repeat: 2, min_pass: 1, stop_early: false}
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "rows.csv").write_text("name,input\nfrom a row,hello\n")
    (tmp_path / "echo.py").write_text(ECHO)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/x.suite.yaml").write_text(SUITE)

    return partial(run_pytest, tmp_path)


def test_the_cases_of_a_suites_file_are_tests_on_the_agent_above(run, tmp_path):
    told = run("tests/x.suite.yaml", "-v", "--junitxml", "x.xml", "-n", "2")

    assert "1 failed, 2 passed, 1 skipped, 1 flaky" in told
    assert "tests/x.suite.yaml::greets" in told
    assert "deaf: contains: 0.00" in told
    assert "PASSED at the second try" in told
    assert "FLAKY  not always" in told
    assert "repetition 1: contains" in told
    assert "success rate 75%" in told
    cases = {one.get("name"): one for one in ET.parse(tmp_path / "x.xml").iter("testcase")}
    assert cases["deaf"].find("failure") is not None
    assert cases["later"].find("skipped").get("message") == "not before May"
    properties = cases["not always"].iter("property")
    assert {one.get("name"): one.get("value") for one in properties} == {"outcome": "flaky"}


LOUD = """
name: loud
backend: "loud:answer"
evaluations: {metrics: [{metric: contains, value: hello}]}
"""


def test_another_agent_may_be_named_for_a_suites_file(run, tmp_path):
    (tmp_path / "loud.yaml").write_text(LOUD)
    (tmp_path / "loud.py").write_text("def answer(text):\n    return 'hello, hello'\n")

    told = run("tests/x.suite.yaml", "--holodeck-agent", "loud.yaml")

    assert "4 passed, 1 skipped" in told


def test_an_agent_that_is_named_and_not_there_is_an_error_of_collection(run):
    told = run("tests/x.suite.yaml", "--holodeck-agent", "other.yaml")

    assert "other.yaml" in told
    assert "1 error" in told
    assert "Traceback" not in told


def test_what_failed_in_a_suites_file_can_be_run_again_and_chosen(run):
    assert "1 failed" in run("tests/x.suite.yaml")
    told = run("tests/x.suite.yaml", "--lf")

    assert "deaf" in told
    assert "1 failed" in told
    assert "passed" not in told.splitlines()[-1]
    assert "1 passed" in run("tests/x.suite.yaml::greets")


def test_cases_of_an_agents_suites_and_rows_are_tests_below_their_suites_names(run):
    told = run("agent.yaml", "-v")

    for name in ("own", "inline::greets", "inline::shouts", "rows::from a row"):
        assert f"agent.yaml::{name} " in told
    assert "1 failed, 3 passed" in told
    assert "1 failed, 1 passed" in run("agent.yaml::inline")
    assert "1 passed" in run("agent.yaml::rows::from a row")


def test_files_of_suites_are_collected_where_the_configuration_names_them(run, tmp_path):
    assert "no tests ran" in run()

    (tmp_path / "pytest.ini").write_text("[pytest]\nholodeck_files = *.suite.yaml\n")
    assert "1 failed, 2 passed, 1 skipped, 1 flaky" in run()


WRONG = {
    "a misspelt key": (SUITE.replace("test_cases", "test_case"), "did you mean 'test_cases'?"),
    "no cases": ("suite: {name: manners}\ntest_cases: []\n", "the suite has no test cases"),
    "a bar without repetitions": (
        "test_cases: [{name: a, input: hello, min_pass: 2}]",
        "has no effect without 'repeat'",
    ),
    "a check that cannot be": (
        "test_cases: [{name: a, input: hello, evaluations: [{metric: exact_match}]}]",
        "'exact_match'",
    ),
}


def test_a_wrong_suites_file_is_an_error_of_collection_that_says_why(run, tmp_path):
    for way, (text, _) in WRONG.items():
        (tmp_path / f"{way}.suite.yaml").write_text(text)

    told = run(*(f"{way}.suite.yaml" for way in WRONG))

    assert [way for way, (_, wanted) in WRONG.items() if wanted not in told] == []
    assert f"{len(WRONG)} errors" in told
    assert "Traceback" not in told


def test_a_suite_without_an_agent_says_where_one_belongs(run, tmp_path):
    (tmp_path / "agent.yaml").unlink()

    told = run("tests/x.suite.yaml")

    assert "neither its folder nor one above has an agent.yaml" in told
    assert "1 error" in told
