"""Selects the backend of an agent."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, ConfigError, HoloDeckError, NotSupportedYet
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.user_code.code_root import CodeFolders, folders_of
from holodeck.lib.user_code.raised import with_location
from holodeck.lib.user_code.registry import Registry
from holodeck.models.agent import Agent
from holodeck.models.backend import (
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
    PythonBackendConfig,
)
from holodeck.models.config import ExecutionConfig

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
_ALSO: Registry[Callable[..., Any]] = Registry(
    "backend",
    {
        "python": "holodeck.lib.backends.python.backend:CallableBackend",
        "tapped http": "holodeck.lib.backends.tapped_backend:TappedServiceBackend",
        "tapped python": "holodeck.lib.backends.tapped_backend:TappedPythonBackend",
        "taps": "holodeck.lib.backends.tapped_backend:ProcessTaps",
    },
)
"""What few agents need, and no name of a backend says."""
_MAPPINGS = {
    "a2a": "{type: a2a, url: …}",
    "http": "{type: http, url: …}",
    "mcp": "{type: mcp, command: [program]}",
    "process": "{type: process, target: module:object}",
}
"""Backends that a name does not suffice for, and what to write."""
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
            base_dir: Folder of the agent's modules; by default the agent's own, and its `code`.

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
            code = base_dir or agent.own_code_folders
            backend = _build(agent, execution, code, force_ingest=force_ingest)
        except HoloDeckError:
            raise
        except Exception as error:
            raise BackendInitError(f"the agent cannot be built: {with_location(error)}") from error
        await _initialize(backend)
        return backend


def check_name(name: str) -> None:
    """Raise ConfigError if `backend: name` is unknown; `module:attribute` is not checked."""
    if name in _MAPPINGS:
        raise ConfigError("backend", f"{name!r} needs more; write '{_MAPPINGS[name]}'")
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
    agent: Agent, execution: ExecutionConfig | None, code: CodeFolders, *, force_ingest: bool
) -> AgentBackend:
    backend = agent.backend or DEFAULT
    is_scripted = agent.model is not None and agent.model.protocol == "scripted"
    made: AgentBackend
    if backend == DEFAULT:
        make = BACKENDS.load(DEFAULT)
        made = make(agent, force_ingest=force_ingest, execution_config=execution)
    elif backend == "chat":
        made = BACKENDS.load(backend)(agent, execution, force_ingest=force_ingest)
    elif isinstance(backend, str):
        check_name(backend)
        target = backend if ":" in backend else BACKENDS.load(backend, location="backend")
        made = _ALSO.load("python")(target, code, execution)
    elif isinstance(backend, PythonBackendConfig):
        run_no_agents = backend.tools_run_no_agents
        options = (backend.target, code, execution, backend.scope)
        made = _ALSO.load("python")(*options, tools_run_no_agents=run_no_agents)
    elif isinstance(backend, ProcessBackendConfig):
        taps = _ALSO.load("taps")(is_scripted=is_scripted) if backend.tap else None
        made = BACKENDS.load(backend.type)(backend, code, execution, taps)
    elif isinstance(backend, HttpBackendConfig):
        made = BACKENDS.load(backend.type)(backend, execution, code)
    elif isinstance(backend, McpBackendConfig):
        made = BACKENDS.load(backend.type)(backend, folders_of(code)[0], execution)
    else:
        made = BACKENDS.load(backend.type)(backend, execution)
    if isinstance(backend, HttpBackendConfig | PythonBackendConfig) and backend.tap:
        made = _ALSO.load(f"tapped {backend.type}")(made, is_scripted=is_scripted)
    return made


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
