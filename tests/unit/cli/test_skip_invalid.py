"""`--skip-invalid` runs what can be read, and never says that all is well."""

import pytest

from support.cli import run_cli

AGENT = """\
name: a
backend: "bot:answer"
suites: [{file: "suites/*.yaml"}]
"""
GOOD = "test_cases: [{name: good, input: hello, ground_truth: hello, scorers: [passfail]}]"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "bot.py").write_text("def answer(message):\n    return message\n")
    (tmp_path / "suites" / "good.yaml").write_text(GOOD)
    return tmp_path


def test_a_wrong_suite_among_good_ones_ends_the_run_unless_it_may_be_left_out(folder):
    (folder / "suites" / "typo.yaml").write_text("test_cases: [{inptu: x}]")
    (folder / "suites" / "torn.yaml").write_text("test_cases: [")

    strict = run_cli("test", cwd=folder)
    lenient = run_cli("test", "--skip-invalid", cwd=folder)

    assert strict.code == 2
    assert "suites/torn.yaml:2:1" in strict.stderr
    assert lenient.code == 5
    assert "1/1 passed" in lenient.stdout
    assert "Left out suites/typo.yaml (--skip-invalid): suites/typo.yaml:1:15" in lenient.stderr
    assert "Left out suites/torn.yaml (--skip-invalid): suites/torn.yaml:2:1" in lenient.stderr


def test_a_mistake_in_the_agent_file_is_never_left_out(folder):
    (folder / "agent.yaml").write_text(AGENT + "test_cases: [{inptu: x}]")

    ran = run_cli("test", "--skip-invalid", cwd=folder)

    assert ran.code == 2


def test_suites_that_are_named_are_left_out_too_as_long_as_one_is_right(folder):
    (folder / "suites" / "typo.yaml").write_text("test_cases: [{inptu: x}]")
    (folder / "agent.yaml").write_text(AGENT + "test_cases: [{input: other}]")

    ran = run_cli("test", "suites", "--skip-invalid", cwd=folder)
    wrong = run_cli("test", "suites/typo.yaml", "--skip-invalid", cwd=folder)

    assert ran.code == 5
    assert "1/1 passed" in ran.stdout
    assert "Left out suites/typo.yaml (--skip-invalid)" in ran.stderr
    assert wrong.code == 2
    assert "suites/typo.yaml:1:15" in wrong.stderr


def test_nothing_changes_where_all_is_well(folder):
    assert run_cli("test", "--skip-invalid", cwd=folder).code == 0
