"""The lane of an agent whose cases run in worker processes."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from holodeck.lib.llm.limiter import MAX_SLOTS
from holodeck.lib.observability import is_traced, propagation_headers
from holodeck.lib.support.safe_paths import outside_is_allowed
from holodeck.lib.test_runner.case_run import CaseSetup
from holodeck.lib.test_runner.scheduling.schedule import Lane, RunState
from holodeck.lib.test_runner.workers.count import open_place
from holodeck.lib.test_runner.workers.worker_messages import WorkerTask
from holodeck.lib.test_runner.workers.worker_pool import WorkerPool
from holodeck.lib.ui.activity import displayed
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel

if TYPE_CHECKING:
    from holodeck.lib.test_runner.events import OnConversation
    from holodeck.lib.test_runner.workers.worker_events import FollowedRun

_LOGGERS = ("", "holodeck")


@asynccontextmanager
async def open_worker_lane(
    task: WorkerTask,
    count: int | None,
    setup: CaseSetup,
    run_state: RunState,
    *,
    on_start: Callable[[TestCaseModel], None],
    on_conversation: "OnConversation | None",
) -> AsyncIterator[Lane]:
    """Start workers and yield the lane of the cases that they run; then end the workers.

    Args:
        task: What the workers are told.
        count: How many workers; None for one per core of the place where they run.
        setup: Publishes what happens in the workers, and makes the results of cases that end them.
        run_state: Knows the cases that are left, and takes their results.
        on_start: Called with each case right before it runs.
        on_conversation: Called with each conversation before it begins.
    """
    agent, settings = setup.agent, setup.config
    async with open_place(agent, settings) as place:
        count = count or min(place.cores, len(run_state.remaining))
        follow = _follower(setup, on_conversation)
        pool = WorkerPool(place, task, count, setup.add_note, setup.lost_result, follow=follow)
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


def _follower(
    setup: CaseSetup, on_conversation: "OnConversation | None"
) -> "Callable[[], FollowedRun] | None":
    """Return what follows the runs of cases in workers; None if nobody listens."""
    if setup.events is None and on_conversation is None:
        return None
    # Imported here because nobody listens to most runs.
    from holodeck.lib.test_runner.workers.worker_events import FollowedRun  # noqa: PLC0415

    return partial(FollowedRun, events=setup.events, on_conversation=on_conversation)


def task_of(
    path: str,
    agent: Agent,
    settings: ExecutionConfig,
    *,
    allow_side_effects: bool,
    force_ingest: bool,
    has_events: bool,
    has_conversations: bool,
) -> WorkerTask:
    """Return what the workers of a run are told."""
    return WorkerTask(
        path=path,
        agent=agent,
        settings=settings.model_copy(update={"workers": 1, "run_on": None, "events": None}),
        allow_side_effects=allow_side_effects,
        may_leave_folder=outside_is_allowed(),
        force_ingest=force_ingest,
        log_levels={name: logging.getLogger(name).getEffectiveLevel() for name in _LOGGERS},
        is_displayed=displayed.get() is not None,
        has_events=has_events,
        has_conversations=has_conversations,
        has_telemetry=is_traced(),
        trace=propagation_headers(),
    )
