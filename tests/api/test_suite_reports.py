"""The reporters of `holodeck.suite`: what they show, and that no text becomes markup."""

import io
import json
import re

import pytest
from rich.console import Console

from holodeck.errors import ReportError
from holodeck.suite import AgentResult, Runner, RunResult, Scenario, Suite, ToolCall
from holodeck.suite.reports import CLIReporter, HTMLReporter, JSONReporter
from support.ci import obeyed
from support.html_page import HtmlPage
from support.payloads import ORDERS

LINES = ORDERS.encode("utf-8", "ignore").decode()
HOSTILE = (
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(1)>"
    " \"' onmouseover='x' [red]markup[/red] &amp; \x1b[31m\u202e"
)


class Agent:
    def run(self, input, context=None):  # noqa: A002 - what adapters call it
        if input == "break":
            raise ValueError(HOSTILE)
        calls = [ToolCall(name=HOSTILE, arguments={"x": HOSTILE})]
        return AgentResult(output=f"{input} {HOSTILE}", tool_calls=calls)


@pytest.fixture(scope="module")
def result():
    suite = Suite(
        name=f"suite {HOSTILE}",
        scenarios=[
            Scenario(name="good", input="yes", expected_output="yes"),
            Scenario(name=f"bad {HOSTILE}", input=HOSTILE, expected_output=f"no {HOSTILE}"),
            Scenario(name="broken", input="break"),
            Scenario(name="left out", input="later"),
        ],
    )
    run = Runner(Agent()).run_suite(suite)
    run.not_reached = [f"last {HOSTILE}"]
    return run


def test_the_page_needs_no_other_file_and_runs_only_its_own_script(result):
    HtmlPage(HTMLReporter().report(result)).require_harmless()


def test_the_page_holds_every_text_and_shows_those_that_need_no_script_as_they_are(result):
    html = HTMLReporter().report(result)

    page = HtmlPage(html)
    assert page.text.count("<script>alert(1)</script>") > 3
    assert "\\x1b[31m\\u202e" in page.text
    assert not re.search("[\x1b\u202e]", html)
    assert page.cases[0]["tool_invocations"][0]["args"] == {"x": HOSTILE}


def test_the_page_has_the_figures_of_the_run_and_a_row_for_each_scenario(result):
    page = HtmlPage(HTMLReporter().report(result))

    assert page.index["title"] == f"Suite Report: suite {HOSTILE}"
    assert page.index["counts"] == "4 scenarios, 1 failed, 1 agent error, 2 passed"
    assert ["Run", result.run_id] in page.index["facts"]
    assert page.index["notes"] == [f"Stopped: fail_fast left out: last {HOSTILE}"]
    assert [one["outcome"] for one in page.index["rows"]] == [
        "passed", "failed", "agent_error", "passed",
    ]  # fmt: skip
    assert "ValueError" in page.cases[2]["raised"][0]["error"]


def test_reports_are_returned_and_written(result, tmp_path):
    html = HTMLReporter().report(result, output_path=tmp_path / "new" / "report.html")
    text = JSONReporter().report(result, str(tmp_path / "results.json"))

    assert (tmp_path / "new" / "report.html").read_text() == html
    assert (tmp_path / "results.json").read_text() == text
    with pytest.raises(ReportError, match="cannot be written"):
        JSONReporter().report(result, tmp_path)


def test_the_json_holds_every_field():
    run = Runner(Agent()).run_suite(Suite(name="s", scenarios=[Scenario(name="a", input="b")]))

    text = JSONReporter().report(run)

    assert RunResult.model_validate_json(text) == run
    assert json.loads(text)["scenario_results"][0]["scenario"]["name"] == "a"


def test_the_terminal_shows_a_table_and_reads_no_markup(result):
    console = Console(file=io.StringIO(), width=400, force_terminal=False)

    CLIReporter(console=console).report(result)

    shown = console.file.getvalue()
    assert f"Run:   {result.run_id}" in shown
    titles = ("Scenario", "Status", "Score", "Duration", "Details")
    assert all(title in shown for title in titles)
    assert re.findall("PASS|FAIL|ERROR", shown) == ["PASS", "FAIL", "ERROR", "PASS"]
    assert "[red]markup[/red]" in shown
    assert "\x1b" not in shown
    assert "50% passed" in shown


def test_no_line_on_the_terminal_is_a_command_to_a_ci_service_however_it_is_broken():
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    for length in range(60, 90):
        scenario = Scenario(name=f"{'n' * length}::error::x", input=LINES)
        suite = Suite(name=f"{'n' * length}::error::x {LINES}", scenarios=[scenario])

        CLIReporter(console=console).report(Runner(Agent()).run_suite(suite))

    assert obeyed(console.file.getvalue()) == []


def test_the_terminal_is_stdout_by_default(capsys):
    run = Runner(Agent()).run_suite(Suite(name="s", scenarios=[Scenario(name="a", input="b")]))

    CLIReporter().report(run)

    assert "100% passed" in capsys.readouterr().out
