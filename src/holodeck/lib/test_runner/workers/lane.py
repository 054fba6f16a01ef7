"""How many worker processes run the cases of an agent, and their lane in the schedule."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

from holodeck.errors import ConfigError
from holodeck.lib.llm.limiter import MAX_SLOTS
from holodeck.lib.observability import is_traced, propagation_headers
from holodeck.lib.support.safe_paths import outside_is_allowed
from holodeck.lib.test_runner.case_run import CaseSetup
from holodeck.lib.test_runner.run_state import RunState
from holodeck.lib.test_runner.scheduling.schedule import Lane
from holodeck.lib.test_runner.workers.connection import LocalProcesses, Place, WorkerTask
from holodeck.lib.test_runner.workers.pool import WorkerPool
from holodeck.lib.test_runner.workers.ray_workers import connected
from holodeck.lib.ui.activity import displayed
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import PROVIDERS
from holodeck.models.test_case import TestCaseModel

LOCAL = "local"
SAME_NAMES = (
    "both agents import modules of the same name from different folders, so the second needs a"
    " process of its own"
)
MIN_CASES = 500
"""Cases that each worker should have at least under `auto`. With two of 250 each, the work that is
shared takes less time than starting to share it."""
_LOGGERS = ("", "holodeck")


def count_workers(
    agent: Agent,
    settings: ExecutionConfig,
    cases: int,
    *,
    of_caller: str | None,
    needs_child: bool,
    note: Callable[[str], None],
) -> int | None:
    """Return how many workers run the cases: 0 for this process, None for one per core of Ray.

    Args:
        agent: The agent.
        settings: The settings of the run.
        cases: How many cases are left to run.
        of_caller: What the caller gave that needs this process; None for nothing.
        needs_child: Whether the cases cannot run in this process.
        note: Called with why an explicit number is not used.

    Raises:
        ConfigError: The cases cannot run on Ray, or in another process although they must.
    """
    setting = settings.workers
    reason = of_caller or _why_one_process(agent)
    if settings.run_on not in {None, LOCAL}:
        reason = reason or _why_one_machine(agent)
        if reason is not None:
            raise ConfigError(settings.source_of("run_on"), f"'run_on' has no effect: {reason}")
        is_chosen = isinstance(setting, int) and settings.source_of("workers") != "default"
        return setting if is_chosen and isinstance(setting, int) else None
    if needs_child:
        if reason is not None:
            raise ConfigError("--against", f"{SAME_NAMES}, but {reason}; rename the modules")
        return max(1, min(setting, cases)) if isinstance(setting, int) else 1
    if setting == "auto":
        model = agent.model
        is_local = model is not None and PROVIDERS[model.provider].protocol == "local"
        is_heavy = agent.backend is None and not is_local
        most = min(LocalProcesses().cores, cases // MIN_CASES)
        return most if reason is None and is_heavy and most > 1 else 0
    if not isinstance(setting, int) or setting == 1:
        return 0
    if reason is not None:
        note(f"the cases ran in one process, not in {setting} workers: {reason}")
        return 0
    return max(1, min(setting, cases))


def _why_one_machine(agent: Agent) -> str | None:
    """Return what needs the machine where the run was started; None if nothing does."""
    if isinstance(agent.backend, HttpBackendConfig) and agent.backend.tap:
        return "the agent reaches the tap on this machine only"
    folders = [Path(os.path.normpath(folder)) for folder in agent.own_code_folders]
    if not all(folder.is_relative_to(agent.base_dir) for folder in folders):
        return "only the agent's folder travels, and its code lies outside of it"
    return None


def _why_one_process(agent: Agent) -> str | None:
    """Return what needs a single process; None if nothing does.

    Telemetry goes to the console if no exporter is named.
    """
    telemetry = agent.observability
    if telemetry is None:
        return None
    exporters, receiver = telemetry.exporters, telemetry.receiver
    console, is_unnamed = exporters.console, not (exporters.otlp or exporters.azure_monitor)
    if telemetry.enabled and (is_unnamed if console is None else console.enabled):
        return "telemetry is written to the console"
    if receiver is not None and any(case.checks_spans for case in agent.test_cases or ()):
        return f"the spans that cases check arrive at one port, {receiver.port}"
    return None


@asynccontextmanager
async def open_worker_lane(
    path: str,
    count: int | None,
    setup: CaseSetup,
    run_state: RunState,
    *,
    on_start: Callable[[TestCaseModel], None],
) -> AsyncIterator[Lane]:
    """Start workers and yield the lane of the cases that they run; then end the workers.

    Args:
        path: The agent.yaml.
        count: How many workers; None for one per core of the place where they run.
        setup: Publishes what happens in the workers, and makes the results of cases that end them.
        run_state: Knows the cases that are left, and takes their results.
        on_start: Called with each case right before it runs.
    """
    agent, settings = setup.agent, setup.config
    task = WorkerTask(
        path=path,
        agent=agent,
        settings=settings.model_copy(update={"workers": 1, "run_on": None, "events": None}),
        may_leave_folder=outside_is_allowed(),
        log_levels={name: logging.getLogger(name).getEffectiveLevel() for name in _LOGGERS},
        is_displayed=displayed.get() is not None,
        has_events=setup.events is not None,
        has_conversations=setup.options.on_conversation is not None,
        has_telemetry=is_traced(),
        trace=propagation_headers(),
    )
    async with _open_place(agent, settings) as place:
        count = count or min(place.cores, len(run_state.remaining))
        pool = WorkerPool(place, task, count, setup)
        async with pool.open():
            setting = settings.parallel_test_cases
            most = setting if isinstance(setting, int) else MAX_SLOTS
            yield Lane(
                agent,
                run_state,
                pool.new_run,
                on_start,
                min(most, pool.concurrency * count),
                pool.preparation_costs,
            )


def _open_place(agent: Agent, settings: ExecutionConfig) -> AbstractAsyncContextManager[Place]:
    """Return a context with the place where the workers of a run are started."""
    if settings.run_on in {None, LOCAL}:
        return nullcontext(LocalProcesses())
    address = settings.run_on if settings.run_on != "ray" else None
    return connected(address, agent.base_dir, settings.ray_variables or ())
