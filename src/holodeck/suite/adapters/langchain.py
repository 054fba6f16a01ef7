"""An adapter for LangChain's `AgentExecutor`."""

import time
from typing import Any

from holodeck.suite.adapters.base import Context
from holodeck.suite.results import AgentResult, ToolCall


class LangChainAdapter:
    """Invokes an `AgentExecutor`; keys of the context become further keys of its input.

    Tool calls are known only with `AgentExecutor(return_intermediate_steps=True)`.

    Raises TypeError for anything else. LangChain 1.0 moved the class to `langchain_classic`.
    """

    def __init__(self, agent_executor: Any) -> None:
        if not _is_agent_executor(type(agent_executor)):
            raise TypeError(
                f"found a {type(agent_executor).__qualname__}; expected LangChain's AgentExecutor."
                " holodeck.run() and 'backend:' of an agent.yaml take other agents of LangChain"
                " and graphs of LangGraph as they are"
            )
        self.agent_executor = agent_executor

    def run(self, input: str, context: Context | None = None) -> AgentResult:  # noqa: A002
        """Return the agent's answer. Raises what the agent raises."""
        started = time.perf_counter()
        answer = self.agent_executor.invoke(
            {"input": input, **(context or {})}, return_only_outputs=False
        )
        latency_ms = (time.perf_counter() - started) * 1000
        result = AgentResult(output=answer.get("output", ""), latency_ms=latency_ms)
        steps = answer.get("intermediate_steps")
        if steps is not None:
            result.tool_calls = [_tool_call(action, result) for action, result in steps]
            trace = [f"{action.tool}: {result}" for action, result in steps]
            result.reasoning_trace = trace or None
        return result


def _is_agent_executor(kind: type) -> bool:
    """Whether a class is AgentExecutor of LangChain or derived from it; nothing is imported."""
    packages = ("langchain", "langchain_classic")
    return any(
        base.__name__ == "AgentExecutor" and base.__module__.partition(".")[0] in packages
        for base in kind.__mro__
    )


def _tool_call(action: Any, result: Any) -> ToolCall:
    written = action.tool_input
    arguments = written if isinstance(written, dict) else {"input": written}
    return ToolCall(name=action.tool, arguments=arguments, result=str(result))
