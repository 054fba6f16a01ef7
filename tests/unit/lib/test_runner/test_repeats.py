"""Cases that are repeated: how many must pass, when it ends, and what is told of it."""

import asyncio
import json
import re
from itertools import product

import pytest

from fakes import ScriptedBackend
from holodeck.config.settings import SettingsLayer, resolve_settings, with_case_settings
from holodeck.errors import BackendSessionError, ConfigError, ExitCode
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.case_run import FinishedRun
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.lib.test_runner.scheduling.repeats import (
    PassBar,
    combine_repetitions,
    pass_bar,
    run_repeated,
)
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import TokenUsage
from support.agents import an_agent, contains, executor_of
from support.results import a_result

LOST = RuntimeError("the line is dead")
PASS, FAIL, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.AGENT_ERROR
BROKEN, NOTHING = Outcome.METRIC_ERROR, Outcome.UNCHECKED


async def ran(tmp_path, answers, *, parallel=1, **case):
    """The report of one repeated case whose agent gives one answer after the other."""
    left = iter(answers)
    backend = ScriptedBackend(lambda _: next(left))
    repeated = {"name": "asks", "input": "go", "evaluations": [contains("OK")]} | case
    executor = executor_of(tmp_path, an_agent(repeated), backend, parallel=parallel)
    return await executor.execute_tests(), backend


@pytest.mark.parametrize(
    ("planned", "needed", "ends", "outcome"),
    [
        (3, 3, [PASS, PASS, PASS], PASS),
        (3, 2, [PASS, FAIL, PASS], Outcome.FLAKY),
        (3, 2, [PASS, ERROR, PASS], Outcome.FLAKY),
        (3, 2, [PASS, PASS], PASS),
        (2, 2, [PASS, Outcome.FLAKY], Outcome.FLAKY),
        (3, 2, [FAIL, FAIL], FAIL),
        (3, 3, [FAIL], FAIL),
        (3, 2, [PASS, FAIL, ERROR], ERROR),
        (3, 2, [PASS, FAIL, BROKEN], BROKEN),
        (3, 2, [ERROR, BROKEN, PASS], ERROR),
        (3, 2, [FAIL, FAIL, ERROR], FAIL),
        (3, 3, [ERROR], ERROR),
        (3, 2, [PASS], ERROR),
        (2, 2, [NOTHING, NOTHING], NOTHING),
        (2, 2, [NOTHING, FAIL], FAIL),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, list) else str(value),
)
def test_a_repeated_case_fails_only_if_what_broke_could_not_have_saved_it(
    planned, needed, ends, outcome
):
    assert PassBar(planned, needed).outcome([a_result(one) for one in ends]) is outcome


def test_a_verdict_that_is_decided_never_turns_whatever_comes_after():
    for needed in range(1, 5):
        bar = PassBar(4, needed)
        for ends in product([PASS, FAIL], repeat=4):
            final = bar.outcome([a_result(one) for one in ends]).is_pass
            known = [n for n in range(5) if bar.is_decided(ends[:n].count(PASS), n)]
            early = [bar.outcome([a_result(one) for one in ends[:n]]).is_pass for n in known]
            assert known[-1] == 4
            assert set(early) == {final}


@pytest.mark.parametrize(
    ("says", "needed"),
    [
        ({"repeat": 5}, 5),
        ({"repeat": 5, "min_pass": 2}, 2),
        ({"repeat": 10, "min_pass_rate": 0.7}, 7),
        ({"repeat": 3, "min_pass_rate": 0.5}, 2),
        ({"repeat": 3, "min_pass_rate": 0.01}, 1),
    ],
    ids=["all", "number", "rate", "rounded-up", "at-least-one"],
)
def test_all_repetitions_must_pass_unless_the_case_says_how_many(says, needed):
    assert pass_bar(TestCaseModel.model_validate({"input": "go"} | says)).needed == needed


