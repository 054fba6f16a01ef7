"""What a plan counts, and what it says of what is not known."""

from holodeck.lib.selection.request import UNKNOWN_HISTORY, CaseHistory
from holodeck.lib.test_runner.scheduling.plan import build_plan, describe_plan
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

JUDGED = {"type": "judge", "name": "polite", "criteria": ["Is it polite?"], "votes": 3}
AGENT = {
    "name": "a",
    "model": {"provider": "openai", "name": "gpt-x", "api_key": "k"},
    "backend": "m:f",
    "evaluations": {"metrics": [JUDGED, JUDGED | {"name": "off", "enabled": False}]},
    "test_cases": [
        {"input": "one"},
        {"input": "two", "evaluations": [{"metric": "contains", "value": "x"}]},
        {"turns": [{"input": "three", "evaluations": [JUDGED]}, {"input": "four"}]},
    ],
}
SETTINGS = ExecutionConfig(parallel_test_cases=2)
KNOWN = CaseHistory(
    passed=True, duration_ms=90_000, agent_tokens=1000, judge_calls=3, judge_tokens=50, cost=0.25
)


def planned(past, **fields):
    return build_plan(Agent.model_validate(AGENT | fields), "agent.yaml", SETTINGS, past, None)


def test_calls_are_counted_by_turn_and_by_metric_that_asks():
    plan = planned([UNKNOWN_HISTORY] * 3)

    assert (plan.agent_calls.least, plan.agent_calls.most) == (4, 4)
    assert (plan.judge_calls.least, plan.judge_calls.most) == (3, None)


def test_repetitions_and_tries_are_counted_from_the_fewest_to_the_most():
    cases = [
        {"input": "all", "repeat": 4},
        {"input": "some", "repeat": 5, "min_pass": 2, "retries": 1},
        {"input": "whole", "repeat": 3, "stop_early": False, "evaluations": []},
    ]

    plan = planned([UNKNOWN_HISTORY] * 3, test_cases=cases)

    assert (plan.agent_calls.least, plan.agent_calls.most) == (1 + 2 + 3, 4 + 10 + 3)
    assert plan.judge_calls.least == 1 + 2


def test_a_sum_says_how_much_of_it_is_unknown():
    plan = planned([KNOWN, UNKNOWN_HISTORY, KNOWN], prices={"currency": "EUR", "models": {}})

    assert describe_plan(plan).splitlines() == [
        "Plan for a: 3 test cases",
        "  At the same time: 2",
        "  Agent calls: 4",
        "  Judge calls: at least 3, by earlier runs about 6 and 1 case unknown",
        "  Time: about 3 min 0 s and 1 case unknown, one case after the other",
        "  Agent tokens: about 2,000 and 1 case unknown",
        "  Judge tokens: about 100 and 1 case unknown",
        "  Cost: about 0.50 EUR and 1 case unknown",
    ]


def test_a_cost_that_is_not_known_is_called_unknown():
    plan = planned([UNKNOWN_HISTORY] * 3, prices={"models": {}})

    assert plan.cost.known is None
    assert "  Cost: unknown" in describe_plan(plan)
    assert planned([KNOWN] * 3).cost is None


def test_a_simulated_user_speaks_as_often_as_allowed_and_has_tokens_of_its_own():
    played = {"simulate": {"situation": "wants shoes"}, "max_turns": 4, "criteria": ["sells"]}
    cases = [{"input": "one"}, played]

    plan = planned([UNKNOWN_HISTORY, UNKNOWN_HISTORY], test_cases=cases)
    seen = planned([UNKNOWN_HISTORY, CaseHistory(simulator_tokens=70)], test_cases=cases)

    assert (plan.agent_calls.least, plan.agent_calls.most) == (2, 5)
    assert plan.simulator_tokens.unknown_cases == 1
    assert "  Tokens of simulated users: about 70" in describe_plan(seen)
    assert "simulated users" not in describe_plan(planned([UNKNOWN_HISTORY] * 3))
    agent = Agent.model_validate(AGENT | {"test_cases": cases})
    assert [one.input_kind for one in agent.test_cases] == ["input", "simulate"]
