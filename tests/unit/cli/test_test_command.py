"""`holodeck test` from the outside: what it prints, writes and exits with."""

import json
import os
import signal

import pytest
import yaml

from fakes import run_cli, run_in_pty, start_cli, start_in_pty
from support.cli import without_durations

RULE = "=" * 60
AGENT = """
import logging, os, pathlib, sys, time

def answer(text):
    if text == "raise":
        raise RuntimeError("no such thing")
    if text == "exit":
        sys.exit(0)
    if text == "wait":
        time.sleep(600)
    if text == "secret":
        return f"the key is {os.environ['MY_API_KEY']}"
    if text == "log":
        logging.getLogger("agent").warning("one\\x1b[2J\\nERROR: forged")
    if text == "block":
        pathlib.Path("late.md").mkdir()
    return text
"""
BROKEN = """
def broken(response, **_):
    raise ValueError("cannot grade this")
"""


def case(said, *, wants="hello", **fields):
    checks = {"evaluations": [{"metric": "contains", "value": wants}]} if wants else {}
    return {"name": f"says {said}", "input": said} | checks | fields


GOOD, BAD, LOOSE = case("hello"), case("hullo"), case("hello there", wants=None)
BOOM = case("raise")
UNGRADED = case("hello", name="ungraded", evaluations=[{"metric": "graders:broken"}])


@pytest.fixture
def folder(tmp_path):
    """Writes an agent with these cases and gives its folder."""

    def write(*cases, **fields):
        agent = {"name": "echo", "backend": "mine:answer", "test_cases": list(cases)} | fields
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))
        (tmp_path / "mine.py").write_text(AGENT)
        (tmp_path / "graders.py").write_text(BROKEN)
        return tmp_path

    return write


def without_times(text):
    return [line for line in without_durations(text).splitlines() if "Duration: " not in line]


def test_a_good_run_is_a_line_a_test_and_a_summary(folder):
    ran = run_cli("test", cwd=folder(GOOD, case("hello again")))

    assert ran.code == 0
    assert ran.stderr == ""
    assert without_times(ran.stdout) == [
        "[Test 1/2] PASS says hello",
        "[Test 2/2] PASS says hello again",
        "",
        RULE,
        "Test Results: 2/2 passed (100.0%)",
        RULE,
    ]


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        ([BAD, GOOD], 1),
        ([BOOM, BAD], 3),
        ([UNGRADED, BAD], 4),
        ([LOOSE, GOOD], 5),
        ([], 5),
    ],
    ids=["failed", "agent", "metric", "unchecked", "nothing"],
)
def test_the_exit_code_tells_what_came_of_it(folder, cases, code):
    assert run_cli("test", cwd=folder(*cases)).code == code


def test_reasons_stand_under_what_did_not_pass_at_the_end(folder):
    ran = run_cli("test", cwd=folder(BAD, BOOM))

    assert without_times(ran.stdout)[:8] == [
        "[Test 1/2] FAIL says hullo",
        "[Test 2/2] ERROR says raise",
        "",
        "Failures:",
        "  FAIL says hullo (agent.yaml:4)",
        "    contains: 0.00: did not find 'hello'; got 'hullo'",
        "  ERROR says raise (agent.yaml:9)",
        '    RuntimeError: no such thing (mine.py:6: raise RuntimeError("no such thing"))',
    ]


def test_quiet_shows_the_failures_and_the_summary_alone(folder):
    ran = run_cli("test", "--quiet", cwd=folder(BAD))

    assert without_times(ran.stdout) == [
        "", "Failures:",
        "  FAIL says hullo (agent.yaml:4): contains: 0.00: did not find 'hello'; got 'hullo'",
        "", RULE, "Test Results: 0/1 passed (0.0%)", "  Failed: 1", RULE,
    ]  # fmt: skip


def test_several_reports_are_written_in_the_format_of_their_names(folder):
    where = folder(GOOD)

    ran = run_cli("test", "-o", "out/r.md", "-o", "r.json", cwd=where)

    assert ran.stdout.endswith("Report saved to out/r.md\nReport saved to r.json\n")
    assert (where / "out" / "r.md").read_text().startswith("# Test Report: echo\n")
    assert json.loads((where / "r.json").read_text())["summary"]["passed"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-o", "r.txt"], "'r.txt' has an unknown suffix"),
        (["-o", "r.txt", "--format", "xml"], "unknown report 'xml'"),
        (["--format", "json"], "add --output FILE"),
        (["-o", "mine.py/r.md"], "is not a folder"),
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["--timeout", "-1"], "Invalid value for '--llm-timeout'"),
    ],
    ids=["suffix", "format", "no-output", "folder", "limit", "timeout"],
)
def test_what_cannot_work_is_refused_before_any_test_runs(folder, args, said):
    ran = run_cli("test", *args, cwd=folder(GOOD))

    assert ran.code == 2
    assert said in ran.stderr
    assert ran.stdout == ""


def test_a_report_that_cannot_be_written_after_all_does_not_take_the_others_along(folder):
    where = folder(case("block", wants="block"))

    ran = run_cli("test", "-o", "late.md", "-o", "r.json", cwd=where)

    assert ran.code == 3
    assert "Execution Error: the report cannot be written to late.md: Is a directory" in ran.stderr
    assert json.loads((where / "r.json").read_text())["summary"]["passed"] == 1


