"""Agents and checks that change what they share with holodeck: streams, the folder, exceptions."""

import json

import pytest

from support.checks import assert_plain

MEDDLING = """
import contextlib
import os
import sys

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

def raises_mute(message):
    raise Mute

def scores_mute(observation):
    raise Mute

def closes_stdout(message):
    if not sys.stdout.closed:
        print("from the agent")
        sys.stdout.close()
    return message

def closes_descriptor(message):
    with contextlib.suppress(OSError):
        os.close(1)
    return message

def removes_stdout(message):
    sys.stdout = None
    return message

def closes_stderr(message):
    sys.stderr.close()
    return message

def moves(message):
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
    return message

def answer(message):
    return message
"""
PASSING = {"metric": "contains", "value": "hi"}


@pytest.fixture
def write_meddler(agent_dir):
    """Writes an agent.yaml of two cases for a function of `MEDDLING`."""

    def write(function, *evaluations):
        agent_dir.write("meddler.py", MEDDLING)
        cases = [{"name": name, "input": f"hi {name}"} for name in ("one", "two")]
        agent_dir.write_agent(
            model=None,
            instructions=None,
            backend=f"meddler:{function}",
            test_cases=[one | {"evaluations": evaluations or [PASSING]} for one in cases],
        )
        return agent_dir

    return write


@pytest.mark.parametrize("function", ["closes_stdout", "closes_descriptor", "removes_stdout"])
def test_an_agent_that_closes_stdout_costs_neither_results_nor_report(write_meddler, function):
    folder = write_meddler(function)

    ran = folder.run("test", "-o", "r.json")

    assert_plain(ran)
    assert ran.code == 0
    assert "[Test 2/2] PASS two" in ran.stdout
    assert "Test Results: 2/2 passed" in ran.stdout
    assert json.loads((folder.path / "r.json").read_text())["summary"]["passed"] == 2


def test_an_agent_that_closes_stdout_is_told_of(write_meddler):
    ran = write_meddler("closes_stdout").run("test")

    assert ran.stdout.startswith("from the agent\n[Test 1/2]")
    assert "code under test closed stdout" in ran.stderr


def test_an_agent_that_closes_stderr_does_not_cost_the_report(write_meddler):
    folder = write_meddler("closes_stderr")

    ran = folder.run("test", "-o", "r.json")

    assert_plain(ran)
    assert ran.code == 0
    assert "code under test closed stderr" in ran.stderr
    assert (folder.path / "r.json").is_file()


def test_an_agent_that_changes_the_folder_does_not_move_the_report(write_meddler):
    folder = write_meddler("moves")

    ran = folder.run("test", "-o", "out/r.json")

    assert ran.code == 0
    assert "Report saved to out/r.json" in ran.stdout
    assert (folder.path / "out" / "r.json").is_file()
    assert [one.name for one in (folder.path / "elsewhere").rglob("*")] == ["elsewhere"]


def test_an_agents_exception_without_words_is_an_error_of_the_case(write_meddler):
    ran = write_meddler("raises_mute").run("test")

    assert_plain(ran)
    assert ran.code == 3
    assert "    Mute" in ran.stdout


def test_a_graders_exception_without_words_is_an_error_of_the_metric(write_meddler):
    grader = {"type": "code", "name": "g", "grader": "meddler:scores_mute"}

    ran = write_meddler("answer", grader).run("test")

    assert_plain(ran)
    assert ran.code == 4
    assert "    g: scores_mute failed: Mute" in ran.stdout
