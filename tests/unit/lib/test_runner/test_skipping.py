"""Cases that are not run: listed with the reason, never counted as passed, run by a resume."""

import json

from fakes import ScriptedBackend
from holodeck.errors import ExitCode
from holodeck.lib.reports.summary import exit_code
from holodeck.models.token_usage import Price, PriceTable
from support.agents import an_agent, contains, executor_of


async def test_a_case_with_a_reason_to_skip_is_listed_and_not_run(tmp_path):
    backend = ScriptedBackend(lambda _: "OK")
    cases = [
        {"input": "a", "skip": "the shop is closed", "evaluations": [contains("OK")]},
        {"input": "b", "evaluations": [contains("OK")]},
    ]

    report = await executor_of(tmp_path, an_agent(*cases), backend).execute_tests()

    assert [result.outcome for result in report.results] == ["skipped", "passed"]
    assert report.results[0].reasons() == ["the shop is closed"]
    assert backend.messages == ["b"]
    assert exit_code(report) is ExitCode.PASSED


async def test_a_case_that_is_not_run_has_no_cost(tmp_path):
    prices = PriceTable(models={"agent": Price(input=1, output=1)})
    agent = an_agent({"input": "a", "skip": "not now"}).model_copy(update={"prices": prices})

    report = await executor_of(tmp_path, agent, ScriptedBackend(str)).execute_tests()

    assert (report.results[0].cost, report.summary.cost) == (None, None)


async def test_a_run_that_skips_everything_is_no_success_and_reaches_no_agent(tmp_path):
    backend = ScriptedBackend(lambda _: "OK")
    agent = an_agent({"input": "a", "skip": "not now", "expected_tools": []})

    report = await executor_of(tmp_path, agent, backend).execute_tests()

    assert backend.initialized == 0
    assert exit_code(report) is ExitCode.NOTHING_SELECTED


def test_a_skipped_case_runs_when_a_run_is_resumed_without_the_reason(agent_dir):
    (agent_dir.path / "bot.py").write_text("def answer(message):\n    return 'OK'\n")
    case = {"input": "hi", "evaluations": [{"metric": "contains", "value": "OK"}]}
    skipped = case | {"name": "a", "skip": "the shop is closed"}
    whole = {"model": None, "instructions": None, "backend": "bot:answer"}
    agent_dir.write_agent(**whole, test_cases=[skipped, case | {"name": "b"}])

    ran = agent_dir.run("test", "-o", "r.md")
    shown = agent_dir.run("report", "--format", "json")
    agent_dir.write_agent(**whole, test_cases=[case | {"name": "a"}, case | {"name": "b"}])
    resumed = agent_dir.run("test", "--resume", "--force")

    assert (ran.code, shown.code, resumed.code) == (0, 0, 0)
    assert "SKIPPED a\n    the shop is closed\n" in ran.stdout
    assert "Test Results: 1/1 passed (100.0%)\n  Skipped: 1\n" in ran.stdout
    assert "⏭️ a: the shop is closed</summary>" in (agent_dir.path / "r.md").read_text()
    assert [one["outcome"] for one in json.loads(shown.stdout)["results"]] == ["skipped", "passed"]
    assert "1 of 2 results are kept, 1 case runs" in resumed.stderr
