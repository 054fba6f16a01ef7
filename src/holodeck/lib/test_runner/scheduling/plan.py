"""The plan of a run: its cases and calls, and estimates from recorded runs."""

from collections.abc import Callable, Sequence
from math import fsum
from typing import Literal

from holodeck.lib.evaluators.build import metrics_of, needs_judge
from holodeck.lib.selection.request import CaseHistory
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.test_runner.scheduling.repeats import pass_bar
from holodeck.models.agent import Agent
from holodeck.models.base import MAX_TURNS, Count, Model
from holodeck.models.cases.conversation import step_kind, step_value
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.origin import Selection
from holodeck.models.test_case import TestCaseModel


class Bounds(Model):
    """How often something happens if no request is retried."""

    least: Count
    most: Count | None
    """None if it is unknown."""


class Estimate(Model):
    """A sum over the cases, estimated from recorded runs."""

    known: float | None
    """The sum over the cases with results; None if no case has results."""
    unknown_cases: Count
    """The number of cases without results."""


class RunPlan(Model):
    """What a run would do."""

    schema_version: Literal[1] = 1
    agent_name: str
    agent_config_path: str
    cases: Count
    """Cases that would run."""
    skipped: Count = 0
    """Further cases, which have `skip`."""
    selection: Selection | None = None
    """The selected cases; None if all cases run."""
    parallel: int | str
    """How many cases run at the same time."""
    agent_calls: Bounds
    judge_calls: Bounds
    duration_ms: Estimate
    """The sum of the durations of the cases."""
    agent_tokens: Estimate
    expected_judge_calls: Estimate
    judge_tokens: Estimate
    simulator_tokens: Estimate
    """Only cases with a simulated user count."""
    currency: str | None = None
    """None if the configuration has no prices."""
    cost: Estimate | None = None


def build_plan(
    agent: Agent,
    agent_config_path: str,
    settings: ExecutionConfig,
    history: Sequence[CaseHistory],
    selection: Selection | None,
) -> RunPlan:
    """Return what a run of the agent's cases would do; `history` is that of each case."""
    cases = agent.test_cases or []
    run = [
        (case, estimate) for case, estimate in zip(cases, history, strict=True) if case.skip is None
    ]
    past = [estimate for _, estimate in run]
    judge_calls = sum(_judged_checks(agent, case) * _least_runs(case) for case, _ in run)
    calls = [_agent_calls(case) for case, _ in run]
    return RunPlan(
        agent_name=agent.name,
        agent_config_path=agent_config_path,
        cases=len(run),
        skipped=len(cases) - len(run),
        selection=selection,
        parallel=settings.parallel_test_cases or 1,
        agent_calls=Bounds(
            least=sum(least for least, _ in calls), most=sum(most for _, most in calls)
        ),
        judge_calls=Bounds(least=judge_calls, most=None if judge_calls else 0),
        duration_ms=_estimate([estimate.duration_ms for estimate in past]),
        agent_tokens=_estimate([estimate.agent_tokens for estimate in past]),
        expected_judge_calls=_estimate([estimate.judge_calls for estimate in past]),
        judge_tokens=_estimate([estimate.judge_tokens for estimate in past]),
        simulator_tokens=_estimate(
            [
                estimate.simulator_tokens
                for case, estimate in run
                if case.simulate is not None and settings.recording != "replay"
            ]
        ),
        currency=None if agent.prices is None else agent.prices.unit,
        cost=None if agent.prices is None else _estimate([estimate.cost for estimate in past]),
    )


def _agent_calls(case: TestCaseModel) -> tuple[int, int]:
    """Return how often a case calls the agent, at least and at most."""
    turns = len(case.turns) if case.turns is not None else 1
    least, most = (1, _most_turns(case)) if case.is_scripted_or_simulated else (turns, turns)
    attempts = 1 + (case.retries or 0)
    return least * _least_runs(case), most * (case.repeat or 1) * attempts


