"""Cases that are run again: after what, how often, and what is told of it."""

import json

import pytest

from fakes import ScriptedBackend
from holodeck.config.settings import SettingsLayer, resolve_settings, with_case_settings
from holodeck.errors import BackendSessionError, BackendTimeoutError, ConfigError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.config import ExecutionConfig
from holodeck.models.token_usage import TokenUsage
from support.agents import an_agent, contains, executor_of

LOST = RuntimeError("the line is dead")


async def ran(tmp_path, answers, case=None, settings=None):
    """The report of a case whose agent gives one answer after the other, and the backend."""
    left = iter(answers)
    backend = ScriptedBackend(lambda _: next(left))
    cases = {"name": "asks", "input": "go", "evaluations": [contains("OK")]} | (case or {})
    given = {"retry_delay": 0} | (settings or {})
    executor = executor_of(tmp_path, an_agent(cases), backend, settings=given)
    return await executor.execute_tests(), backend


@pytest.mark.parametrize(
    "broken",
    [LOST, BackendTimeoutError("no answer within 1 s"), ExecutionResult("", is_error=True)],
    ids=["error", "timeout", "reported"],
)
async def test_a_case_whose_agent_broke_is_run_again_and_may_pass(tmp_path, broken):
    report, _ = await ran(tmp_path, [broken, "OK"], {"retries": 1})

    [result] = report.results
    assert result.outcome == "passed"
    assert [one.outcome for one in result.tries] == ["agent_error"]


async def test_nothing_is_run_again_unless_that_is_asked_for(tmp_path):
    report, backend = await ran(tmp_path, [LOST, "OK"])

    assert report.results[0].outcome == "agent_error"
    assert len(backend.messages) == 1


async def test_the_tries_end_and_the_last_one_is_the_result(tmp_path):
    report, backend = await ran(tmp_path, [LOST, LOST, LOST, "OK"], settings={"retries": 2})

    assert report.results[0].errors == ["RuntimeError: the line is dead"]
    assert len(report.results[0].tries) == 2
    assert len(backend.messages) == 3


@pytest.mark.parametrize(
    ("answer", "case"),
    [
        ("no", {}),
        ("no", {"retry_on": ["error", "timeout"]}),
        ("OK", {"evaluations": [{"metric": "contains", "value": "OK", "enabled": False}]}),
        (LOST, {"retry_on": ["failed", "timeout"]}),
        (BackendTimeoutError("late"), {"retry_on": ["error"]}),
        (BackendSessionError("HTTP 401", permanent=True), {}),
        (ConfigError("tools[0]", "file not found"), {}),
    ],
    ids=["verdict", "listed", "unchecked", "error", "timeout", "wrong-key", "configuration"],
)
async def test_what_is_not_to_be_run_again_is_not(tmp_path, answer, case):
    _, backend = await ran(tmp_path, [answer, "OK"], case | {"retries": 3})

    assert len(backend.messages) == 1


async def test_a_case_that_failed_and_passed_later_is_flaky(tmp_path):
    case = {"retries": 2, "retry_on": ["failed"]}

    report, backend = await ran(tmp_path, ["no", "OK", "OK"], case)

    [result] = report.results
    assert (result.outcome, result.passed) == ("flaky", True)
    assert len(backend.messages) == 2
    assert (report.summary.passed, report.summary.flaky) == (1, 1)


async def test_tokens_and_times_of_every_try_count(tmp_path):
    spent = TokenUsage.of(3, 4)
    answers = [ExecutionResult("no", token_usage=spent), ExecutionResult("OK", token_usage=spent)]

    report, _ = await ran(tmp_path, answers, {"retries": 1, "retry_on": ["failed"]})

    [result] = report.results
    assert report.summary.token_usage == TokenUsage.of(6, 8)
    assert result.execution_time_ms >= result.tries[0].execution_time_ms


async def test_the_report_shows_each_try_with_its_reason(tmp_path):
    report, _ = await ran(tmp_path, [LOST, "OK"], {"retries": 1})

    [raised] = report.results[0].tries[0].raised
    reason = (
        f"RuntimeError: the line is dead (tests/support/backend.py:{raised.line}: raise answer)"
    )
    assert f"| 1 | ⚠️ ERROR | {reason} |" in generate_markdown_report(report)


@pytest.mark.parametrize(
    ("flags", "yaml", "case", "retries"),
    [
        ({"retries": 0}, {"retries": 3}, {"retries": 2}, 0),
        ({}, {"retries": 3}, {"retries": 0}, 0),
        ({}, {"retries": 3}, {}, 3),
        ({}, {}, {}, None),
    ],
    ids=["flag", "case", "run", "nobody"],
)
def test_the_command_line_wins_over_the_case_and_the_case_over_the_run(flags, yaml, case, retries):
    layers = [
        SettingsLayer(ExecutionConfig(**flags), "command line"),
        SettingsLayer(ExecutionConfig(**yaml), "agent.yaml"),
    ]

    agent = with_case_settings(an_agent({"input": "go"} | case), resolve_settings(layers, {}))

    assert agent.test_cases[0].retries == retries


def test_saying_after_what_but_not_how_often_is_a_configuration_error(agent_dir):
    agent_dir.write_agent(test_cases=[{"name": "asks", "input": "go", "retry_on": ["failed"]}])

    ran = agent_dir.run("test")

    assert ran.code == 2
    assert "agent.yaml:13:3: asks: 'retry_on' has no effect without 'retries'" in ran.stderr


def test_a_resumed_run_may_try_more_often_than_the_first(agent_dir):
    agent_dir.write("bot.py", "def answer(message):\n    return 'hello'\n")
    agent_dir.write_agent(model=None, instructions=None, backend="bot:answer")

    first = agent_dir.run("test", "-o", "r.json")
    resumed = agent_dir.run("test", "--resume", "--retries", "2")

    assert (first.code, resumed.code) == (0, 0)
    assert "1 of 1 results are kept" in resumed.stderr
    assert json.loads((agent_dir.path / "r.json").read_text())["results"][0]["tries"] == []
