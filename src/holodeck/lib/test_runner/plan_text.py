"""A plan as people read it."""

from collections.abc import Callable

from holodeck.lib.text import one_line, plural
from holodeck.models.plan import Bounds, Estimate, Plan


def describe_plan(plan: Plan) -> str:
    """The plan for people, a fact a line."""
    skipped = f", {plan.skipped} skipped" if plan.skipped else ""
    lines = [
        f"Plan for {one_line(plan.agent_name, 80)}: {plural(plan.cases, 'test case')}{skipped}"
    ]
    if plan.selection is not None:
        lines.append(f"  Selected: {one_line(str(plan.selection), 300)}")
    lines += [
        f"  At once: {plan.parallel}",
        f"  Agent calls: {_bounds(plan.agent_calls)}",
        f"  Judge calls: {_bounds(plan.judge_calls)}{_judges(plan)}",
        f"  Time: {_told(plan.duration_ms, _seconds)}, one case after the other",
        f"  Agent tokens: {_told(plan.agent_tokens, _count)}",
    ]
    if plan.judge_calls.most != 0:
        lines.append(f"  Judge tokens: {_told(plan.judge_tokens, _count)}")
    if plan.simulator_tokens != Estimate(known=None, unknown_cases=0):
        lines.append(f"  Tokens of simulated users: {_told(plan.simulator_tokens, _count)}")
    if plan.cost is not None:
        cost = _told(plan.cost, lambda amount: f"{amount:,.2f} {plan.currency}")
        lines.append(f"  Cost: {cost}")
    return "\n".join(lines)


def _judges(plan: Plan) -> str:
    if plan.judge_calls.most == 0 or plan.expected_judge_calls.known is None:
        return ""
    return f", by earlier runs {_told(plan.expected_judge_calls, _count)}"


def _bounds(bounds: Bounds) -> str:
    if bounds.most is None:
        return f"at least {bounds.least}"
    return str(bounds.least) if bounds.most == bounds.least else f"{bounds.least} to {bounds.most}"


def _told(estimate: Estimate, shown: Callable[[float], str]) -> str:
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