def test_a_limited_run_says_so(folder):
    ran = run_cli("test", "-n", "1", cwd=folder(GOOD, BAD))

    assert ran.code == 0
    assert ran.stderr == "Running 1 of 2 test cases: --limit 1\n"
    assert "1/1 passed" in ran.stdout


def test_a_secret_is_nowhere_to_be_seen(folder):
    key = "zx81-spectrum-4711"
    where = folder(case("secret", name=f"case {key}"))

    ran = run_cli("test", "-vv", "-o", "r.md", "-o", "r.json", cwd=where, env={"MY_API_KEY": key})

    written = (where / "r.md").read_text() + (where / "r.json").read_text()
    assert ran.code == 1
    assert key not in ran.stdout + ran.stderr + written
    assert "the key is ***4711" in written


def test_logs_go_to_stderr_and_cannot_forge_lines_or_steer_the_terminal(folder):
    ran = run_cli("test", cwd=folder(case("log", wants="log")))

    assert ran.stderr == "WARNING: one\\x1b[2J\n    ERROR: forged\n"


def test_the_log_level_can_be_set_by_variable(folder):
    quiet = run_cli("test", cwd=folder(LOOSE), env={"HOLODECK_LOG_LEVEL": "error"})
    wrong = run_cli("test", cwd=folder(LOOSE), env={"HOLODECK_LOG_LEVEL": "loud"})

    assert quiet.stderr == ""
    assert (wrong.code, "HOLODECK_LOG_LEVEL: unknown log level 'loud'" in wrong.stderr) == (2, True)


def test_code_that_exits_is_not_a_success(folder):
    ran = run_cli("test", cwd=folder(case("exit"), GOOD))

    assert ran.code == 3
    assert "SystemExit" in ran.stdout + ran.stderr


def test_ctrl_c_still_reports_what_had_finished(folder):
    where = folder(GOOD, case("wait"), BAD)
    with start_cli("test", "-o", "r.json", "-o", "r.md", cwd=where) as run:
        line = run.stdout.readline().decode().rstrip()
        assert without_durations(line) == "[Test 1/3] PASS says hello"
        run.interrupt()
        ran = run.finish()

    report = json.loads((where / "r.json").read_text())
    assert ran.code == 130
    assert "Interrupted: stopping" in ran.stderr
    assert "  Not run: 2" in ran.stdout
    assert (report["interrupted"], report["planned_tests"], len(report["results"])) == (True, 3, 1)
    assert "**Interrupted: 1 of 3 tests ran.**" in (where / "r.md").read_text()


def test_being_terminated_is_being_interrupted_with_a_code_of_its_own(folder):
    where = folder(GOOD, case("wait"))
    with start_cli("test", "-o", "r.json", cwd=where) as run:
        run.stdout.readline()
        os.kill(run.pid, signal.SIGTERM)
        ran = run.finish()

    assert ran.code == 143
    assert json.loads((where / "r.json").read_text())["interrupted"] is True


def test_on_a_terminal_the_finished_lines_are_what_stays(folder):
    ran = run_in_pty("test", "-j", "2", cwd=folder(GOOD, BAD, LOOSE), cols=100)

    lines = [line for line in ran.screen.splitlines() if line.startswith("Test ")]
    assert ran.code == 1
    assert sorted(line.split(": ", 1)[1] for line in lines) == [
        "? says hello there", "✓ says hello", "✗ says hullo",
    ]  # fmt: skip
    assert "✗ Test Results: 1/3 passed (33.3%)" in ran.screen
    assert "/3, " not in ran.screen
    assert ran.raw.count(b"\x1b[?25l") == ran.raw.count(b"\x1b[?25h") == 1


def test_on_a_terminal_a_running_test_is_shown_and_cleared_by_ctrl_c(folder):
    with start_in_pty("test", cwd=folder(GOOD, case("wait")), env={"NO_COLOR": "1"}) as run:
        run.read_until("Test 1/2: ✓ says hello")
        run.read_until("─ 1/2, 0:")
        run.read_until("  says wait (")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "─" not in ran.screen
    assert "says wait" not in ran.screen
    assert "  Not run: 1" in ran.screen
    assert b"\x1b[9" not in ran.raw


def test_a_reader_that_leaves_does_not_change_the_verdict(folder):
    where = folder(BAD)
    with start_cli("test", "-o", "r.json", cwd=where, from_nothing=True) as run:
        run.stdout.close()
        code = run.wait(180)
        errors = run.stderr.read()

    assert (code, errors) == (1, b"")
    assert (where / "r.json").exists()


def test_verbose_tells_where_the_settings_came_from(agent_dir):
    agent_dir.write("echo.py", "def answer(text):\n    return text\n")
    agent_dir.write_agent(
        model=None, instructions=None, backend="echo:answer", execution={"llm_timeout": 5}
    )

    ran = agent_dir.run("test", "-v", "--parallel", "2", env={"HOLODECK_RETRY_DELAY": "1"})

    assert "setting llm_timeout = 5.0 (agent.yaml:" in ran.stderr
    assert "setting parallel_test_cases = 2 (--parallel-test-cases)" in ran.stderr
    assert "setting retry_delay = 1.0 (HOLODECK_RETRY_DELAY)" in ran.stderr
    assert "max_retries" not in ran.stderr