async def test_a_case_that_passes_often_enough_is_flaky_and_passes(tmp_path):
    report, _ = await ran(tmp_path, ["OK", "no", "OK"], repeat=3, min_pass=2, stop_early=False)

    [result] = report.results
    assert result.outcome == "flaky"
    assert [one.outcome for one in result.repeats.runs] == ["passed", "failed", "passed"]
    assert result.reasons()[0] == "2 of 3 repetitions passed, 2 needed"
    assert exit_code(report) is ExitCode.PASSED


@pytest.mark.parametrize(
    ("answers", "says", "asked"),
    [
        (["OK"] * 9, {"repeat": 9, "min_pass": 2}, 2),
        (["no", *["OK"] * 8], {"repeat": 9}, 1),
        (["no", "OK", "no", "no"], {"repeat": 4, "min_pass": 2}, 4),
        (["OK"] * 4, {"repeat": 4, "min_pass": 1, "stop_early": False}, 4),
    ],
    ids=["passed", "lost", "last", "all-wanted"],
)
async def test_repetitions_end_when_the_verdict_is_known(tmp_path, answers, says, asked):
    report, backend = await ran(tmp_path, answers, **says)

    assert len(backend.messages) == asked
    assert len(report.results[0].repeats.runs) == asked


async def test_repetitions_run_at_the_same_time_but_no_more_than_slots(tmp_path):
    backend = ScriptedBackend(lambda _: "OK", delay_s=0.01)
    case = {"input": "go", "evaluations": [contains("OK")], "repeat": 8}

    await executor_of(tmp_path, an_agent(case), backend, parallel=3).execute_tests()

    assert backend.peak_in_flight == 3
    assert len(backend.messages) == 8


async def test_no_repetition_begins_that_the_verdict_may_not_need(tmp_path):
    backend = ScriptedBackend(lambda _: "OK", delay_s=0.01)
    case = {"input": "go", "evaluations": [contains("OK")], "repeat": 8, "min_pass": 2}

    await executor_of(tmp_path, an_agent(case), backend, parallel=8).execute_tests()

    assert len(backend.messages) == 2


async def test_many_repeated_cases_share_the_slots(tmp_path):
    backend = ScriptedBackend(lambda _: "OK", delay_s=0.005)
    cases = [{"input": str(n), "expected_tools": [], "repeat": 3} for n in range(6)]

    report = await executor_of(tmp_path, an_agent(*cases), backend, parallel=4).execute_tests()

    assert backend.peak_in_flight <= 4
    assert [one.test_input for one in report.results] == [str(n) for n in range(6)]
    assert report.summary.passed == 6


async def test_a_wrong_key_ends_the_repetitions(tmp_path):
    refused = BackendSessionError("HTTP 401: wrong key", permanent=True)

    report, backend = await ran(tmp_path, [refused] * 5, repeat=5, stop_early=False)

    assert len(backend.messages) == 1
    assert report.results[0].outcome == "agent_error"
    assert report.results[0].errors == ["HTTP 401: wrong key"]


async def test_cancelling_a_run_ends_the_repetitions_under_way(tmp_path):
    all_asked = asyncio.Event()

    async def answer(_):
        if len(backend.messages) == 4:
            all_asked.set()
        await asyncio.sleep(30)

    backend = ScriptedBackend(answer)
    case = {"input": "go", "expected_tools": [], "repeat": 4}
    executor = executor_of(tmp_path, an_agent(case), backend, parallel=4)

    run = asyncio.create_task(executor.execute_tests())
    await all_asked.wait()
    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run
    assert backend.cancelled == 4


async def test_each_repetition_may_be_tried_again(tmp_path):
    report, _ = await ran(tmp_path, [LOST, "OK", "OK"], repeat=2, retries=1)

    [result] = report.results
    assert result.outcome == "passed"
    assert [len(one.tries) for one in result.repeats.runs] == [1, 0]


