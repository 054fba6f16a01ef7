"""Collects the spans of the agent in the turns of cases that check them."""

from collections.abc import Mapping

from pydantic import SecretStr

from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.observability.tracing import Content
from holodeck.lib.spans.agent_traces import AgentTraces, Place
from holodeck.lib.test_runner.case_state import CaseState, Send, TakeTurn
from holodeck.models.agent import BUILT_IN_BACKENDS, Agent
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
)
from holodeck.models.observability import ReceiverConfig
from holodeck.models.results.outcome import ConversationEnd
from holodeck.models.test_case import TurnModel
from holodeck.models.test_result import TurnResult

_SETTLING = ConversationEnd(
    code="timeout", reasoning="still waiting for the spans of the agent", broke=True
)
"""How a case ends whose time runs out while its spans are awaited."""


class TurnTraces(AgentTraces):
    """Collects the spans of the agent of a run, turn by turn.

    Args:
        agent: The agent.
        is_injected: Whether it is an object of the caller.
    """

    def __init__(self, agent: Agent, *, is_injected: bool) -> None:
        settings, place = agent.observability, _place_of(agent)
        patterns = settings.traces.redaction_patterns if settings is not None else []
        receiver: ReceiverConfig | None = None if settings is None else settings.receiver
        super().__init__(
            "python" if is_injected else place,
            Content(patterns).mask if patterns else str,
            0 if receiver is None else receiver.port,
        )

    def exporting(self, agent: Agent) -> Agent:
        """Return the agent, whose processes send their spans here."""
        return with_variables(agent, self.variables)

    def traced(self, take_turn: TakeTurn, state: CaseState) -> TakeTurn:
        """Return what takes turns of the case, and adds the spans of each to its result."""
        parts = [state.case, *(part for _, part in state.case.checked_turns)]
        limit_s = max(part.trace.settle for part in parts if part.trace is not None)

        async def take(turn: TurnModel, send: Send) -> TurnResult:
            call = self.call()

            async def send_in_trace(message: str) -> ExecutionResult:
                with call.active():
                    return await send(message)

            try:
                result = await take_turn(turn, send_in_trace)
                before, state.late_ending = state.late_ending, _SETTLING
                # The spans of an agent that failed are not awaited.
                trace = await call.wait(0 if state.errors else limit_s)
                state.late_ending = before
            finally:
                call.close()
            state.turns[-1] = result.model_copy(update={"trace": trace})
            return state.turns[-1]

        return take


def _place_of(agent: Agent) -> Place:
    """Return where the agent runs."""
    elsewhere = (A2aBackendConfig, HttpBackendConfig, McpBackendConfig, ProcessBackendConfig)
    if isinstance(agent.backend, elsewhere):
        return "elsewhere"
    return "built in" if agent.backend in BUILT_IN_BACKENDS else "python"


def with_variables(agent: Agent, variables: Mapping[str, str]) -> Agent:
    """Return the agent, whose processes get these variables unless its `env` has them."""
    backend = agent.backend
    if isinstance(backend, ProcessBackendConfig | McpBackendConfig):
        exporters = {name: SecretStr(value) for name, value in variables.items()}
        backend = backend.model_copy(update={"env": {**exporters, **backend.env}})
        return agent.model_copy(update={"backend": backend})
    return agent
