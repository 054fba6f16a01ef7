"""`assert` on a result fails where the result is red, although every result is an object."""

import asyncio

import pytest

import holodeck
from holodeck import scenario
from holodeck.suite import Runner, Scenario, Suite
from support.participants import a_user, an_agent


def echo(text):
    return text


@pytest.mark.parametrize(("wanted", "is_green"), [("hello", True), ("goodbye", False)])
def test_a_report_and_its_results_are_true_where_they_passed(wanted, is_green):
    case = {"input": "hello", "evaluations": [{"metric": "contains", "value": wanted}]}

    report = holodeck.run(echo, [case])

    assert (bool(report), bool(report.results[0])) == (is_green, is_green)


@pytest.mark.parametrize(("second", "is_green"), [(echo, True), (lambda _: "no", False)])
def test_a_comparison_is_true_where_nothing_regressed(second, is_green):
    case = {"input": "hello", "evaluations": [{"metric": "contains", "value": "hello"}]}

    report = holodeck.compare_agents(echo, second, [case])

    assert bool(report) is is_green


@pytest.mark.parametrize(("wanted", "is_green"), [("hello", True), ("goodbye", False)])
def test_the_result_of_a_suite_is_true_where_every_scenario_passed(wanted, is_green):
    suite = Suite(name="s", scenarios=[Scenario(name="a", input="hello", expected_output=wanted)])

    result = Runner(echo).run_suite(suite)
    row = result.scenario_results[0]

    assert (bool(result), bool(row), bool(row.scores[0])) == (is_green, is_green, is_green)


@pytest.mark.parametrize("step", [scenario.succeed, scenario.fail])
def test_the_result_of_a_scenario_is_true_where_it_passed(step):
    script = [scenario.user("hi"), scenario.agent("hello"), step()]

    result = asyncio.run(scenario.run("case", "", [a_user(), an_agent()], script=script))

    assert bool(result) is (step is scenario.succeed)
