"""How much a run may spend."""

import asyncio

import pytest

from holodeck.lib.test_runner.scheduling.stop_policy import Budget
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Attempt, ModelCost
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.models.token_usage import Cost, Price, PriceTable, TokenUsage
from support.results import a_result


def spent(tokens=10, **fields):
    return a_result(**{"agent_time_ms": 1, "token_usage": TokenUsage.of(tokens, 0), **fields})


async def admitted(budget):
    """How many cases may start right now."""
    starts = [asyncio.create_task(budget.admit()) for _ in range(20)]
    await asyncio.wait(starts, timeout=0)
    await asyncio.sleep(0)
    done = [one for one in starts if one.done()]
    for one in starts:
        one.cancel()
    await asyncio.gather(*starts, return_exceptions=True)
    return len([one for one in done if one.result()])


async def test_without_limits_all_cases_start_at_once():
    assert await admitted(Budget(ExecutionConfig())) == 20


async def test_the_first_case_starts_alone_as_nobody_knows_what_cases_spend():
    assert await admitted(Budget(ExecutionConfig(max_tokens=1000))) == 1


@pytest.mark.parametrize(
    ("limit", "more"),
    [(1000, 20), (60, 5), (25, 1), (11, 1), (10, 0)],
    ids=["plenty", "so-many-as-fit", "one", "the-last-one", "used-up"],
)
async def test_as_many_start_as_are_likely_to_fit(limit, more):
    budget = Budget(ExecutionConfig(max_tokens=limit))
    await budget.admit()
    await budget.add_result(spent(10))

    assert await admitted(budget) == more


async def left_of(limits, result):
    budget = Budget(ExecutionConfig(**limits), "EUR")
    await budget.admit()
    await budget.add_result(result)
    await budget.admit()
    return budget.refused


JUDGED = MetricResult(
    metric_name="geval",
    score=1.0,
    model_used="openai/j",
    judge_calls=2,
    judge_tokens=TokenUsage.of(5, 5),
)
FAILED_TRY = Attempt(number=1, error="HTTP 500")
UNKNOWN = Cost(currency="EUR", total=None, agent=None, judges=0.0, unknown=["no price for x"])


@pytest.mark.parametrize(
    ("limits", "result", "why"),
    [
        ({"max_calls": 1}, spent(), "the budget of 1 call is used up (1 call spent)"),
        ({"max_calls": 3}, spent(metric_results=[JUDGED]), "(3 calls spent)"),
        ({"max_calls": 2}, spent(attempts=[FAILED_TRY]), "(2 calls spent)"),
        ({"max_tokens": 20}, spent(metric_results=[JUDGED]), "(20 tokens spent)"),
        ({"max_tokens": 99}, spent(token_usage=None), "of 99 tokens cannot be enforced"),
        (
            {"max_cost": 0.5},
            spent(cost=Cost(currency="EUR", total=0.75, agent=0.75, judges=0)),
            "the budget of 0.5 EUR is used up (0.75 EUR spent)",
        ),
        ({"max_cost": 0.5}, spent(cost=UNKNOWN), "of 0.5 EUR cannot be enforced"),
    ],
    ids=["calls", "judges", "tries", "tokens", "no-tokens", "cost", "no-cost"],
)
async def test_what_is_used_up_says_so(limits, result, why):
    assert why in await left_of(limits, result)


@pytest.mark.parametrize(
    "result",
    [
        a_result(Outcome.AGENT_ERROR, agent_response=None, errors=["no such file"]),
        spent(9),
    ],
    ids=["agent-never-asked", "less"],
)
async def test_what_is_left_lets_more_cases_start(result):
    assert await left_of({"max_tokens": 10, "max_calls": 2}, result) is None


async def test_time_is_up_when_it_is_up():
    now = [0.0]
    budget = Budget(ExecutionConfig(max_time=60), clock=lambda: now[0])
    assert await budget.admit()

    now[0] = 60.0

    assert not await budget.admit()
    assert budget.refused == "the budget of 60 s is used up"


async def test_the_reason_of_the_first_case_that_was_refused_stays():
    budget = Budget(ExecutionConfig(max_tokens=10))
    await budget.admit()
    await budget.add_result(spent(10))
    assert not await budget.admit()
    first = budget.refused

    await budget.add_result(spent(10))

    assert not await budget.admit()
    assert budget.refused == first == "the budget of 10 tokens is used up (10 tokens spent)"


PREPARED = ModelCost(model="openai/embeds", calls=3, tokens=TokenUsage.of(2_000_000, 0))
PRICES = PriceTable(models={"openai/embeds": Price(input=2, output=0)})


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_calls": 3}, "the budget of 3 calls is used up (3 calls spent)"),
        ({"max_tokens": 9}, "the budget of 9 tokens is used up (2,000,000 tokens spent)"),
        ({"max_cost": 4}, "the budget of 4.00 EUR is used up (4.00 EUR spent)"),
        ({"max_calls": 4}, None),
    ],
    ids=["calls", "tokens", "cost", "enough"],
)
async def test_what_documents_took_before_the_first_case_counts(limits, why):
    budget = Budget(ExecutionConfig(**limits), "EUR")
    budget.spend_before([PREPARED], PRICES)

    assert await budget.admit() is (why is None)
    assert budget.refused == why


async def test_unknown_tokens_of_documents_cannot_be_limited():
    budget = Budget(ExecutionConfig(max_tokens=9))
    budget.spend_before([ModelCost(model="openai/embeds", calls=1)], None)

    assert not await budget.admit()
    assert "cannot be enforced" in budget.refused
