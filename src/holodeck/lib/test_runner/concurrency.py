"""How many cases of an agent may run at once in this process."""

from collections.abc import Callable

from holodeck.lib.backends.base import AgentBackend, capabilities_of
from holodeck.lib.llm.limiter import MAX_SLOTS
from holodeck.models.agent import Agent
from holodeck.models.backend import PythonBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import ProviderEnum

ONE_AT_A_TIME = (
    "the cases ran one after the other in each process, because 'tap: true' cannot tell the"
    " requests of Python code apart; '--workers' runs several"
)


def concurrency_of(
    backend: AgentBackend,
    agent: Agent,
    config: ExecutionConfig,
    *,
    is_injected: bool,
    note: Callable[[str], None],
) -> int:
    """Return how many cases may run at once.

    `auto` means as many as the rate limits of a provider allow. The user's own code has no such
    limit and may not be safe to run concurrently: one case at a time, or a few if the code is
    async and the cases share no object. A local model answers one request at a time anyway.

    Args:
        backend: The agent, ready to be called.
        agent: Its configuration.
        config: The settings of the run.
        is_injected: Whether the caller gave the agent as an object.
        note: Called with why a number in the settings is not used.
    """
    setting, model, named = config.parallel_test_cases, agent.model, agent.backend
    if model is not None and model.provider is ProviderEnum.LOCAL and named is None:
        return 1
    if isinstance(named, PythonBackendConfig) and named.tap:
        if isinstance(setting, int) and setting > 1:
            note(ONE_AT_A_TIME)
        return 1
    if isinstance(setting, int):
        return setting
    concurrency = capabilities_of(backend).concurrency
    if concurrency is not None:
        return concurrency
    return 1 if is_injected else MAX_SLOTS
