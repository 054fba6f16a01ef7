"""What agents did that ran inside of the tools of an agent from YAML."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

from holodeck.lib.backends.base import ExecutionResult, RequestedCall, ToolResult
from holodeck.lib.backends.frameworks.tracing import watch_turn
from holodeck.lib.backends.frameworks.turn_trace import OtherWork
from holodeck.lib.backends.parsing import requested_call
from holodeck.lib.tools.base import Tool, ToolOutcome, run_tool
from holodeck.models.token_usage import TokenUsage, UsageMeter


@dataclass
class ToolWork:
    """What happened inside of the tools of a turn."""

    by_call: dict[str, OtherWork] = field(default_factory=dict)
    """By the id of the call of a tool of our own."""
    problem: str | None = None
    """Why there may be more calls."""

    async def run(
        self, tool: Tool, arguments: dict[str, Any], call_id: str, meter: UsageMeter
    ) -> ToolOutcome:
        """Call a tool, and keep what agents do inside of it; the meter gets all its tokens."""
        with watch_turn("") as trace:
            outcome = await run_tool(tool, arguments, call_id=call_id)
        self.problem = self.problem or trace.blind_spot(has_run_tools=True)
        if self.problem is not None:
            meter.add(None)
        outcome.meter(meter)
        work = trace.other_work((), 0, ())
        if work is None:
            return outcome
        self.by_call[call_id] = work
        self.problem = self.problem or work.problem
        prompt, completion = work.usage
        is_known = prompt is not None and completion is not None
        usage = TokenUsage.of(prompt or 0, completion or 0) if is_known else None
        meter.add(usage, requests=len(work.requests))
        return outcome

    def added_to(self, result: ExecutionResult) -> ExecutionResult:
        """Return the result with the calls of these agents, each after that of its tool."""
        if not self.by_call and self.problem is None:
            return result
        calls: list[RequestedCall] = []
        results = [*result.tool_results]
        for call in result.tool_calls or ():
            calls.append(call)
            work = self.by_call.get(call.get("call_id", ""), OtherWork())
            calls += [_tool_call(further) for further in work.calls]
            results += cast("list[ToolResult]", work.results)
        return replace(
            result, tool_calls=calls, tool_results=results, tool_calls_problem=self.problem
        )


def _tool_call(call: dict[str, Any]) -> RequestedCall:
    if "arguments" in call:
        return requested_call(**call)
    return cast("RequestedCall", call)


def result_of(name: str, call_id: str, outcome: ToolOutcome) -> ToolResult:
    """Return the result of a call of a tool of our own, for the report."""
    result = ToolResult(
        name=name,
        call_id=call_id,
        result=outcome.result if outcome.error is None else outcome.result_text,
        is_error=outcome.error is not None,
        duration_ms=outcome.duration_ms,
    )
    if outcome.server is not None:
        result["server"] = outcome.server
    if outcome.refused:
        result["refused"] = True
    if outcome.prevented:
        result["prevented"] = True
    if outcome.raised is not None:
        result["raised"] = outcome.raised
    if outcome.passages is not None:
        result["passages"] = list(outcome.passages)
    if outcome.model_cost is not None:
        result["model_cost"] = outcome.model_cost
    return result
