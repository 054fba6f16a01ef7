"""What metrics get to see of a case, be it just run or recorded."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from holodeck.config.instructions import instructions_text
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import Observation, OfferedTool, Turn
from holodeck.lib.test_runner.eval_kwargs_builder import build_retrieval_context_from_tools
from holodeck.lib.tools.function import load_function_tool
from holodeck.models.agent import Agent
from holodeck.models.evidence import Evidence, Unknown, evidence
from holodeck.models.test_case import TurnModel
from holodeck.models.test_result import ProcessedFileInput, ToolInvocation

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOutput:
    """What an agent did in one case."""

    response: str
    invocations: Sequence[ToolInvocation]
    files: Sequence[ProcessedFileInput]
    agent_ms: float | None
    """How long the agent took; None where that was not measured."""
    evidence: Evidence
    """Who saw what."""
    turns: tuple[Turn, ...] = ()
    """The conversation that ends with the response; empty for one input without history."""


class Observer:
    """Puts together what was seen of a case with what is known of its agent."""

    def __init__(self, agent: Agent, *, is_injected: bool = False) -> None:
        self._agent = agent
        self._knows_tools = not (is_injected or agent.brings_its_own_model)
        self._retrieval = {tool.name for tool in agent.tools or [] if tool.is_retrieval}

    def observation(self, asked: TurnModel, seen: AgentOutput, name: str | None) -> Observation:
        """The observation of the case of that name, or of one of its turns.

        Passages are its own, else what its tools retrieved. The input of a conversation is what the
        user said last.
        """
        calls = [{"name": one.name, "result": one.result} for one in seen.invocations]
        last = next(
            (one.content for one in reversed(seen.turns) if one.role == "user"), asked.input
        )
        retrieved = asked.retrieval_context or build_retrieval_context_from_tools(
            calls, self._retrieval
        )
        return Observation(
            response=seen.response,
            input=last,
            ground_truth=asked.ground_truth,
            retrieval_context=tuple(retrieved or ()),
            tool_calls=Unknown("tool_calls")
            if seen.evidence.tool_calls is None
            else tuple(seen.invocations),
            case_name=name,
            latency_ms=seen.agent_ms,
            file_content="\n\n".join(file.markdown_content for file in seen.files) or None,
            expected_tools=asked.expected_tools,
            turns=seen.turns,
            instructions=self._instructions,
            tools=self._tools if self._knows_tools else Unknown("tools"),
            evidence=self.completed(seen.evidence),
        )

    def completed(self, seen: Evidence) -> Evidence:
        """Return the evidence with what is known of the agent itself."""
        tools = "backend" if self._knows_tools else None
        return evidence(seen.tool_calls, seen.token_usage, seen.history, tools, seen.latency)

    @cached_property
    def _instructions(self) -> str | None:
        return instructions_text(self._agent) or None

    @cached_property
    def _tools(self) -> tuple[OfferedTool, ...]:
        try:
            found = [
                load_function_tool(tool, self._agent.base_dir) for tool in self._agent.tools or []
            ]
        except ConfigError as error:  # an agent that runs would have told; one that is graded again
            logger.warning("metrics are not told of the agent's tools: %s", error)
            return ()
        return tuple(OfferedTool(one.name, one.description, one.parameters) for one in found)
