"""Metrics of DeepEval about how an agent uses the tools of MCP servers."""

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import OfferedTool, gather_all
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.cases import to_turn
from holodeck.lib.evaluators.inputs import Exchange, Turn
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.test_result import ToolInvocation

_ABOUT_CALLS = frozenset({EvalParam.EXCHANGES, EvalParam.TOOLS_CALLED, EvalParam.TOOLS})


class McpEvaluator(DeepEvalBaseEvaluator):
    """Scores the calls of the agent's MCP servers.

    The servers are those of the agent's `tools`, with their tools. Models are offered neither
    resources nor prompts of servers, so the judge is shown none.
    """

    PARAM_SPEC = ParamSpec(required=_ABOUT_CALLS)

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        exchanges: Sequence[Exchange] = kwargs[EvalParam.EXCHANGES]
        if any(exchange.response.tool_calls is None for exchange in exchanges):
            raise EvaluationError("the tool calls of a turn are unknown")
        if not any(tool.server for tool in kwargs[EvalParam.TOOLS]):
            raise EvaluationError(
                f"{self.metric} judges the use of MCP servers, and the agent has no tools of any;"
                " add an entry of 'type: mcp' to its 'tools', or remove the metric"
            )
        return await self._score(kwargs)

    async def _score(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result for calls that are known."""
        return await self._measure(self._test_case(kwargs), self._options())

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "score" in answer:
            metric.reasons = [*getattr(metric, "reasons", []), answer["reason"]]

    def _result_of(self, metric: Any, case: Any) -> dict[str, Any]:
        """Give the judge's reasons for all scores as the reason."""
        metric.reason = "; ".join(metric.reasons) if self.include_reason else ""
        return super()._result_of(metric, case)


class McpUseEvaluator(McpEvaluator):
    """The lower of two scores: the right tools of servers were called, and their arguments are
    right. In a conversation, the worst response counts."""

    metric = "mcp_use"
    deepeval_class = "MCPUseMetric"

    async def _score(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        exchanges: Sequence[Exchange] = kwargs[EvalParam.EXCHANGES]
        servers = _servers(kwargs[EvalParam.TOOLS])
        results = await gather_all(
            self._measure(_response_case(exchange, servers), self._options())
            for exchange in exchanges
        )
        if len(results) == 1:
            return results[0]
        reasons = [f"turn {at}: {result['reasoning']}" for at, result in enumerate(results, 1)]
        worst = min(result["score"] for result in results)
        return self._build_result(worst, "; ".join(reasons) if self.include_reason else "")


class McpConversationEvaluator(McpEvaluator):
    """Scores each request of the user, with the calls that the agent made for it."""

    def _options(self) -> dict[str, Any]:
        # DeepEval 4.3 would ask for the reason in a way that blocks the event loop.
        return {**super()._options(), "include_reason": False}

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        requests = [exchange for exchange in kwargs[EvalParam.EXCHANGES] if exchange.input]
        if not requests:
            raise EvaluationError(f"{self.metric} needs a user message that the agent answers")
        return adapter.library().cases.ConversationalTestCase(
            turns=[turn for request in requests for turn in _turns(request)],
            mcp_servers=_servers(kwargs[EvalParam.TOOLS]),
        )


class MultiTurnMcpUseEvaluator(McpConversationEvaluator):
    """The lower of two scores, each the mean of all requests: the right tools of servers were
    called, and their arguments are right."""

    metric = "multi_turn_mcp_use"
    deepeval_class = "MultiTurnMCPUseMetric"


class McpTaskCompletionEvaluator(McpConversationEvaluator):
    """How far the agent fulfilled the requests of the user with its servers; the mean of all."""

    metric = "mcp_task_completion"
    deepeval_class = "MCPTaskCompletionMetric"


def _response_case(exchange: Exchange, servers: Sequence[Any]) -> Any:
    return adapter.library().cases.LLMTestCase(
        input=adapter.clean_text(exchange.input),
        actual_output=adapter.clean_text(exchange.response.content),
        mcp_servers=list(servers),
        tools_called=_calls(exchange.response.tool_calls or ()),
    )


def _servers(tools: Sequence[OfferedTool]) -> list[Any]:
    """Return the servers of these tools in DeepEval's format."""
    by_server: dict[str, list[JsonObject]] = {}
    for tool in tools:
        if tool.server is not None:
            definition = {"description": tool.description, "inputSchema": dict(tool.parameters)}
            by_server.setdefault(tool.server, []).append({"name": tool.name, **definition})
    make = adapter.library().cases.MCPServer
    return [make(server_name=name, available_tools=tools) for name, tools in by_server.items()]


def _calls(calls: Sequence[ToolInvocation]) -> list[Any]:
    """Return the calls of servers in DeepEval's format; a failed one with its error."""
    make, kind = adapter.library().cases.ToolCall, adapter.mcp_call_type()
    return [
        make(
            name=call.name,
            type=kind,
            input_parameters=call.args,
            output=call.result if call.error is None else f"error: {call.error}",
        )
        for call in calls
        if call.server is not None
    ]


def _turns(exchange: Exchange) -> list[Any]:
    """Return request, calls and response, in the order in which DeepEval expects them.

    DeepEval would leave out a request without calls, however wrong it was to make none.
    """
    calls = _calls(exchange.response.tool_calls or ())
    step = adapter.library().cases.Turn(role="assistant", content=" ", tools_called=calls)
    if not calls:
        step.mcp_tools_called = []
    request = to_turn(Turn("user", exchange.input))
    return [request, step, to_turn(Turn("assistant", exchange.response.content))]
