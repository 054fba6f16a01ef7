"""Runs that end with a test that does not pass, and what becomes of the other cases."""

import asyncio
import json

import pytest

from fakes import ScriptedBackend
from holodeck.config.settings import SettingsLayer, resolve_settings, with_case_settings
from holodeck.errors import ConfigError, ExitCode
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.scheduling.stop_policy import failure_limit
from holodeck.models.config import ExecutionConfig
from support.agents import an_agent, contains, executor_of


async def outcomes(tmp_path, *answers, **given):
    """How the cases end whose agent gives these answers, and the report."""
    cases = [{"input": str(n), "evaluations": [contains("OK")]} for n in range(len(answers))]
    backend = ScriptedBackend(lambda message: answers[int(message)])
    report = await executor_of(tmp_path, an_agent(*cases), backend, **given).execute_tests()
    return [str(result.outcome) for result in report.results], report


@pytest.mark.parametrize("broken", ["no", RuntimeError("lost")], ids=["failed", "error"])
async def test_the_first_test_that_does_not_pass_can_end_the_run(tmp_path, broken):
    found, report = await outcomes(tmp_path, "OK", broken, "OK", "OK", settings={"fail_fast": True})

    assert found[0] == "passed"
    assert found[2:] == ["skipped", "skipped"]
    assert report.stopped == "'1' did not pass (fail_fast), so the other 2 cases are not run"
    assert {result.skipped_by for result in report.results[2:]} == {"fail_fast"}
    assert exit_code(report) in {ExitCode.TEST_FAILED, ExitCode.EXECUTION}


async def test_the_run_ends_after_as_many_failures_as_asked(tmp_path):
    found, report = await outcomes(tmp_path, "no", "OK", "no", "no", settings={"maxfail": 2})

    assert found == ["failed", "passed", "failed", "skipped"]
    assert report.results[3].skip_reason == "2 cases did not pass (maxfail)"


async def test_a_failure_of_the_last_case_leaves_nothing_to_stop(tmp_path):
    found, report = await outcomes(tmp_path, "OK", "no", settings={"fail_fast": True})

    assert found == ["passed", "failed"]
    assert report.stopped is None


async def test_what_is_under_way_at_the_first_failure_is_cancelled_and_skipped(tmp_path):
    async def answer(message):
        await asyncio.sleep(30 if message == "slow" else 0)
        return "no"

    cases = [{"input": name, "evaluations": [contains("OK")]} for name in ("slow", "wrong", "next")]
    backend = ScriptedBackend(answer)
    settings = {"fail_fast": True}

    report = await executor_of(
        tmp_path, an_agent(*cases), backend, parallel=2, settings=settings
    ).execute_tests()

    assert [result.outcome for result in report.results] == ["skipped", "failed", "skipped"]
    assert backend.cancelled == 1


async def test_no_case_starts_after_two_that_fail_at_the_same_time(tmp_path):
    both = asyncio.Barrier(2)

    async def answer(message):
        if message in "01":
            await both.wait()
        return "no"

    cases = [{"input": str(n), "evaluations": [contains("OK")]} for n in range(6)]
    backend = ScriptedBackend(answer)
    settings = {"fail_fast": True}

    report = await executor_of(
        tmp_path, an_agent(*cases), backend, parallel=2, settings=settings
    ).execute_tests()

    assert [str(result.outcome) for result in report.results] == ["failed"] * 2 + ["skipped"] * 4
    assert len(backend.messages) == 2


def test_resuming_a_run_that_ended_early_runs_what_it_skipped(agent_dir):
    agent_dir.write("bot.py", "def answer(message):\n    return message\n")
    check = {"evaluations": [{"metric": "contains", "value": "OK"}]}
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="bot:answer",
        test_cases=[{"name": said, "input": said} | check for said in ("no", "OK 1", "OK 2")],
        execution={"fail_fast": True},
    )

    stopped = agent_dir.run("test", "-o", "r.md")
    shown = json.loads(agent_dir.run("report", "--format", "json").stdout)
    resumed = agent_dir.run("test", "--resume")

    told = "'no' did not pass (fail_fast), so the other 2 cases are not run"
    assert (stopped.code, resumed.code) == (1, 1)
    assert "  Failed: 1\n  Not run: 2\n" in stopped.stdout
    assert "SKIPPED" not in stopped.stdout
    assert told in stopped.stderr
    assert "Resume with: holodeck test agent.yaml --resume " in stopped.stderr
    assert f"**Stopped: {told}**" in (agent_dir.path / "r.md").read_text()
    assert (shown["stopped"], shown["stopped_by"]) == (told, "fail_fast")
    assert shown["summary"]["outcomes"] == {"failed": 1, "skipped": 2}
    assert "1 of 3 results are kept, 2 cases run" in resumed.stderr
    assert "Test Results: 2/3 passed" in resumed.stdout


