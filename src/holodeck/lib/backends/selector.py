"""Selects the backend of an agent."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import BackendInitError, ConfigError, HoloDeckError, NotSupportedYet
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.user_code.raised import with_location
from holodeck.lib.user_code.registry import Registry
from holodeck.models.agent import Agent
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
    PythonBackendConfig,
)
from holodeck.models.config import ExecutionConfig

if TYPE_CHECKING:
    from holodeck.lib.backends.tapped_backend import ProcessTaps

BACKENDS: Registry[Callable[..., AgentBackend]] = Registry(
    "backend",
    {
        "semantic_kernel": "holodeck.lib.test_runner.agent_factory:AgentFactory",
        "chat": "holodeck.lib.test_runner.agent_factory:chat_backend",
        "http": "holodeck.lib.backends.http_backend:HttpBackend",
        "process": "holodeck.lib.backends.process.backend:ProcessBackend",
        "mcp": "holodeck.lib.backends.mcp_backend:McpBackend",
        "a2a": "holodeck.lib.backends.a2a_backend:A2aBackend",
    },
)
DEFAULT = "semantic_kernel"
FRAMEWORK_NAMES = {
    "adk": "Google ADK",
    "agent_framework": "Microsoft Agent Framework",
    "anthropic": "the Claude Agent SDK",
    "claude": "the Claude Agent SDK",
    "claude_agent_sdk": "the Claude Agent SDK",
    "google_adk": "Google ADK",
    "langchain": "LangChain",
    "langgraph": "LangGraph",
    "openai_agents": "the OpenAI Agents SDK",
    "pydantic_ai": "PydanticAI",
}
"""Names of frameworks that are taken for backends, and what they are called."""
MODES = ("test", "chat")


class BackendSelector:
    """Selects the backend that a configuration asks for."""

    @staticmethod
    async def select(
        agent: Agent,
        tool_instances: dict[str, Any] | None = None,
        mode: str = "test",
        allow_side_effects: bool = False,
        execution: ExecutionConfig | None = None,
        force_ingest: bool = False,
        base_dir: Path | None = None,
    ) -> AgentBackend:
        """Return the agent's backend, initialized.

        Args:
            agent: The agent and its `backend`.
            tool_instances: Tools made elsewhere; no backend supports them yet.
            mode: "test" or "chat"; no backend of this version distinguishes them.
            allow_side_effects: Whether tools with side effects run; `execution` may allow it, too.
            execution: Time limits and retries; their defaults if not given.
            force_ingest: Passed to the built-in agent.
            base_dir: Folder of the agent's modules; by default the agent's own folder.

        Raises:
            BackendInitError: The agent cannot be built or reached at all.
            ConfigError: The configuration is wrong.
        """
        if tool_instances:
            raise NotSupportedYet("tool_instances", "tools come from the agent.yaml")
        if mode not in MODES:
            raise ConfigError("mode", f"{mode!r} is not one of {', '.join(map(repr, MODES))}")
        if allow_side_effects:
            execution = execution or ExecutionConfig()
            execution = execution.model_copy(update={"allow_side_effects": True})
        try:
            backend = _build(agent, execution, base_dir or agent.own_dir, force_ingest=force_ingest)
        except HoloDeckError:
            raise
        except Exception as error:
            raise BackendInitError(f"the agent cannot be built: {with_location(error)}") from error
        await _initialize(backend)
        return backend


def check_name(name: str) -> None:
    """Raise ConfigError if `backend: name` is unknown; `module:attribute` is not checked."""
    if name in {"a2a", "http"}:
        raise ConfigError("backend", f"{name!r} needs more; write '{{type: {name}, url: …}}'")
    if name == "process":
        raise ConfigError(
            "backend", "'process' needs more; write '{type: process, target: module:object}'"
        )
    if name == "mcp":
        raise ConfigError("backend", "'mcp' needs more; write '{type: mcp, command: [program]}'")
    if ":" not in name:
        framework = FRAMEWORK_NAMES.get(name.lower().replace("-", "_"))
        if framework is not None:
            raise ConfigError(
                "backend",
                f"{name!r} is not a name of a backend; for an agent of {framework}, write"
                " 'module:attribute', the agent in your own Python module",
            )
        BACKENDS.require(name, location="backend")


def _build(
    agent: Agent, execution: ExecutionConfig | None, base_dir: Path, *, force_ingest: bool
) -> AgentBackend:
    backend = agent.backend
    if isinstance(backend, HttpBackendConfig | A2aBackendConfig):
        made = BACKENDS.load(backend.type)(backend, execution)
        has_tap = isinstance(backend, HttpBackendConfig) and backend.tap
        return _tapped(made) if has_tap else made
    if isinstance(backend, ProcessBackendConfig):
        make = BACKENDS.load(backend.type)
        return make(backend, base_dir, execution, _worker_taps() if backend.tap else None)
    if isinstance(backend, McpBackendConfig):
        return BACKENDS.load(backend.type)(backend, base_dir, execution)
    if backend is None or backend == DEFAULT:
        make = BACKENDS.load(DEFAULT)
        return make(agent, force_ingest=force_ingest, execution_config=execution)
    if backend == "chat":
        return BACKENDS.load(backend)(agent, execution, force_ingest=force_ingest)
    return _python_backend(backend, execution, base_dir)


def _python_backend(
    backend: str | PythonBackendConfig, execution: ExecutionConfig | None, base_dir: Path
) -> AgentBackend:
    # Imported here because most agents are not Python code.
    from holodeck.lib.backends.python.backend import CallableBackend  # noqa: PLC0415

    if isinstance(backend, PythonBackendConfig):
        made = CallableBackend(
            backend.target,
            base_dir,
            execution,
            backend.scope,
            tools_run_no_agents=backend.tools_run_no_agents,
        )
        return _tapped_python(made) if backend.tap else made
    check_name(backend)
    target = backend if ":" in backend else BACKENDS.load(backend, location="backend")
    return CallableBackend(target, base_dir, execution)


def _tapped(backend: AgentBackend) -> AgentBackend:
    # Imported here because few agents have a tap.
    from holodeck.lib.backends.tapped_backend import TappedServiceBackend  # noqa: PLC0415

    return TappedServiceBackend(backend)


def _tapped_python(backend: AgentBackend) -> AgentBackend:
    # Imported here because few agents have a tap.
    from holodeck.lib.backends.tapped_backend import TappedPythonBackend  # noqa: PLC0415

    return TappedPythonBackend(backend)


def _worker_taps() -> "ProcessTaps":
    # Imported here because few agents have a tap.
    from holodeck.lib.backends.tapped_backend import ProcessTaps  # noqa: PLC0415

    return ProcessTaps()


async def _initialize(backend: AgentBackend) -> None:
    """Initialize the backend, and tear it down if that fails."""
    try:
        await backend.initialize()
    except BaseException as error:
        with suppress(Exception):  # the first error matters more
            await backend.teardown()
        if isinstance(error, HoloDeckError) or not isinstance(error, Exception):
            raise
        raise BackendInitError(
            f"the agent cannot be initialized: {with_location(error)}"
        ) from error
