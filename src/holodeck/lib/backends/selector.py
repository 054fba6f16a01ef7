"""Selects the backend of an agent."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, ConfigError, HoloDeckError, NotSupportedYet
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.backends.callable_backend import CallableBackend
from holodeck.lib.exceptions import with_place
from holodeck.lib.registry import Registry
from holodeck.models.agent import Agent, HttpBackendConfig
from holodeck.models.config import ExecutionConfig

BACKENDS: Registry[Callable[..., AgentBackend]] = Registry(
    "backend",
    {
        "semantic_kernel": "holodeck.lib.test_runner.agent_factory:AgentFactory",
        "chat": "holodeck.lib.test_runner.agent_factory:chat_backend",
        "http": "holodeck.lib.backends.http_backend:HttpBackend",
    },
)
DEFAULT = "semantic_kernel"
MODES = ("test", "chat")


class BackendSelector:
    """Chooses the backend that a configuration asks for."""

    @staticmethod
    async def select(
        agent: Agent,
        tool_instances: dict[str, Any] | None = None,
        mode: str = "test",
        allow_side_effects: bool = False,  # noqa: ARG004 - see the docstring
        execution: ExecutionConfig | None = None,
        force_ingest: bool = False,
        base_dir: Path | None = None,
    ) -> AgentBackend:
        """The agent's backend, ready to be used.

        Args:
            agent: What to reach, and how (`backend`).
            tool_instances: Tools made elsewhere; none of the backends takes any yet.
            mode: "test" or "chat"; the backends of this version make no difference.
            allow_side_effects: Lets a backend's own tools write; the backends of this version
                bring none.
            execution: Time limits and retries; their defaults if not given.
            force_ingest: Handed to the built-in agent.
            base_dir: Where modules are looked for first; else the agent's own folder.

        Raises:
            BackendInitError: The agent cannot be built or reached at all.
            ConfigError: The configuration is wrong.
        """
        if tool_instances:
            raise NotSupportedYet("tool_instances", "tools come from the agent.yaml")
        if mode not in MODES:
            raise ConfigError("mode", f"{mode!r} is not one of {', '.join(map(repr, MODES))}")
        try:
            backend = _made(agent, execution, base_dir or agent.base_dir, force_ingest=force_ingest)
        except HoloDeckError:
            raise
        except Exception as error:
            raise BackendInitError(f"the agent cannot be built: {with_place(error)}") from error
        await _initialize(backend)
        return backend


def check_name(name: str) -> None:
    """Raise ConfigError if `backend: name` starts nothing; `module:attribute` is not looked at."""
    if name == "http":
        raise ConfigError("backend", "'http' needs more; write '{type: http, url: …}'")
    if ":" not in name:
        BACKENDS.require(name, where="backend")


def _made(
    agent: Agent, execution: ExecutionConfig | None, base_dir: Path, *, force_ingest: bool
) -> AgentBackend:
    wanted = agent.backend
    if isinstance(wanted, HttpBackendConfig):
        return BACKENDS.load(wanted.type)(wanted, execution)
    if wanted is None or wanted == DEFAULT:
        make = BACKENDS.load(DEFAULT)
        return make(agent, force_ingest=force_ingest, execution_config=execution)
    if wanted == "chat":
        return BACKENDS.load(wanted)(agent, execution)
    check_name(wanted)
    if ":" in wanted:
        return CallableBackend(wanted, base_dir, execution)
    return CallableBackend(BACKENDS.load(wanted, where="backend"), base_dir, execution)


async def _initialize(backend: AgentBackend) -> None:
    """Make the backend ready; one that fails is let go of."""
    try:
        await backend.initialize()
    except BaseException as error:
        with suppress(Exception):  # why it failed matters more than how it was let go of
            await backend.teardown()
        if isinstance(error, HoloDeckError) or not isinstance(error, Exception):
            raise
        raise BackendInitError(f"the agent cannot be made ready: {with_place(error)}") from error
