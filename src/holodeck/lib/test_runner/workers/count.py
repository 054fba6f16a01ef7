"""How many worker processes a run takes, and where they are started."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.workers.worker_places import LocalProcesses, Place
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import PROVIDERS
from holodeck.models.observability import ExportersConfig, ObservabilityConfig

LOCAL = "local"
SAME_NAMES = (
    "both agents import modules of the same name from different folders, so the second needs a"
    " process of its own"
)
MIN_CASES = 500
"""Cases that each worker should have at least under `auto`. With two of 250 each, the work that is
shared takes less time than starting to share it."""


def count_workers(
    agent: Agent,
    settings: ExecutionConfig,
    cases: int,
    *,
    is_injected: bool,
    is_debugged: bool,
    needs_child: bool,
    note: Callable[[str], None],
) -> int | None:
    """Return how many workers run the cases: 0 for this process, None for one per core of Ray.

    Args:
        agent: The agent.
        settings: The settings of the run.
        cases: How many cases are left to run.
        is_injected: Whether the caller gave objects that exist in this process only.
        is_debugged: Whether a person may speak for the user of a conversation.
        needs_child: Whether the cases cannot run in this process.
        note: Called with why an explicit number is not used.

    Raises:
        ConfigError: The cases cannot run on Ray, or in another process although they must.
    """
    setting = settings.workers
    reason = _why_one(agent, settings, is_injected=is_injected, is_debugged=is_debugged)
    if settings.run_on not in {None, LOCAL}:
        if reason is not None:
            raise ConfigError(settings.source_of("run_on"), f"'run_on' has no effect: {reason}")
        is_chosen = isinstance(setting, int) and settings.source_of("workers") != "default"
        return setting if is_chosen and isinstance(setting, int) else None
    if needs_child:
        if reason is not None:
            raise ConfigError("--against", f"{SAME_NAMES}, but {reason}; rename the modules")
        return max(1, min(setting, cases)) if isinstance(setting, int) else 1
    if setting == "auto":
        is_heavy = agent.backend is None and not _is_embedded(agent)
        most = min(LocalProcesses().cores, cases // MIN_CASES)
        return most if reason is None and is_heavy and most > 1 else 0
    if not isinstance(setting, int) or setting == 1:
        return 0
    if reason is not None:
        note(f"the cases ran in one process, not in {setting} workers: {reason}")
        return 0
    return max(1, min(setting, cases))


def open_place(agent: Agent, settings: ExecutionConfig) -> AbstractAsyncContextManager[Place]:
    """Return a context with the place where the workers of a run are started."""
    if settings.run_on in {None, LOCAL}:
        return nullcontext(LocalProcesses())
    # Imported here because few runs use Ray.
    from holodeck.lib.test_runner.workers.ray_workers import connected  # noqa: PLC0415

    address = settings.run_on if settings.run_on != "ray" else None
    return connected(address, agent.base_dir, settings.ray_variables or ())


def _why_one(
    agent: Agent, settings: ExecutionConfig, *, is_injected: bool, is_debugged: bool
) -> str | None:
    """Return what needs one process; None if nothing does."""
    if is_injected:
        return "the agent, its checks or its files are objects of this process"
    if is_debugged:
        return "a person speaks for the users of conversations"
    is_elsewhere = settings.run_on not in {None, LOCAL}
    if is_elsewhere and isinstance(agent.backend, HttpBackendConfig) and agent.backend.tap:
        return "the agent reaches the tap on this machine only"
    return None if agent.observability is None else _why_one_for(agent.observability, agent)


def _why_one_for(telemetry: ObservabilityConfig, agent: Agent) -> str | None:
    """Return what of the telemetry needs one process; None if nothing does."""
    exporters, receiver = telemetry.exporters, telemetry.receiver
    if telemetry.enabled and exporters.prometheus is not None and exporters.prometheus.enabled:
        return "Prometheus reads the metrics of one process"
    if telemetry.enabled and _writes_to_console(exporters):
        return "telemetry is written to the console"
    if receiver is not None and any(case.checks_spans for case in agent.test_cases or ()):
        return f"the spans that cases check arrive at one port, {receiver.port}"
    return None


def _writes_to_console(exporters: ExportersConfig) -> bool:
    """Whether telemetry goes to the console, which it does if nothing else is named."""
    if exporters.console is not None:
        return exporters.console.enabled
    return exporters.otlp is None and exporters.azure_monitor is None


def _is_embedded(agent: Agent) -> bool:
    return agent.model is not None and PROVIDERS[agent.model.provider].protocol == "local"
