"""What cases and runs have cost."""

import re

import pytest

from holodeck.lib.reports.costs import cost_of, describe_cost
from holodeck.lib.reports.summary import summarize
from holodeck.models.test_result import MetricResult, Outcome, TurnResult
from holodeck.models.token_usage import Cost, Price, PriceTable, TokenUsage
from support.results import a_result

PRICES = PriceTable(
    models={"openai/gpt": Price(input=1, output=10), "openai/judge": Price(input=2, output=20)}
)
SOME = TokenUsage.of(1000, 100)


def judged(model="openai/judge", tokens=SOME):
    return MetricResult(
        metric_name="geval", score=1.0, model_used=model, judge_calls=1, judge_tokens=tokens
    )


def asked(**fields):
    return a_result(**{"agent_time_ms": 5, "token_usage": SOME, **fields})


def test_agent_and_judges_are_told_apart():
    cost = cost_of(asked(metric_results=[judged()]), PRICES, "openai/gpt")

    assert (cost.agent, cost.judges, cost.total) == pytest.approx((0.002, 0.004, 0.006))
    assert describe_cost(cost) == "0.006 USD (agent 0.002 USD, judges 0.004 USD)"


def test_a_model_without_a_price_costs_something_unknown():
    cost = cost_of(asked(metric_results=[judged("openai/other")]), PRICES, "openai/gpt")

    assert (cost.total, cost.agent, cost.judges) == (None, 0.002, None)
    said = "unknown (no price for openai/other); agent 0.002 USD, judges unknown"
    assert describe_cost(cost) == said


def test_the_price_of_the_model_that_answered_counts_before_that_of_the_agent():
    prices = PriceTable(models={**PRICES.models, "agent": Price(input=100, output=100)})

    named = cost_of(asked(model="gpt"), PriceTable(models={"gpt": Price(input=1, output=10)}), "a")
    unnamed = cost_of(asked(), prices, "agent")
    unpriced = cost_of(asked(model="gpt-4o-mini"), prices, "agent")

    assert (named.agent, unnamed.agent, unpriced.agent) == pytest.approx((0.002, 0.11, 0.11))


def test_a_list_price_is_shown_with_the_list():
    cost = cost_of(asked(model="gpt-4o-mini"), PriceTable(), "agent")

    assert cost.total == pytest.approx(0.00021)
    [(model, name)] = cost.list_prices.items()
    assert re.fullmatch(r"genai-prices [\d.]+ on \d{4}-\d\d-\d\d", name)
    assert f"; {model} at the list price of {name})" in describe_cost(cost)


@pytest.mark.parametrize("usage", [None, TokenUsage()], ids=["none", "zero"])
def test_an_answer_without_tokens_costs_something_unknown(usage):
    cost = cost_of(asked(token_usage=usage), PRICES, "openai/gpt")

    assert cost.total is None
    assert cost.unknown == ["the agent does not report its tokens"]


def test_what_is_free_is_free_whatever_its_tokens():
    assert cost_of(asked(token_usage=None), PRICES, "local/smollm2").total == 0


def test_an_agent_that_was_never_asked_costs_nothing():
    never = a_result(Outcome.AGENT_ERROR, agent_response=None, errors=["no such file"])

    assert cost_of(never, PRICES, "openai/gpt").total == 0


def test_one_turn_without_tokens_makes_the_case_unknown():
    turns = [
        TurnResult(input="a", agent_response="b", agent_time_ms=1, token_usage=usage)
        for usage in (SOME, TokenUsage())
    ]

    assert cost_of(asked(turns=turns), PRICES, "openai/gpt").agent is None


def test_judges_of_turns_count():
    turn = TurnResult(
        input="a", agent_response="b", agent_time_ms=1, token_usage=SOME, metric_results=[judged()]
    )

    assert cost_of(asked(turns=[turn]), PRICES, "openai/gpt").judges == pytest.approx(0.004)


def a_cost(amount, currency="USD", unknown=()):
    return a_result(
        agent_time_ms=1,
        token_usage=SOME,
        cost=Cost(currency=currency, total=amount, agent=amount, judges=0, unknown=list(unknown)),
    )


def test_a_run_without_prices_has_no_cost():
    assert summarize([a_result()], 0).cost is None


def test_a_run_costs_the_sum_of_its_cases():
    assert describe_cost(summarize([a_cost(1.5), a_cost(2.25)], 0).cost) == (
        "3.75 USD (agent 3.75 USD, judges 0 USD)"
    )


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (a_cost(None, unknown=["no price for x"]), "no price for x"),
        (asked(), "1 results were recorded without prices"),
        (a_cost(1, "EUR"), "results are in EUR and USD"),
    ],
    ids=["a-part-unknown", "recorded-before-prices", "currencies"],
)
def test_a_run_of_which_a_part_is_unknown_has_no_total(other, why):
    total = summarize([a_cost(1), other], 0).cost

    assert total.total is None
    assert total.unknown == [why]


def test_amounts_of_any_size_can_be_read():
    assert [
        describe_cost(a_cost(amount).cost).split(" (")[0] for amount in (0.00000123, 1234.567)
    ] == [
        "0.00000123 USD",
        "1,234.57 USD",
    ]
