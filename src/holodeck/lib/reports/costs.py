"""The costs of cases and runs, as far as prices and tokens are known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from math import fsum

from holodeck.config.prices import agent_price_key, describe_list, list_price
from holodeck.models.agent import Agent
from holodeck.models.results.outcome import ModelCost, Outcome
from holodeck.models.test_result import PartResult, TestResult
from holodeck.models.token_usage import Cost, Price, PriceTable, TokenUsage

REPLAYED = "responses were replayed"
_A_MILLION = 1_000_000
_TWO_DECIMALS_FROM = 1
"""Smaller amounts are shown with three significant digits."""


@dataclass(frozen=True)
class Charge:
    """Tokens to be paid for; None if they are unknown."""

    model: str
    usage: TokenUsage | None
    who: str
    fallback: str | None = None
    """The model whose price counts if there is none for `model`."""

    def price(self, prices: PriceTable) -> Price | None:
        """Return the price of the tokens; None if there is none."""
        return self._written_price(prices) or list_price(prices, self.model)

    def is_listed(self, prices: PriceTable) -> bool:
        """Whether the price is the list price of the provider."""
        return self._written_price(prices) is None and self.price(prices) is not None

    def _written_price(self, prices: PriceTable) -> Price | None:
        price = prices.price_of(self.model)
        return prices.price_of(self.fallback) if price is None and self.fallback else price


def with_cost(result: TestResult, agent: Agent) -> TestResult:
    """Return the result with its cost, unless it is known, nothing ran or there are no prices."""
    if agent.prices is None or result.cost is not None or result.outcome is Outcome.SKIPPED:
        return result
    return result.model_copy(update={"cost": cost_of(result, agent.prices, agent_price_key(agent))})


def cost_of(result: TestResult, prices: PriceTable, agents: str) -> Cost:
    """Return what a case cost; `agents` is the model of the agent."""
    if any(run.recording is not None and run.recording.replayed for run in result.single_runs):
        return _cost(prices.unit, (None, None, None), [REPLAYED], {})
    groups = _charges(result, agents)
    parts = [_sum([_amount(charge, prices) for charge in charges]) for charges in groups]
    unknown, lists = [], {}
    for charge in chain(*groups):
        if charge.price(prices) is None:
            unknown.append(f"no price for {charge.model}")
        elif _amount(charge, prices) is None:
            unknown.append(f"{charge.who} does not report its tokens")
        if charge.is_listed(prices):
            lists[charge.model] = describe_list()
    return _cost(prices.unit, parts, unknown, lists)


def total_cost(results: Sequence[TestResult]) -> Cost | None:
    """Return what all the results cost; None if none of them has a cost."""
    costs = [result.cost for result in results if result.cost is not None]
    if not costs:
        return None
    without = sum(result.cost is None and any(_charges(result)) for result in results)
    currencies = sorted({cost.currency for cost in costs})
    unknown = list(dict.fromkeys(why for cost in costs for why in cost.unknown))
    if without:
        unknown.append(f"{without} results were recorded without prices")
    if len(currencies) > 1:
        unknown.append(f"results are in {' and '.join(currencies)}")
    is_whole = not without and len(currencies) == 1
    columns = zip(*((cost.agent, cost.judges, cost.simulators) for cost in costs), strict=True)
    parts = [_sum(column) if is_whole else None for column in columns]
    lists = {model: name for cost in costs for model, name in cost.list_prices.items()}
    return _cost(" or ".join(currencies), parts, unknown, lists)


def describe_cost(cost: Cost) -> str:
    """Return a cost as reports show it."""
    unit = cost.currency
    parts = f"agent {money(cost.agent, unit)}, judges {money(cost.judges, unit)}"
    if cost.simulators != 0:
        parts += f", simulated users {money(cost.simulators, unit)}"
    if cost.list_prices:
        lists = " and ".join(sorted(set(cost.list_prices.values())))
        parts += f"; {', '.join(cost.list_prices)} at the list price of {lists}"
    if cost.total is not None:
        return f"{money(cost.total, unit)} ({parts})"
    return f"unknown ({'; '.join(cost.unknown)}); {parts}"


def _agent_turns(result: TestResult) -> Iterator[PartResult]:
    """Return the calls of the agent: each turn, or the case of a single input."""
    for run in result.single_runs:
        yield from (part for part in run.parts if part.agent_time_ms is not None)


def known_usage(usage: TokenUsage | None) -> TokenUsage | None:
    """Return the tokens; None if there are none, because no model answers without any."""
    return usage if usage is not None and usage.total_tokens else None


def calls_of(result: TestResult) -> int:
    """Return the calls of models: agent and tools with failed attempts, judges, simulated users."""
    of_agent = sum(_calls(part) for part in _agent_turns(result))
    return of_agent + sum(cost.calls for cost in result.judge_costs + result.simulator_costs)


def tokens_of(result: TestResult) -> int | None:
    """Return the tokens of agent, judges and simulated users; None if some are unknown."""
    return _tokens(chain(*_charges(result)))


def amount_of(cost: ModelCost, prices: PriceTable) -> float | None:
    """Return what the calls of a model cost; None if that is unknown."""
    return _sum([_amount(charge, prices) for charge in _of_model(cost, "a tool")])


def known_tokens(cost: ModelCost) -> int | None:
    """Return the tokens of the calls of a model; None if they are unknown."""
    return _tokens(_of_model(cost, "a tool"))


def _tokens(charges: Iterable[Charge]) -> int | None:
    usages = [charge.usage for charge in charges]
    known = [usage.total_tokens for usage in usages if usage is not None]
    return sum(known) if len(known) == len(usages) else None


def _calls(part: PartResult) -> int:
    answered = part.agent_response is not None
    of_tools = sum(call.model_cost.calls for call in part.tool_invocations if call.model_cost)
    return max(1, len(part.attempts) + answered) + of_tools


def _agent_charges(result: TestResult, model: str) -> Iterator[Charge]:
    """Return what the agent costs: its answers, what is known of failed attempts, and tools."""
    for part in _agent_turns(result):
        if part.evidence.token_usage == "tap":  # noqa: S105 - not a password
            for request in part.model_requests:
                if request.token_usage is not None:
                    yield Charge(request.model, request.token_usage, "the agent", model)
            continue
        is_known = part.evidence.token_usage is not None
        usage = part.token_usage if is_known else known_usage(part.token_usage)
        if usage is not None or part.agent_response is not None:
            costs = [call.model_cost for call in part.tool_invocations if call.model_cost]
            of_tools = sum((cost.tokens for cost in costs), TokenUsage())
            known = None if usage is None else usage - of_tools
            yield Charge(part.model or model, known, "the agent", model)
        for call in part.tool_invocations:
            yield from _of_model(call.model_cost, f"the tool {call.name!r}")


def _charges(result: TestResult, model: str = "") -> tuple[list[Charge], ...]:
    """Return what the agent, the judges and the simulated users cost, in every single run.

    `model` is that of the agent, for its price.
    """
    judges: list[Charge] = []
    users: list[Charge] = []
    for run in result.single_runs:
        for row in run.rows:
            if row.judge_calls > row.judge_failed:
                judge = row.model_used or "unknown"
                judges.append(Charge(judge, known_usage(row.judge_tokens), f"the judge {judge}"))
        judges += _of_model(run.judge_cost, "the judge of 'criteria'")
        users += _of_model(run.simulator_cost, "the simulated user")
    return [*_agent_charges(result, model)], judges, users


def _of_model(cost: ModelCost | None, who: str) -> Iterator[Charge]:
    if cost is not None and cost.calls > cost.failed:
        yield Charge(cost.model or "unknown", known_usage(cost.tokens), who)


def _amount(charge: Charge, prices: PriceTable) -> float | None:
    price = charge.price(prices)
    if price is None:
        return None
    if charge.usage is None:  # the cost of a free model is known all the same
        return 0.0 if price.input == price.output == 0 else None
    usage = charge.usage
    cost = usage.prompt_tokens * price.input + usage.completion_tokens * price.output
    return cost / _A_MILLION


def _cost(
    currency: str, parts: Sequence[float | None], unknown: list[str], lists: dict[str, str]
) -> Cost:
    agent, judges, simulators = parts
    return Cost(
        currency=currency,
        total=_sum(parts),
        agent=agent,
        judges=judges,
        simulators=simulators,
        unknown=list(dict.fromkeys(unknown)),
        list_prices=lists,
    )


def _sum(amounts: Sequence[float | None]) -> float | None:
    """Return the sum; None if any of the amounts is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return fsum(known) if len(known) == len(amounts) else None


def money(amount: float | None, currency: str) -> str:
    """Return an amount for people."""
    if amount is None:
        return "unknown"
    if amount >= _TWO_DECIMALS_FROM:
        return f"{amount:,.2f} {currency}"
    return f"{Decimal(f'{amount:.3g}'):f} {currency}"
