"""The plan of a run: its cases and calls, and what earlier runs let expect."""

from collections.abc import Sequence
from math import fsum

from holodeck.lib.evaluators.inputs import metrics_of
from holodeck.lib.evaluators.metric_table import asks_a_judge
from holodeck.lib.selection.past import CasePast
from holodeck.lib.test_runner.repeats import pass_bar
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.conversation import MAX_TURNS
from holodeck.models.plan import Bounds, Estimate, Plan
from holodeck.models.script import kind_of, value_of
from holodeck.models.selection import Selection
from holodeck.models.test_case import TestCaseModel


def plan_of(
    agent: Agent,
    agent_config_path: str,
    settings: ExecutionConfig,
    past: Sequence[CasePast],
    selection: Selection | None,
) -> Plan:
    """What a run of the agent's cases would do; `past` is what is known of each of them."""
    cases = agent.test_cases or []
    run = [(case, one) for case, one in zip(cases, past, strict=True) if case.skip is None]
    known = [one for _, one in run]
    judged = [_judged_checks(agent, case) * _least_runs(case) for case, _ in run]
    gives_again = settings.cache_mode in {"auto", "replay"}
    kept = [case for case, _ in run if gives_again and case.cache_key is not None]
    sure = sum(judged) - sum(_least_runs(one) for one in kept if one.criteria is not None)
    may_ask = sum(judged) > 0 if settings.cache_mode != "replay" else sure > 0
    return Plan(
        agent_name=agent.name,
        agent_config_path=agent_config_path,
        cases=len(run),
        skipped=len(cases) - len(run),
        selection=selection,
        parallel=settings.parallel_test_cases or 1,
        agent_calls=_together([_agent_calls(case) for case, _ in run]),
        judge_calls=Bounds(least=sure, most=None if may_ask else 0),
        duration_ms=_estimate([one.duration_ms for one in known]),
        agent_tokens=_estimate([one.agent_tokens for one in known]),
        expected_judge_calls=_estimate([one.judge_calls for one in known]),
        judge_tokens=_estimate([one.judge_tokens for one in known]),
        simulator_tokens=_estimate(
            [
                one.simulator_tokens
                for case, one in run
                if case.simulate is not None and settings.cache_mode != "replay"
            ]
        ),
        currency=None if agent.prices is None else agent.prices.unit,
        cost=None if agent.prices is None else _estimate([one.cost for one in known]),
    )


def _agent_calls(case: TestCaseModel) -> Bounds:
    turns = len(case.turns) if case.turns is not None else 1
    least, most = (1, _most_turns(case)) if case.is_played else (turns, turns)
    tries = 1 + (case.retries or 0)
    return Bounds(least=least * _least_runs(case), most=most * (case.repeat or 1) * tries)


def _least_runs(case: TestCaseModel) -> int:
    """How often a case is run at least."""
    bar = pass_bar(case)
    if bar is None:
        return 1
    return bar.planned if case.stop_early is False else bar.least_runs


def _most_turns(case: TestCaseModel) -> int:
    """How often the agent is asked at most where a conversation is played."""
    most = MAX_TURNS if case.max_turns is None else case.max_turns
    if case.script is None:
        return most
    kinds = [(kind_of(one), value_of(one)) for one in case.script]
    proceeds = [value for kind, value in kinds if kind == "proceed"]
    turns = sum(most if one is None or one.turns is None else one.turns for one in proceeds)
    return turns + kinds.count(("agent", None))


def _together(bounds: Sequence[Bounds]) -> Bounds:
    most = [one.most for one in bounds if one.most is not None]
    return Bounds(
        least=sum(one.least for one in bounds),
        most=sum(most) if len(most) == len(bounds) else None,
    )


def _judged_checks(agent: Agent, case: TestCaseModel) -> int:
    """Checks of a case that ask a judge, each at least once."""
    of_turns = [metric for _, part in case.parts for metric in part.evaluations or ()]
    metrics = [*metrics_of(agent, case), *of_turns]
    asked = sum(metric.enabled and asks_a_judge(metric) for metric in metrics)
    return asked + (case.criteria is not None)


def _estimate(values: Sequence[float | None]) -> Estimate:
    known = [one for one in values if one is not None]
    return Estimate(known=fsum(known) if known else None, unknown_cases=len(values) - len(known))
