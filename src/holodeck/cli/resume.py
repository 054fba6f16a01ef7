"""`holodeck test --resume`: which results of an earlier run are kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holodeck.lib.records.run import Run
    from holodeck.models.agent import Agent
    from holodeck.models.selection import Selection
    from holodeck.models.test_result import TestResult


@dataclass(frozen=True)
class ResumedRun:
    """An earlier run, as far as it still holds."""

    id: str
    results: "Mapping[int, TestResult]"
    """By place in the present file."""


def find_run(name: str, folder: "Path") -> "Run":
    """The recorded run of an agent in `folder`. Raises ConfigError."""
    from holodeck.lib.records.run_store import RunStore

    return RunStore(folder).read(name)


def repeat_selection(agent: "Agent", run: "Run") -> "tuple[Agent, Selection | None]":
    """The agent with the cases that `run` had chosen; None if the run chose none."""
    from holodeck.lib.records.fingerprint import fingerprint_of
    from holodeck.lib.records.resume import places_of

    chosen = run.started.selection if run.started else None
    if run.started is None or chosen is None:
        return agent, None
    present = fingerprint_of(agent).cases
    places = places_of(run.started.cases, present)
    return agent.case_caches(places), chosen.now(len(present), len(places))


def resume_run(agent: "Agent", found: "Run", *, retry_errors: bool, force: bool) -> ResumedRun:
    """What is kept of the run. Raises ConfigError if it goes on, or if the agent changed."""
    from holodeck.lib.records.fingerprint import fingerprint_of
    from holodeck.lib.records.resume import changes, kept_results

    present = fingerprint_of(agent)
    _refuse(found, changes(found, present), force=force)
    results = kept_results(found, present, retry_errors=retry_errors)
    count = len(agent.test_cases or [])
    from holodeck.lib.text import plural

    left = plural(count - len(results), "case runs", "cases run")
    kept = f"{len(results)} of {count} results are kept, {left}"
    click.echo(f"Resuming {found.id}: {kept}", err=True)
    return ResumedRun(found.id, results)


def _refuse(run: "Run", changed: list[str], *, force: bool) -> None:
    from holodeck.errors import ConfigError

    if run.is_running:
        raise ConfigError("--resume", f"run {run.id} still goes on; wait for it, or stop it")
    for warning in run.warnings:
        click.echo(f"WARNING: {warning}", err=True)
    lines = "".join(f"\n  {line}" for line in changed)
    if changed and not force:
        raise ConfigError(
            "--resume",
            f"what is run is not what run {run.id} ran:{lines}\n"
            "add --force to run the cases again that this touches and keep the others",
        )
    if changed:
        click.echo(f"Changed since run {run.id}:{lines}", err=True)
