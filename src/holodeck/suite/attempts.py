"""The attempts at one scenario: how many there were, and how long the last one took."""

import time
from copy import deepcopy
from typing import Any

from holodeck.errors import BackendError
from holodeck.lib.observability import names, set_content, span
from holodeck.suite.adapters import Agent, Context
from holodeck.suite.plan import Planned
from holodeck.suite.results import AgentResult, ScenarioRunResult

_SPAN = {names.OPERATION: names.INVOKE_AGENT}


class Attempts:
    """Asks an agent for the answer to one scenario, as often as it is told to."""

    def __init__(self, agent: Agent, planned: Planned, context: Context | None) -> None:
        self.planned = planned
        self._agent = agent
        self._context = context
        self._made = 0
        self._took_ms = 0.0

    async def answer(self) -> AgentResult:
        """What the agent answers, with a context that is its own. Raises BackendError."""
        self._made += 1
        message, limit_s = self.planned.scenario.input, self.planned.timeout_s
        started = time.perf_counter()
        with span(names.INVOKE_AGENT, _SPAN, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, message)
            try:
                answer = await self._agent.answer(message, deepcopy(self._context), limit_s)
            except BackendError as error:
                current.fail(type(error).__name__, str(error))
                raise
            finally:
                self._took_ms = ms_since(started)
            set_content(current, names.OUTPUT_MESSAGES, answer.output)
        return answer

    def result(self, answer: AgentResult, **fields: Any) -> ScenarioRunResult:
        """The result after the last attempt."""
        return ScenarioRunResult(
            scenario=self.planned.scenario,
            agent_result=answer,
            duration_ms=self._took_ms,
            retry_count=self._made - 1,
            **fields,
        )


def ms_since(started: float) -> float:
    """Milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000
