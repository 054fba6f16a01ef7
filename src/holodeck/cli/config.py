"""`holodeck config`: which settings hold, and where each comes from."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.cli_context import CliContext

if TYPE_CHECKING:
    from holodeck.config.in_use import SettingInUse


@click.group()
def config() -> None:
    """Show which settings hold, and where each comes from."""


@config.command("show")
@click.argument("agent_config", required=False, type=click.Path())
@click.option(
    "--format",
    "report_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or a list for programs.",
)
@click.pass_context
def show(context: click.Context, agent_config: str | None, report_format: str) -> None:
    """List every setting of a run of AGENT_CONFIG, and every key of its model.

    Without AGENT_CONFIG, the agent.yaml of the working folder is meant, if there is one. Secrets
    are not shown. The first place that says something wins: flag, agent.yaml, the project's
    config.yaml, the user's config.yaml, variable, default.
    """
    from holodeck.cli.agent_paths import find_target
    from holodeck.config.loader import ConfigLoader
    from holodeck.config.owners import DEFAULT_AGENT_FILE
    from holodeck.config.secrets import collect

    loader, agent = ConfigLoader(), None
    if agent_config is not None or Path(DEFAULT_AGENT_FILE).is_file():
        subject = find_target(agent_config or DEFAULT_AGENT_FILE)
        agent = loader.load_agent_yaml(subject.path, subject.suites)
    rows = loader.in_use(agent)
    invocation = context.ensure_object(CliContext)
    invocation.protect(collect(agent, loader.environment(agent.base_dir if agent else None)))
    text = _as_json(rows) if report_format == "json" else _as_text(rows)
    click.echo(invocation.clean(text))


def _as_text(rows: "list[SettingInUse]") -> str:
    from holodeck.config.flags import shown

    table = [("KEY", "VALUE", "SOURCE")]
    for one in rows:
        over = f" (overrules {one.overrules})" if one.overrules else ""
        table.append((one.key, shown(one.value), f"{one.source}{over}"))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _as_json(rows: "list[SettingInUse]") -> str:
    import json
    from dataclasses import asdict

    return json.dumps([asdict(one) for one in rows], indent=2, ensure_ascii=False)