def _least_runs(case: TestCaseModel) -> int:
    """Return how often a case runs at least."""
    bar = pass_bar(case)
    if bar is None:
        return 1
    return bar.planned if case.stop_early is False else bar.min_runs


def _most_turns(case: TestCaseModel) -> int:
    """Return how many turns a simulated conversation has at most."""
    most = MAX_TURNS if case.max_turns is None else case.max_turns
    if case.script is None:
        return most
    kinds = [(step_kind(step), step_value(step)) for step in case.script]
    proceeds = [value for kind, value in kinds if kind == "proceed"]
    turns = sum(
        most if proceed is None or proceed.turns is None else proceed.turns for proceed in proceeds
    )
    return turns + kinds.count(("agent", None))


def _judged_checks(agent: Agent, case: TestCaseModel) -> int:
    """Return how many checks of a case call a judge."""
    of_turns = [metric for _, part in case.checked_turns for metric in part.evaluations or ()]
    metrics = [*metrics_of(agent, case), *of_turns]
    count = sum(metric.enabled and needs_judge(metric) for metric in metrics)
    return count + (case.criteria is not None)


def _estimate(values: Sequence[float | None]) -> Estimate:
    known = [value for value in values if value is not None]
    return Estimate(known=fsum(known) if known else None, unknown_cases=len(values) - len(known))


def describe_plan(plan: RunPlan) -> str:
    """Return the plan as text, a fact per line."""
    skipped = f", {plan.skipped} skipped" if plan.skipped else ""
    lines = [
        f"Plan for {one_line(plan.agent_name, 80)}: {plural(plan.cases, 'test case')}{skipped}"
    ]
    if plan.selection is not None:
        lines.append(f"  Selected: {one_line(str(plan.selection), 300)}")
    lines += [
        f"  At the same time: {plan.parallel}",
        f"  Agent calls: {_format_bounds(plan.agent_calls)}",
        f"  Judge calls: {_format_bounds(plan.judge_calls)}{_expected_judge_calls(plan)}",
        f"  Time: {_format_estimate(plan.duration_ms, _seconds)}, one case after the other",
        f"  Agent tokens: {_format_estimate(plan.agent_tokens, _count)}",
    ]
    if plan.judge_calls.most != 0:
        lines.append(f"  Judge tokens: {_format_estimate(plan.judge_tokens, _count)}")
    if plan.simulator_tokens != Estimate(known=None, unknown_cases=0):
        lines.append(
            f"  Tokens of simulated users: {_format_estimate(plan.simulator_tokens, _count)}"
        )
    if plan.cost is not None:
        cost = _format_estimate(plan.cost, lambda amount: f"{amount:,.2f} {plan.currency}")
        lines.append(f"  Cost: {cost}")
    return "\n".join(lines)


def _expected_judge_calls(plan: RunPlan) -> str:
    if plan.judge_calls.most == 0 or plan.expected_judge_calls.known is None:
        return ""
    return f", by earlier runs {_format_estimate(plan.expected_judge_calls, _count)}"


def _format_bounds(bounds: Bounds) -> str:
    if bounds.most is None:
        return f"at least {bounds.least}"
    return str(bounds.least) if bounds.most == bounds.least else f"{bounds.least} to {bounds.most}"


def _format_estimate(estimate: Estimate, shown: Callable[[float], str]) -> str:
    if estimate.known is None:
        return "unknown"
    if estimate.unknown_cases == 0:
        return f"about {shown(estimate.known)}"
    cases = plural(estimate.unknown_cases, "case")
    return f"about {shown(estimate.known)} and {cases} unknown"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _seconds(elapsed_ms: float) -> str:
    minutes, seconds = divmod(elapsed_ms / 1000, 60)
    return f"{minutes:.0f} min {seconds:.0f} s" if minutes else f"{seconds:.1f} s"