async def test_tokens_and_scores_of_every_repetition_count(tmp_path):
    spent = TokenUsage.of(1, 2)
    answers = [ExecutionResult(said, token_usage=spent) for said in ("OK", "no", "OK", "OK")]

    report, _ = await ran(tmp_path, answers, repeat=4, min_pass=3)

    [result] = report.results
    assert (result.token_usage, report.summary.token_usage) == (TokenUsage.of(4, 8),) * 2
    assert report.summary.average_scores == {"contains": 0.75}
    [spread] = result.repeats.spread
    assert (spread.mean, spread.least, spread.most, spread.deviation) == (0.75, 0, 1, 0.5)


@pytest.mark.parametrize(
    ("passed", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (4, 5, 0.3755, 0.9638), (81, 263, 0.2553, 0.3662), (10, 10, 0.7225, 1)],
    ids=["none", "some", "published", "all"],
)
def test_the_interval_is_that_of_wilson(passed, of, low, high):
    runs = [a_result(PASS if n < passed else FAIL) for n in range(of)]

    found = combine_repetitions(TestCaseModel(input="go"), PassBar(of, of), runs).repeats.interval

    assert found == pytest.approx((low, high), abs=0.0001)


async def test_the_report_shows_passes_interval_spread_and_what_failed(tmp_path):
    report, _ = await ran(tmp_path, ["OK", "no", "OK"], repeat=3, min_pass=2, stop_early=False)

    text = generate_markdown_report(report)

    assert "**2 of 3 repetitions passed, 2 needed**; 95 % interval 20.8 % to 93.9 %" in text
    assert "| contains | 0.6667 | 0 | 1 | 0.5774 | 3 |" in text
    assert "#### Repetition 2 ❌ FAILED" in text
    assert "#### Repetition 1" not in text
    assert "**1 of 1 test passed** (100.0%): 1 flaky" in text
    assert "| pass@k | k=1: 66.7 %, k=2: 100.0 %, k=3: 100.0 % |\n" in text
    assert "| pass^k | k=1: 66.7 %, k=2: 33.3 %, k=3: 0.0 % |\n" in text


@pytest.mark.parametrize(
    ("flags", "yaml", "case", "bar"),
    [
        ({"repeat": 7}, {"repeat": 5}, {"repeat": 3}, (7, 7)),
        ({"min_pass": 1}, {}, {"repeat": 4, "min_pass_rate": 0.9}, (4, 1)),
        ({}, {"repeat": 5, "min_pass": 4}, {}, (5, 4)),
        ({}, {"repeat": 5, "min_pass": 4}, {"min_pass_rate": 0.2}, (5, 1)),
        ({"repeat": 1, "min_pass": 1}, {"repeat": 5, "min_pass": 4}, {}, (1, 1)),
    ],
    ids=["flag", "flag-over-rate", "run", "rate-of-case", "once"],
)
def test_the_bar_nearest_to_the_user_holds(flags, yaml, case, bar):
    layers = [
        SettingsLayer(ExecutionConfig(**flags), "command line"),
        SettingsLayer(ExecutionConfig(**yaml)),
    ]

    agent = with_case_settings(an_agent({"input": "go"} | case), resolve_settings(layers, {}))

    found = pass_bar(agent.test_cases[0])
    assert (found.planned, found.needed) == bar


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"min_pass": 2}, "'min_pass' has no effect without 'repeat'; add 'repeat: 5'"),
        ({"min_pass_rate": 0.5}, "'min_pass_rate' has no effect without 'repeat'"),
        ({"repeat": 2, "min_pass": 3}, "'min_pass' is 3, but 'repeat' is 2"),
        ({"repeat": 2, "min_pass": 1, "min_pass_rate": 0.5}, "are both set; remove one"),
        ({"repeat": 0}, "greater than or equal to 1"),
        ({"repeat": 2, "min_pass": 0}, "greater than or equal to 1"),
        ({"repeat": 2, "min_pass_rate": 0}, "greater than 0"),
    ],
    ids=["alone", "rate-alone", "too-many", "both", "never", "always-green", "always-green-rate"],
)
def test_a_bar_that_makes_no_sense_is_refused(case, why):
    with pytest.raises((ConfigError, ValueError), match=why):
        with_case_settings(an_agent({"input": "go"} | case), ExecutionConfig())


