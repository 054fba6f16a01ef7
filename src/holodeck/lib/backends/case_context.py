"""The `context` of a test case on its way to the agent."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import ConfigError
from holodeck.lib.backends.base import AgentBackend

CaseContext = Mapping[str, Any]

NO_PLACE = (
    "the agent takes no context: give it a parameter 'case_context', or one called 'context'"
    " that is annotated as a dict"
)


@runtime_checkable
class TakesContext(Protocol):
    """A backend that can tell its agent the context of a case."""

    def in_context(self, context: CaseContext) -> AgentBackend:
        """The backend for one case with that context. Raises ConfigError if it goes nowhere."""
        ...


def backend_in_context(
    backend: AgentBackend, context: CaseContext | None, where: str
) -> AgentBackend:
    """The backend for a case, told a copy of its context; `where` opens the messages.

    Raises ConfigError for a context that would not reach the agent.
    """
    if context is None:
        return backend
    if not isinstance(backend, TakesContext):
        raise ConfigError(where, "the backend passes no context to its agent; remove it")
    try:
        return backend.in_context(deepcopy(dict(context)))
    except ConfigError as error:
        raise ConfigError(where, error.message) from error
