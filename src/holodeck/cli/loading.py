"""Imports the user's code for `validate --load` and `init`, and says what it found."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.errors import ConfigError, HoloDeckError
from holodeck.models.backend import ProcessBackendConfig

if TYPE_CHECKING:
    from holodeck.config.checks.findings import CheckContext
    from holodeck.lib.backends.base import AgentDescription
    from holodeck.models.agent import Agent


def describe_agent(agent: "str | ProcessBackendConfig", folder: Path) -> "AgentDescription":
    """Return what the agent of `module:attribute`, or of a process, is.

    It is loaded and closed, not called. Raises ConfigError or BackendInitError.
    """
    from holodeck.lib.backends.process.backend import ProcessBackend
    from holodeck.lib.backends.python.backend import CallableBackend
    from holodeck.lib.processes.process_exit import process_exit_forbidden
    from holodeck.lib.ui.live import protected_streams

    async def load() -> "AgentDescription":
        backend: CallableBackend | ProcessBackend
        if isinstance(agent, str):
            backend = CallableBackend(agent, folder)
        else:
            backend = ProcessBackend(agent, folder)
        try:
            await backend.initialize()
            return backend.describe()
        finally:
            await backend.teardown()

    with protected_streams(), process_exit_forbidden():
        return asyncio.run(load())


def load_code(agent: "Agent", context: "CheckContext") -> list[str]:
    """Load the agent's own code, tools and metrics; return a line for each, report errors."""
    from holodeck.config.model_calls import all_metrics
    from holodeck.lib.tools.function import load_function_tool
    from holodeck.lib.user_code.registry import load_callable
    from holodeck.models.tool import FunctionTool

    lines = []
    process = agent.backend if isinstance(agent.backend, ProcessBackendConfig) else None
    named = process or agent.target
    if named is not None:
        try:
            found = describe_agent(named, agent.own_dir)
            lines.append(f"loaded {agent.target or 'the process'}: {found}")
        except ConfigError as error:
            context.config_error(("backend",), error)
        except HoloDeckError as error:
            context.error(("backend",), str(error))
    for index, tool in enumerate(agent.tools or ()):
        if not isinstance(tool, FunctionTool):
            continue
        try:
            loaded = load_function_tool(tool, agent.own_dir)
            parameters = ", ".join(loaded.parameters.get("properties", {}))
            lines.append(f"loaded the tool {loaded.name}({parameters})")
        except ConfigError as error:
            context.config_error(("tools", index), error)
    for path, metric in all_metrics(agent):
        if metric.user_code is None or not metric.enabled:
            continue
        try:
            load_callable(metric.user_code, agent.base_dir, location="")
            lines.append(f"loaded the metric {metric.user_code}")
        except ConfigError as error:
            context.config_error(path, error)
    return list(dict.fromkeys(lines)) or ["nothing to load: no code of yours is named"]