@pytest.mark.parametrize(
    ("nearer", "farther", "most"),
    [
        ({"maxfail": 3}, {"fail_fast": True}, 3),
        ({"fail_fast": True}, {"maxfail": 3}, 1),
        ({"fail_fast": False}, {"fail_fast": True}, None),
        ({"fail_fast": False}, {"maxfail": 3}, None),
        ({}, {"maxfail": 3}, 3),
    ],
    ids=["number", "first", "off", "off-number", "below"],
)
def test_the_setting_nearest_to_the_user_says_when_a_run_ends(nearer, farther, most):
    layers = [SettingsLayer(ExecutionConfig(**nearer)), SettingsLayer(ExecutionConfig(**farther))]

    assert failure_limit(resolve_settings(layers, {})) == most


def test_variables_that_contradict_each_other_are_a_configuration_error():
    with pytest.raises(ConfigError, match="'fail_fast' and 'maxfail' are both set"):
        resolve_settings([], {"HOLODECK_FAIL_FAST": "1", "HOLODECK_MAXFAIL": "2"})


def test_flags_that_contradict_each_other_are_a_usage_error(agent_dir):
    agent_dir.write_agent()

    ran = agent_dir.run("test", "-x", "--maxfail", "2")

    assert ran.code == 2
    assert "'fail_fast' and 'maxfail' are both set; remove one of them" in ran.stderr


async def test_a_suite_that_fails_fast_leaves_the_others_alone(tmp_path):
    backend = ScriptedBackend({"a": "no", "b": "OK", "c": "OK", "d": "OK"})
    check = {"evaluations": [contains("OK")]}
    cases = [
        {"name": "a", "input": "a", "suite": "one", "fail_fast": True} | check,
        {"input": "b", "suite": "one", "fail_fast": True} | check,
        {"input": "c", "suite": "two", "fail_fast": True} | check,
        {"input": "d"} | check,
    ]

    report = await executor_of(tmp_path, an_agent(*cases), backend).execute_tests()

    assert [str(one.outcome) for one in report.results] == ["failed", "skipped", "passed", "passed"]
    told = "'a' did not pass, and suite 'one' has fail_fast"
    assert (report.results[1].skip_reason, report.results[1].skipped_by) == (told, "fail_fast")
    assert report.stopped is None
    assert exit_code(report) is ExitCode.TEST_FAILED


async def test_a_suite_that_does_not_fail_fast_is_spared_where_the_run_does(tmp_path):
    backend = ScriptedBackend({"a": "no", "b": "OK", "c": "no", "d": "OK"})
    check = {"evaluations": [contains("OK")]}
    cases = [
        {"input": "a", "suite": "one", "fail_fast": False} | check,
        {"input": "b", "suite": "one", "fail_fast": False} | check,
        {"name": "c", "input": "c"} | check,
        {"input": "d"} | check,
    ]

    ends = {"fail_fast": True}
    executor = executor_of(tmp_path, an_agent(*cases), backend, settings=ends)
    report = await executor.execute_tests()

    assert [str(one.outcome) for one in report.results] == ["failed", "passed", "failed", "skipped"]
    assert report.stopped_by == "fail_fast"


@pytest.mark.parametrize("flag", [True, False, None], ids=["on", "off", "unsaid"])
@pytest.mark.parametrize("own", [True, False], ids=["fast", "patient"])
def test_the_command_line_overrules_what_suites_say_of_failing_fast(flag, own):
    layers = [SettingsLayer(ExecutionConfig(fail_fast=flag), "command line")]

    agent = with_case_settings(
        an_agent({"input": "a", "fail_fast": own}), resolve_settings(layers, {})
    )

    assert agent.test_cases[0].fail_fast is (own if flag is None else None)
