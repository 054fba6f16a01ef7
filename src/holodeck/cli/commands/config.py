"""`holodeck config`: the settings in effect, and the source of each."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from holodeck.cli.agents import find_target
from holodeck.cli.context import CliContext
from holodeck.config.flags import format_default
from holodeck.config.loader import ConfigLoader
from holodeck.config.project_file import default_agent
from holodeck.config.secrets import collect
from holodeck.lib.ui.live import echo
from holodeck.lib.ui.terminal import format_table


@click.group()
def config() -> None:
    """Show the settings in effect, and the source of each."""


@config.command("show")
@click.argument("agent_config", required=False, type=click.Path())
@click.option(
    "--format",
    "report_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table, or a JSON list.",
)
@click.pass_context
def show(context: click.Context, agent_config: str | None, report_format: str) -> None:
    """List every setting of a run of AGENT_CONFIG, and every key of its model.

    The default is the agent.yaml in the current folder or above it, if there is one. Secrets are
    masked. The first source that sets a value wins: flag, agent.yaml, the project's config.yaml,
    the user's config.yaml, environment variable, pyproject.toml, default.
    """
    loader, agent = ConfigLoader(), None
    file = agent_config or default_agent()
    if agent_config is not None or Path(file).is_file():
        target = find_target(file)
        agent = loader.load_agent_yaml(target.path, target.suites)
    settings = loader.settings_in_use(agent)
    cli_context = context.ensure_object(CliContext)
    cli_context.protect(collect(agent, loader.environment(agent.base_dir if agent else None)))
    if report_format == "json":
        text = json.dumps([asdict(setting) for setting in settings], indent=2, ensure_ascii=False)
        cli_context.print_json(text)
        return
    rows = [("KEY", "VALUE", "SOURCE")]
    for setting in settings:
        overrides = f" (overrides {setting.overrules})" if setting.overrules else ""
        rows.append((setting.key, format_default(setting.value), f"{setting.source}{overrides}"))
    echo(cli_context.clean(format_table(rows)))
