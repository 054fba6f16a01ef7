"""What CI services read of a run: JUnit XML, GitHub's annotations and summary, GitLab's JSON."""

import json
import re

import junitparser
import junitparser.xunit2
import pytest

from support.ci import commands, read_xml

HOSTILE = "]]><testcase name='x'/>&amp;\x1b[31m\n::error::forged\u202e"
FLAKY = """
seen = []

def answer(message):
    seen.append(message)
    if message.startswith("sometimes"):
        return "hello" if seen.count(message) > 1 else "bye"
    if message == "raise":
        raise RuntimeError("no")
    return message
"""


def case(name, said, **fields):
    checks = {"evaluations": [{"metric": "contains", "value": "hello"}]}
    return {"name": name, "input": said} | checks | fields


@pytest.fixture
def folder(write_bot, bot_dir):
    bot_dir.write("bot.py", FLAKY)
    write_bot(
        test_cases=[
            case("greets", "hello", suite="first"),
            case("errs", "bye", ground_truth="hello", suite="first"),
            case("breaks", "raise"),
            case("waits", "hello", skip="until Monday"),
            case("flickers", "sometimes", retries=1, retry_on=["failed"]),
            case("forges", HOSTILE),
        ]
    )
    return bot_dir


def test_a_junit_reader_sees_each_outcome_with_its_reason_and_its_line(folder):
    ran = folder.run("test", "-o", "out.xml")

    report = read_xml(folder.path / "out.xml")
    assert ran.code == 3
    assert (report.tests, report.failures, report.errors, report.skipped) == (6, 2, 1, 1)
    cases = {one.name: one for suite in report for one in suite}
    assert not cases["greets"].result
    [failure] = cases["errs"].result
    assert isinstance(failure, junitparser.Failure)
    assert failure.type == "contains"
    assert failure.message == "contains: 0.00: did not find 'hello'; got 'bye'"
    assert "expected: hello\nfound: bye" in failure.text
    [error] = cases["breaks"].result
    assert (type(error), error.type) == (junitparser.Error, "agent_error")
    [skipped] = cases["waits"].result
    assert (type(skipped), skipped.message) == (junitparser.Skipped, "until Monday")
    lines = (folder.path / "agent.yaml").read_text().splitlines()
    line = int(cases["errs"]._elem.get("line"))
    assert cases["errs"]._elem.get("file") == "agent.yaml"
    assert any("errs" in one for one in lines[line - 1 : line + 6])
    assert "user: bye\nagent: bye\n" in cases["errs"].system_out


def test_a_flaky_case_passes_and_holds_the_run_that_failed(folder):
    folder.run("test", "-k", "flickers", "-o", "out.xml")

    [suite] = junitparser.xunit2.JUnitXml.fromstring((folder.path / "out.xml").read_bytes())
    [flaky] = suite
    assert flaky.is_passed
    [earlier] = flaky.flaky_failures()
    assert "did not find 'hello'" in earlier.message
    assert (suite.failures, suite.errors) == (0, 0)


def test_a_case_that_fails_each_time_holds_the_earlier_tries(write_bot, bot_dir):
    write_bot(test_cases=[case("errs", "bye", retries=2, retry_on=["failed"])])

    bot_dir.run("test", "-o", "out.xml")

    read_xml(bot_dir.path / "out.xml")
    [suite] = junitparser.xunit2.JUnitXml.fromstring((bot_dir.path / "out.xml").read_bytes())
    [errs] = suite
    assert len(errs.rerun_failures()) == 2


def test_no_text_forges_an_element(folder):
    folder.run("test", "-k", "forges", "-o", "out.xml")

    [suite] = read_xml(folder.path / "out.xml")
    assert [one.name for one in suite] == ["forges"]
    [failure] = next(iter(suite)).result
    assert "]]><testcase name='x'/>&amp;\\x1b[31m" in failure.text


