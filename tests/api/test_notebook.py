"""holodeck in notebooks: progress in place, reports as tables, the executed example."""

import json
import re
import subprocess
import sys

import pytest

import holodeck
from fakes import clean_environment
from holodeck.lib.reports.tables import MAX_ROWS
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.suite import Scenario
from holodeck.suite.results import AgentResult, RunResult, ScenarioRunResult, ScoreResult
from support.agents import contains
from support.html_page import HtmlPage
from support.payloads import PAYLOADS
from support.results import a_report, a_result

IN_A_RUNNING_LOOP = """
import sys
from holodeck.lib.test_runner.progress import detect_frontend
found = holodeck.run(weather, cases[:2], metrics=["exact_match"])
print(found.passed, detect_frontend(), "ipywidgets" in sys.modules)
"""
HIDDEN = "_ = await holodeck.arun(weather, cases, metrics=['exact_match'], progress=False)"


KEY = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx"
TEXT = "|".join([KEY, *PAYLOADS]).encode("utf-8", "ignore").decode()
HOSTILE = f"""
await holodeck.arun(lambda message: {TEXT!r}, [{{"name": {TEXT!r}, "input": "hi"}}],
                    metrics=[{{"metric": "contains", "value": "x y z"}}])
"""


def test_the_notebook_of_the_examples_shows_what_it_has_stored():
    pytest.importorskip("nbclient", reason="runs with scripts/install dev")
    pytest.importorskip("ipykernel", reason="runs with scripts/install dev")
    import nbformat

    from support.notebooks import NOTEBOOKS, execute, outputs_of

    [path] = NOTEBOOKS
    stored = outputs_of(nbformat.read(path, as_version=4))

    *fresh, in_loop, hidden, hostile = outputs_of(execute(path, IN_A_RUNNING_LOOP, HIDDEN, HOSTILE))

    assert fresh == stored
    progress, printed = in_loop  # one output, however often it was updated
    assert progress["data"]["text/plain"] == "2 of 2 tests, 0 s: done"
    assert '<progress value="2" max="2">' in progress["data"]["text/html"]
    assert printed["text"] == "True notebook False\n"
    assert hidden == []
    for output in hostile:
        assert not re.search("<(script|img|svg|iframe|a|details)[ />]", output["data"]["text/html"])
        assert KEY[:20] not in json.dumps(output)
    assert "&lt;script&gt;" in hostile[-1]["data"]["text/html"]


def test_a_script_prints_progress_only_on_request(capsys):
    holodeck.run(str.upper, ["hello"], metrics=[contains("HELLO")])
    silent = capsys.readouterr()
    holodeck.run(str.upper, ["hello"], metrics=[contains("HELLO")], progress=True)

    assert (silent.out, silent.err) == ("", "")
    assert capsys.readouterr().out == "[Test 1/1] PASS 'hello'\n"


def test_the_ipython_shell_prints_a_line_for_each_test(tmp_path):
    pytest.importorskip("IPython", reason="runs with scripts/install dev")
    code = (
        "import holodeck\n"
        "report = await holodeck.arun(str.upper, ['hello'],"
        " metrics=[{'metric': 'contains', 'value': 'HELLO'}])"
    )
    options = ["--no-banner", "--colors=NoColor", "--simple-prompt", "-c", code]

    done = subprocess.run(
        [sys.executable, "-m", "IPython", *options],
        cwd=tmp_path,
        env={**clean_environment(tmp_path), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert "[Test 1/1] PASS 'hello'" in done.stdout


def test_failures_come_first_and_what_is_left_out_is_said():
    passed = [a_result(test_name=f"fine {number}") for number in range(MAX_ROWS + 10)]
    failed = a_result(
        Outcome.FAILED,
        test_name="broken",
        metric_results=[MetricResult(metric_name="contains", score=0.0, passed=False)],
    )

    page = a_report(*passed, failed)._repr_html_()

    rows = page.split("<tr>")[2:]
    assert len(rows) == MAX_ROWS
    assert ">broken<" in rows[0]
    assert "contains: 0.00" in rows[0]
    assert "… and 11 more tests (11 passed); <code>to_dataframe()</code> has all" in page


def test_texts_are_escaped_and_cut_in_a_notebook():
    hostile = "<img src=x onerror=alert(1)>\x1b[2J" + "long " * 1000

    page = a_report(a_result(test_name=hostile, agent_response=hostile))._repr_html_()

    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;\\x1b[2J" in page
    assert len(page) < 3000
    HtmlPage(page)


def test_a_stopped_run_is_not_passed_in_a_notebook():
    page = a_report(a_result(), interrupted=True)._repr_html_()

    assert "not passed" in page
    assert "the run was interrupted" in page


def a_scenario_result(name, *, passed, error=None):
    scenario = Scenario(id=name, name=name, input="hi", tags=["a", "b"])
    score = ScoreResult(
        scenario_id=name, scorer_name="exact", score=passed, passed=passed, explanation="compared"
    )
    return ScenarioRunResult(
        scenario=scenario,
        agent_result=AgentResult(output="" if error else "hello"),
        scores=[] if error else [score],
        passed=passed,
        error=error,
        outcome=Outcome.PASSED if passed else Outcome.AGENT_ERROR if error else Outcome.FAILED,
    )


def test_results_of_a_suite_are_a_table_and_dataframes_too():
    run = RunResult(
        suite_name="smoke",
        scenario_results=[
            a_scenario_result("good", passed=True),
            a_scenario_result("bad", passed=False),
            a_scenario_result("lost", passed=False, error="OSError: gone"),
        ],
        not_reached=["later"],
    )

    page, frame, scores = run._repr_html_(), run.to_dataframe(), run.metrics_dataframe()

    assert page.index("› bad<") < page.index("› lost<") < page.index("› good<")
    assert "fail_fast left out: later" in page
    assert list(frame["outcome"]) == ["passed", "failed", "agent_error"]
    assert list(frame["response"].isna()) == [False, False, True]
    assert frame["tool_calls"].isna().all()
    assert list(frame["reason"].fillna("-")) == ["-", "exact: 0.00: compared", "OSError: gone"]
    assert list(scores["test_id"]) == ["good", "bad"]
    assert list(scores["score"]) == [1.0, 0.0]
