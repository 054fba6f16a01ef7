"""Which results of an earlier run a new run keeps, and which cases it runs."""

from collections.abc import Callable
from pathlib import Path

import holodeck
from holodeck.errors import ConfigError
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import (
    Run,
    RunStore,
    describe_changes,
    find_cases,
    is_of_second_agent,
    reusable_results,
)
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.session import ResumedRun
from holodeck.lib.ui.live import echo
from holodeck.models.agent import Agent
from holodeck.models.results.origin import Selection

OPTION = "--resume"


def find_runs(name: str, folder: Path, *, is_comparison: bool) -> list[Run]:
    """Return the recorded run of that name in a folder; of a comparison, both of its runs.

    `name` is then either of them, and the first agent's comes first. Raises ConfigError.
    """
    store = RunStore(folder)
    run = store.read(name)
    if not is_comparison:
        if is_of_second_agent(run):
            raise ConfigError(
                OPTION, f"run {run.id} is that of a second agent; add --against to resume both"
            )
        return [run]
    compared_with = run.started.compared_with if run.started else None
    if compared_with is None:
        raise ConfigError(
            OPTION, f"run {run.id} compared no agents; remove --against, or name another run"
        )
    other = store.read(compared_with.run)
    return [other, run] if compared_with.is_second else [run, other]


def repeat_selection(agent: Agent, run: Run) -> tuple[Agent, Selection | None]:
    """Return the agent with the cases that `run` selected; no Selection if it selected all."""
    selection = run.started.selection if run.started else None
    if run.started is None or selection is None:
        return agent, None
    present = fingerprint_of(agent).cases
    indexes = find_cases(run.started.cases, present)
    return agent.with_cases(indexes), selection.now(len(present), len(indexes))


def resume_run(
    agent: Agent, run: Run, warn: Callable[[str], None], *, retry_errors: bool, force: bool
) -> ResumedRun:
    """Return the results to keep of a run of the agent, and print how many there are.

    Args:
        agent: The agent, as it is now.
        run: The earlier run.
        warn: Prints a warning.
        retry_errors: Whether cases whose agent or metric failed run again.
        force: Whether the cases that have changed run again; otherwise a change is an error.

    Raises:
        ConfigError: The run goes on, or its agent has changed.
    """
    if run.is_running:
        raise ConfigError(OPTION, f"run {run.id} is still running; wait for it, or stop it")
    for warning in run.warnings:
        warn(warning)
    present = fingerprint_of(agent)
    lines = describe_changes(run, present, holodeck.__version__)
    changed = "".join(f"\n  {line}" for line in lines)
    if changed and not force:
        raise ConfigError(
            OPTION,
            f"the configuration has changed since run {run.id}:{changed}\n"
            "add --force to rerun the affected cases and keep the other results",
        )
    if changed:
        echo(f"Changed since run {run.id}:{changed}", err=True)
    results = reusable_results(run, present, retry_errors=retry_errors)
    count = len(agent.test_cases or [])
    left = plural(count - len(results), "case runs", "cases run")
    echo(f"Resuming {run.id}: {len(results)} of {count} results are kept, {left}", err=True)
    return ResumedRun(run.id, results)
