"""Shapes of the user's own agents: functions, objects and classes, and how each is called."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.signatures import AgentCall, UnusableAgent, find_method, parameter_passing
from holodeck.lib.support.text import describe

logger = logging.getLogger(__name__)


class AgentFunction(AgentCall):
    """A function that answers, called in this process."""

    async def answer(
        self,
        message: str,
        context: Sequence[Message],
        case_context: Mapping[str, Any] | None = None,
    ) -> ExecutionResult:
        """Return the agent's response; a function that is not async runs in a thread."""
        call = self.bind(message, context, case_context)
        return parse_result(await call_user_function(call, self.function))


def find_agent_function(agent: Any, location: str) -> AgentFunction:
    """Return the function of an agent. Raises ConfigError for an unknown shape."""
    try:
        function = find_method(agent)
        return AgentFunction(function, *parameter_passing(function))
    except UnusableAgent as error:
        raise ConfigError(location, str(error)) from error


async def close_agent(agent: Any) -> None:
    """Call the agent's `aclose` or `close`, if it has one; an error is only logged."""
    methods = [getattr(agent, name, None) for name in ("aclose", "close")]
    method = next(filter(callable, methods), None)
    if method is None:
        return
    try:
        await call_user_function(method, method)
    except Exception as error:  # noqa: BLE001 - a failing clean-up must not lose a response
        logger.warning("closing the agent failed: %s", describe(error))