def test_repeats_are_shown_recorded_graded_again_and_resumed(agent_dir):
    agent_dir.write(
        "bot.py", "said = iter(['OK', 'no', 'OK'] * 9)\ndef answer(_):\n    return next(said)\n"
    )
    check = {"evaluations": [{"metric": "contains", "value": "OK"}]}
    cases = [{"name": "asks", "input": "go", **check, "repeat": 3, "min_pass": 2}]
    whole = {"model": None, "instructions": None, "backend": "bot:answer"}
    agent_dir.write_agent(**whole, test_cases=cases)

    first = agent_dir.run("test", "--no-stop-early", "-o", "r.json")
    shown = agent_dir.run("report", "--format", "json")
    resumed = agent_dir.run("test", "--no-stop-early", "--resume")
    agent_dir.write_agent(**whole, test_cases=[cases[0] | {"min_pass": 3}])
    graded = agent_dir.run("score")

    assert (first.code, shown.code, resumed.code, graded.code) == (0, 0, 0, 1)
    assert "[Test 1/1] FLAKY asks [2/3]\n    2 of 3 repetitions passed, 2 needed\n" in first.stdout
    assert "    repetition 2: contains: " in first.stdout
    assert "  Flaky: 1\n" in first.stdout
    report = json.loads((agent_dir.path / "r.json").read_text())
    assert json.loads(shown.stdout)["results"] == report["results"]
    assert report["summary"]["pass_at_k"] == pytest.approx({"1": 2 / 3, "2": 1, "3": 1})
    assert "1 of 1 results are kept" in resumed.stderr
    assert "[Test 1/1] FAIL asks [2/3]\n" in graded.stdout
    assert re.search(
        r"FAIL asks \(agent\.yaml:\d+\)\n    2 of 3 repetitions passed, 3 needed", graded.stdout
    )


def test_the_command_that_resumes_repeats_as_often(agent_dir):
    agent_dir.write("bot.py", "def answer(message):\n    return message\n")
    check = {"evaluations": [{"metric": "contains", "value": "OK"}]}
    cases = [{"name": said, "input": said} | check for said in ("no", "OK")]
    agent_dir.write_agent(model=None, instructions=None, backend="bot:answer", test_cases=cases)

    stopped = agent_dir.run("test", "-x", "--repeat", "2")
    resumed = agent_dir.run("test", "--resume", "--repeat", "2")
    other = agent_dir.run("test", "--resume")

    assert (stopped.code, resumed.code, other.code) == (1, 1, 2)
    assert stopped.stderr.endswith(" --repeat 2\n")
    assert "1 of 2 results are kept" in resumed.stderr
    assert "[Test 2/2] PASS OK [2/2]" in resumed.stdout


def test_the_input_and_history_of_a_repeated_case_are_those_of_its_first_run():
    case = TestCaseModel(input="go", repeat=2)
    earlier = [[{"role": "user", "content": text}] for text in ("a", "b")]
    runs = [
        a_result(test_name=text, test_input=text, history=history)
        for text, history in zip("ab", earlier, strict=True)
    ]

    whole = combine_repetitions(case, PassBar(2, 2), runs)

    assert (whole.test_name, whole.test_input, whole.history) == ("a", "a", runs[0].history)
    none = combine_repetitions(case, PassBar(2, 2), [])
    assert (none.test_name, none.test_input, none.history) == (None, "go", [])


@pytest.mark.parametrize(
    ("refusals", "refusal"),
    [(["key", "quota"], "key"), (["key", None], None), ([None, "key"], None), ([None], None)],
)
async def test_a_repeated_case_was_refused_only_if_each_of_its_runs_was(refusals, refusal):
    left = iter(refusals)

    async def run(_number, _is_wanted):
        return FinishedRun(a_result(), refusal=next(left))

    case = TestCaseModel(input="go", repeat=len(refusals))
    finished = await run_repeated(case, len(refusals), run)

    assert finished.refusal == refusal
