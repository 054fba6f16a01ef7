"""What the shell is told, and that stderr says in one line what stopped a run."""

import pytest

from fakes import case
from support.checks import assert_one_error, assert_plain

PASSES = case("passes", "hello", contains="hello")
FAILS = case("fails", "hello", contains="goodbye")
RAISES = case("raises", "raise no such thing", contains="hello")
UNGRADED = case("ungraded", "hello", evaluations=[{"metric": "bot:no_score"}])
UNCHECKED = case("unchecked", "hello")


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        ([PASSES], 0, "[Test 1/1] PASS passes"),
        ([PASSES, FAILS], 1, "did not find 'goodbye'; got 'hello'"),
        ([PASSES, RAISES], 3, "RuntimeError: no such thing"),
        ([PASSES, UNGRADED], 4, "ValueError: the metric is broken"),
        ([PASSES, UNCHECKED], 5, "nothing is checked: add evaluations"),
        ([UNCHECKED, FAILS, UNGRADED, RAISES], 3, "Test Results: 0/4 passed"),
        ([UNCHECKED, FAILS, UNGRADED], 4, "Test Results: 0/3 passed"),
        ([UNCHECKED, FAILS], 1, "Test Results: 0/2 passed"),
    ],
    ids=["0", "1", "3", "4", "5", "3 before 4, 1, 5", "4 before 1, 5", "1 before 5"],
)
def test_the_worst_result_is_the_exit_code_and_results_go_to_stdout(
    bot_dir, write_bot, cases, code, said
):
    write_bot(test_cases=cases)

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert ran.code == code
    assert said in ran.stdout
    assert "hello" not in ran.stderr
    assert all(line.startswith("WARNING: agent.yaml:") for line in ran.stderr.splitlines())


def test_a_wrong_configuration_is_2_and_nothing_is_run(agent_dir):
    agent_dir.write_agent(name=None)

    ran = agent_dir.run("test")

    assert_one_error(ran, 2, "Configuration Error: agent.yaml:1:1: name: this key is missing")
    assert (ran.stdout, agent_dir.server.requests) == ("", [])


def test_a_flag_that_does_not_exist_is_2_and_names_the_one_that_does(bot_dir, write_bot):
    write_bot()

    ran = bot_dir.run("test", "--paralel", "2")

    assert_plain(ran)
    assert (ran.code, ran.stdout) == (2, "")
    assert "--parallel" in ran.stderr


def test_an_agent_that_cannot_be_made_is_3_and_its_reason_stands_on_stderr(bot_dir, write_bot):
    bot_dir.write("bot.py", "class Agent:\n    def __init__(self):\n        open('/no/such/key')\n")
    write_bot(backend="bot:Agent")

    ran = bot_dir.run("test")

    assert_one_error(ran, 3, "Execution Error: ", "FileNotFoundError", "/no/such/key")
    assert "Not run: 1" in ran.stdout


@pytest.mark.parametrize("cases", [[], None], ids=["an empty list", "no list"])
def test_nothing_to_test_is_5_and_not_success(bot_dir, write_bot, cases):
    write_bot(test_cases=cases)

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert ran.code == 5
    assert "nothing to test" in ran.stderr.lower()
