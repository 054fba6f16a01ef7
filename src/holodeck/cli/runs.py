"""`holodeck runs`: what was recorded beside an agent.yaml."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.cli_context import CliContext
from holodeck.cli.run_lookup import agent_option, read_with_warnings, run_store_of

if TYPE_CHECKING:
    from holodeck.lib.records.run import Run
    from holodeck.lib.records.run_store import RunOverview


@click.group()
def runs() -> None:
    """List, show and remove the records of runs."""


@runs.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@agent_option
@click.pass_context
def list_runs(context: click.Context, agent: Path, as_json: bool) -> None:
    """Show every recorded run, the newest first."""
    found = run_store_of(agent).overviews()
    text = json.dumps([asdict(one) for one in found], indent=2) if as_json else _table(found)
    click.echo(context.ensure_object(CliContext).clean(text))


@runs.command("show")
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print what is known as JSON.")
@agent_option
@click.pass_context
def show(context: click.Context, run: str, agent: Path, as_json: bool) -> None:
    """Show what RUN ran, with what, and how it ended."""
    invocation = context.ensure_object(CliContext)
    facts = _facts(read_with_warnings(run_store_of(agent), run, invocation))
    if as_json:
        click.echo(invocation.clean(json.dumps(facts, indent=2)))
        return
    for name, value in facts.items():
        if value not in (None, "", {}):
            click.echo(invocation.clean(f"{name + ':':<14} {_said(value)}"))


@runs.command("prune")
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N of the runs."
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove only runs that began more than so many days ago.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@agent_option
def prune(agent: Path, keep: int | None, older_than: float | None, yes: bool) -> None:
    """Remove records for good; a run that still goes on stays."""
    if keep is None and older_than is None:
        raise click.UsageError("say which runs: --keep N, --older-than DAYS, or both")
    run_store = run_store_of(agent)
    doomed = [one for one in run_store.overviews()[keep or 0 :] if _may_go(one, older_than)]
    if not doomed:
        click.echo("Nothing to remove")
        return
    what = f"{len(doomed)} runs" if len(doomed) > 1 else f"run {doomed[0].id}"
    size = sum(one.size_bytes for one in doomed) / 1e6
    if not yes:
        click.confirm(f"Remove {what} ({size:.1f} MB)?", abort=True, err=True)
    run_store.remove([one.id for one in doomed])
    click.echo(f"Removed {what} ({size:.1f} MB)")


def _may_go(run: "RunOverview", older_than: float | None) -> bool:
    from datetime import UTC, datetime, timedelta

    if run.state == "running":
        return False
    if older_than is None:
        return True
    try:  # the name tells when, even where the first line cannot be read
        when = datetime.strptime(run.id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # not one of ours
        return False
    return datetime.now(UTC) - when > timedelta(days=older_than)


def _table(found: "list[RunOverview]") -> str:
    if not found:
        return "No run is recorded here; `holodeck test` records one"
    rows = [("RUN", "STARTED", "AGENT", "STATE", "DONE", "PASSED"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(run: "RunOverview") -> tuple[str, ...]:
    from holodeck.lib.text import one_line

    planned = "?" if run.planned is None else run.planned
    passed = "" if run.passed is None else str(run.passed)
    started = run.started[:19].replace("T", " ")
    done = f"{run.finished}/{planned}"
    return run.id, started, one_line(run.agent_name, 40), run.state, done, passed


def _facts(run: "Run") -> dict[str, object]:
    from holodeck.lib.test_runner.recorded import report_of

    started, summary = run.started, report_of(run).summary
    return {
        "run": run.id,
        "record": str(run.path),
        "state": run.state,
        "started": started.started if started else None,
        "agent": started.agent_name if started else None,
        "configuration": started.agent_config_path if started else None,
        "selected": str(started.selection) if started and started.selection else None,
        "resumes": started.resumes if started else None,
        "commit": started.commit if started else None,
        "versions": started.versions if started else {},
        "libraries": run.ended.libraries if run.ended else {},
        "hashes": started.hashes if started else {},
        "planned": run.planned,
        "done": len(run.finished),
        "outcomes": summary.outcomes,
        "exit code": run.ended.exit_code if run.ended else None,
    }


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)
