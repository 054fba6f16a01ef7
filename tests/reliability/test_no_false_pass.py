"""What is refused, empty or cannot be graded never passes, and says so in one place."""

import json

import pytest

from fakes import FakeOpenAI, Reply, case
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.faults import WAYS, agent_for, completion, run_cases, settings

GRADERS = """
import math

def raises(_):
    raise ValueError("the grader is broken")

def nothing(_):
    return None

def prose(_):
    return "Looks good to me, 10/10!"

def number_as_text(_):
    return "1.0"

def not_a_number(_):
    return math.nan

def eleven_of_ten(_):
    return 11

def negative(_):
    return -1

def empty(_):
    return {}

def score_as_text(_):
    return {"score": "1", "passed": True}

def passed_as_text(_):
    return {"score": 1.0, "passed": "false"}

def exits(_):
    raise SystemExit(0)
"""
BROKEN = [line[4:].partition("(")[0] for line in GRADERS.splitlines() if line.startswith("def ")]
LENIENT = [
    {"metric": "not_contains", "value": "goodbye"},
    {"metric": "regex", "pattern": ".*"},
    {"metric": "f1_score", "threshold": 0.0},
]
EMPTY = {
    "null": Reply(json=completion(content=None)),
    "empty": Reply(""),
    "white space": Reply(" \n\t\u00a0\u3000 "),
}
on_both_ways = pytest.mark.parametrize("way", WAYS)


@on_both_ways
async def test_an_empty_answer_never_passes_however_lenient_the_metrics(way, tmp_path):
    with FakeOpenAI(lambda request: EMPTY[request.prompt]) as server:
        cases = [
            {"name": name, "input": name, "ground_truth": "hello", "evaluations": LENIENT}
            for name in EMPTY
        ]
        agent = agent_for(server, tmp_path, 0, test_cases=cases, **WAYS[way])
        report = await run_cases(agent, tmp_path, settings(ExecutionConfig()))

    assert [result.outcome for result in report.results] == [Outcome.FAILED] * len(EMPTY)
    assert all("the agent returned an empty response" in result.errors for result in report.results)


async def test_a_grader_that_gives_no_verdict_is_an_error_of_its_own_and_never_a_pass(tmp_path):
    (tmp_path / "graders.py").write_text(GRADERS)
    cases = [
        {
            "name": name,
            "input": "hello",
            "evaluations": [
                {"metric": f"graders:{name}", "threshold": 0.5},
                {"metric": "contains", "value": "OK"},
            ],
        }
        for name in BROKEN
    ]
    with FakeOpenAI() as server:
        agent = agent_for(server, tmp_path, 0, test_cases=cases, **WAYS["chat"])
        report = await run_cases(agent, tmp_path, settings(ExecutionConfig()))

    assert {result.test_name: result.outcome for result in report.results} == dict.fromkeys(
        BROKEN, Outcome.METRIC_ERROR
    )
    rows = [result.metric_results for result in report.results]
    assert all(broken.error and broken.score is None for broken, _ in rows)
    assert all(fine.passed for _, fine in rows)


async def test_a_case_without_a_check_does_not_pass(tmp_path):
    with FakeOpenAI() as server:
        off = [{"metric": "contains", "value": "OK", "enabled": False}]
        cases = [{"input": "a"}, {"input": "b", "evaluations": off}]
        agent = agent_for(server, tmp_path, 0, test_cases=cases, **WAYS["chat"])
        report = await run_cases(agent, tmp_path, settings(ExecutionConfig()))

    assert [result.outcome for result in report.results] == [Outcome.UNCHECKED] * 2


@on_both_ways
async def test_three_refusals_in_a_row_end_the_run_before_the_rest_is_asked(way, tmp_path):
    with FakeOpenAI(Reply(status=401, json={"error": {"message": "no such key"}})) as server:
        agent = agent_for(server, tmp_path, 100, **WAYS[way])
        report = await run_cases(
            agent, tmp_path, settings(ExecutionConfig(), parallel_test_cases=1)
        )
        asked = len(server.requests)

    assert (asked, report.ran, len(report.results)) == (3, 3, 100)
    assert {result.skipped_by for result in report.results[3:]} == {"refused"}
    assert "no such key" in report.stopped
    assert "the other 97 cases are not run" in report.stopped


def test_a_run_that_gave_up_says_why_once_and_how_to_go_on(agent_dir):
    agent_dir.server.otherwise(status=401, json={"error": {"message": "no such key"}})
    agent_dir.write_agent(
        backend="chat",
        test_cases=[case(f"case {n}", "hello", contains="hello") for n in range(20)],
        execution={"parallel_test_cases": 1},
    )

    ran = agent_dir.run("test", "-o", "r.json")

    assert ran.code == 3
    assert len(agent_dir.server.requests) == 3
    assert (ran.stdout + ran.stderr).count("3 calls in a row were refused") == 1
    assert "Not run: 17" in ran.stdout
    assert "--retry-errors" in ran.stderr
    summary = json.loads((agent_dir.path / "r.json").read_text())["summary"]
    assert summary["outcomes"] == {"agent_error": 3, "skipped": 17}


def test_a_run_whose_time_is_over_is_no_success(agent_dir):
    """Whatever had passed by then."""
    agent_dir.server.when("slow", fault="hang").otherwise("hello")
    cases = [case("quick", "quick", contains="hello"), case("slow", "slow", contains="hello")]
    agent_dir.write_agent(backend="chat", test_cases=cases)

    ran = agent_dir.run("test", "--run-timeout", "3")

    assert ran.code == 5
    assert "PASS quick" in ran.stdout
    assert (ran.stdout + ran.stderr).count("the run exceeded its time limit of 3 s") == 1