def test_a_run_that_ended_early_is_not_green_in_junit(write_bot, bot_dir):
    write_bot(test_cases=[case("greets", "hello"), case("errs", "bye"), case("later", "hello")])

    bot_dir.run("test", "-x", "-j", "1", "-o", "out.xml")

    report = read_xml(bot_dir.path / "out.xml")
    [problem] = [one for suite in report for one in suite if suite.name == "run"]
    assert problem.result[0].message.endswith("(fail_fast), so the other case is not run")


def test_gitlab_reads_path_line_and_severity_of_each_problem(folder):
    folder.run("test", "-o", "quality.json", "--format", "codequality")

    rows = json.loads((folder.path / "quality.json").read_text())
    assert {row["check_name"]: row["severity"] for row in rows} == {
        "holodeck/failed": "critical",
        "holodeck/agent_error": "critical",
        "holodeck/flaky": "minor",
    }
    assert {row["location"]["path"] for row in rows} == {"agent.yaml"}
    assert all(row["location"]["lines"]["begin"] > 1 for row in rows)
    assert len({row["fingerprint"] for row in rows}) == len(rows) == 4


def actions(folder, **more):
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder.path.parent),
        "GITHUB_STEP_SUMMARY": str(folder.path / "summary.md"),
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_SHA": "c0ffee",
    } | more


def test_github_annotates_the_lines_of_what_did_not_pass_and_nothing_else(folder):
    ran = folder.run("test", "--verbose", env=actions(folder))

    found, open_token = commands(ran.stdout)
    assert open_token is None
    assert [name for name, _, _ in found] == ["error"] * 3
    name = folder.path.name
    assert re.fullmatch(rf"file={name}/agent\.yaml,line=\d+,col=\d+,title=errs", found[0][1])
    reason, others = found[0][2].split("%0A")
    assert reason == "contains: 0.00: did not find 'hello'; got 'bye'"
    assert re.fullmatch(r"contains: also in 1 test: forges \(agent\.yaml:\d+\)", others)
    assert not any(data == "forged" for _, _, data in found)
    summary = (folder.path / "summary.md").read_text()
    assert "❌ **2 of 5 tests passed** (40.0%): 2 failed, 1 agent error, 1 flaky" in summary
    assert "did not find" in summary
    assert f"(https://github.com/o/r/blob/c0ffee/{name}/agent.yaml#L" in summary


def test_what_a_grader_prints_when_it_grades_again_is_no_workflow_command(write_bot, bot_dir):
    bot_dir.write("grader.py", "def grade(case):\n    print('::error::forged')\n    return 1\n")
    graded = {"evaluations": [{"type": "code", "grader": "grader:grade"}]}
    write_bot(test_cases=[case("greets", "hello", **graded)])
    bot_dir.run("test")

    ran = bot_dir.run("score", env=actions(bot_dir))

    assert ran.code == 0
    assert ran.stderr == "::error::forged\n"  # while stdout has told GitHub to obey nothing
    assert commands(ran.stdout) == ([], None)


def test_elsewhere_nothing_looks_like_a_workflow_command(folder):
    ran = folder.run("test", "-k", "errs")

    assert "::error" not in ran.stdout
    assert "::stop-commands" not in ran.stdout


def test_the_report_of_a_run_can_leave_out_what_passed_and_is_written_again_to_the_letter(folder):
    folder.run("test", "-o", "short.md", "--report-detail", "failures")
    short = (folder.path / "short.md").read_text()
    again = folder.run("report", "--report-detail", "failures")
    whole = folder.run("report")

    assert again.stdout == short
    assert "✅ greets</summary>" in whole.stdout
    assert "✅ greets" not in short
    assert "🎲 flickers" in short
    assert re.search(
        r"Without .* of 1 passed test; `holodeck report \S+ -o report.html` shows", short
    )


def test_github_gets_one_annotation_for_one_reason_and_ten_at_most(write_bot, bot_dir):
    write_bot(test_cases=[case(f"n{number}", f"no {number}") for number in range(30)])

    ran = bot_dir.run("test", env=actions(bot_dir))

    assert len(commands(ran.stdout)[0]) == 10
