"""`holodeck runs`: lists, shows and removes the run records beside an agent.yaml."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import agent_option, read_run, run_store_of
from holodeck.lib.records.run_store import Run, RunOverview
from holodeck.lib.support.text import one_line
from holodeck.lib.test_runner.grading.recorded import report_of
from holodeck.lib.ui.live import echo
from holodeck.lib.ui.terminal import format_table


@click.group()
def runs() -> None:
    """List, show and remove recorded runs."""


@runs.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@agent_option
@click.pass_context
def list_runs(context: click.Context, agent: Path, as_json: bool) -> None:
    """List all recorded runs, newest first."""
    overviews = run_store_of(agent).overviews()
    cli_context = context.ensure_object(CliContext)
    if as_json:
        cli_context.print_json(json.dumps([asdict(overview) for overview in overviews], indent=2))
    else:
        echo(cli_context.clean(_table(overviews)))


def _table(overviews: list[RunOverview]) -> str:
    if not overviews:
        return "No recorded runs; `holodeck test` records one"
    has_tags = any(run.tags for run in overviews)
    rows = [("RUN", "STARTED", "AGENT", "STATE", "DONE", "PASSED", *["TAGS"] * has_tags)]
    for run in overviews:
        started = run.started[:19].replace("T", " ")
        done = f"{run.finished}/{'?' if run.planned is None else run.planned}"
        passed = "" if run.passed is None else str(run.passed)
        cells = (run.id, started, one_line(run.agent_name, 40), run.state, done, passed)
        rows.append((*cells, *[", ".join(run.tags)] * has_tags))
    return format_table(rows)


@runs.command("show")
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@agent_option
@click.pass_context
def show(context: click.Context, run: str, agent: Path, as_json: bool) -> None:
    """Show what RUN ran, its configuration and how it ended."""
    cli_context = context.ensure_object(CliContext)
    facts = _facts(read_run(run_store_of(agent), run, cli_context))
    if as_json:
        cli_context.print_json(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        if value not in (None, "", {}):
            text = str(value)
            if isinstance(value, dict):
                text = ", ".join(f"{key} {part}" for key, part in value.items())
            echo(cli_context.clean(f"{name + ':':<14} {text}"))


def _facts(run: Run) -> dict[str, object]:
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
        "compared with": started.compared_with.run if started and started.compared_with else None,
        "commit": started.commit if started else None,
        "versions": started.versions if started else {},
        "libraries": run.ended.libraries if run.ended else {},
        "hashes": started.hashes if started else {},
        "planned": run.planned,
        "done": len(run.finished),
        "outcomes": summary.outcomes,
        "exit code": run.ended.exit_code if run.ended else None,
    }


@runs.command("tag")
@click.argument("run")
@click.argument("tag")
@agent_option
@click.pass_context
def tag_run(context: click.Context, run: str, tag: str, agent: Path) -> None:
    """Give RUN a name: TAG then means this run wherever a run is named.

    A tag that another run had moves to RUN.
    """
    store = run_store_of(agent)
    run_id = store.path(run).parent.name
    if run_id not in store.ids():
        raise click.UsageError(f"{run!r} is a file; name a run of `holodeck runs list`")
    earlier = store.tag(run_id, tag)
    moved = f", and no longer {earlier}" if earlier not in (None, run_id) else ""
    echo(context.ensure_object(CliContext).clean(f"{tag} is run {run_id}{moved}"))


@runs.command("prune")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove only runs that started more than DAYS ago.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@agent_option
def prune(agent: Path, keep: int | None, older_than: float | None, yes: bool) -> None:
    """Remove recorded runs; a run in progress is never removed."""
    if keep is None and older_than is None:
        raise click.UsageError("nothing selected; add --keep N, --older-than DAYS, or both")
    run_store = run_store_of(agent)
    removed = [
        overview
        for overview in run_store.overviews()[keep or 0 :]
        if _is_prunable(overview, older_than)
    ]
    if not removed:
        echo("Nothing to remove")
        return
    what = f"{len(removed)} runs" if len(removed) > 1 else f"run {removed[0].id}"
    size = sum(overview.size_bytes for overview in removed) / 1e6
    if not yes:
        click.confirm(f"Remove {what} ({size:.1f} MB)?", abort=True, err=True)
    run_store.remove([overview.id for overview in removed])
    echo(f"Removed {what} ({size:.1f} MB)")


def _is_prunable(run: RunOverview, older_than_days: float | None) -> bool:
    if run.state == "running":
        return False
    if older_than_days is None:
        return True
    try:  # the id contains the time, even if the record's first line cannot be read
        started = datetime.strptime(run.id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # not created by holodeck
        return False
    return datetime.now(UTC) - started > timedelta(days=older_than_days)
