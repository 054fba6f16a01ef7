"""What the commands about recorded runs share: where the runs lie, and reading one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.cli_context import CliContext

if TYPE_CHECKING:
    from holodeck.lib.records.run import Run
    from holodeck.lib.records.run_store import RunStore

F = TypeVar("F", bound=Callable[..., Any])


def agent_option(command: F) -> F:
    """Which agent's runs are meant, by the file or its folder."""
    return click.option(
        "--agent",
        "-a",
        default="agent.yaml",
        show_default=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The agent.yaml (or its folder) whose runs are meant.",
    )(command)


def run_store_of(agent: Path) -> "RunStore":
    """The runs beside an agent.yaml, which need not be there any more."""
    from holodeck.lib.records.run_store import RunStore

    return RunStore((agent if agent.is_dir() else agent.parent).absolute())


def read_with_warnings(run_store: "RunStore", run: str | None, invocation: CliContext) -> "Run":
    """The run; lines of its record that had to be left out are told on stderr."""
    found = run_store.read(run)
    for warning in found.warnings:
        click.echo(invocation.clean(f"WARNING: {warning}"), err=True)
    return found
