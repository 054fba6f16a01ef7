"""`--skip-invalid`: run what can be read, and list what cannot."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.errors import ExitCode

if TYPE_CHECKING:
    from holodeck.cli.cli_context import CliContext

F = TypeVar("F", bound=Callable[..., Any])


def skip_invalid_option(command: F) -> F:
    """A switch of the command line alone: nothing else may make a run smaller than it looks."""
    return click.option(
        "--skip-invalid",
        is_flag=True,
        expose_value=False,
        callback=_skip,
        help="Leave out suite files that cannot be read, list them, and exit with 5 at best.",
    )(command)


def _skip(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from holodeck.config.cases.left_out import skip_invalid_suites

        context.with_resource(skip_invalid_suites())


def report_left_out(code: int, invocation: "CliContext") -> int:
    """The exit code of a run, once what was left out of it is listed."""
    from holodeck.config.cases.left_out import current_left_out

    left_out = current_left_out()
    if left_out is None or not left_out.errors:
        return code
    for file, error in left_out.errors.items():
        click.echo(invocation.clean(f"Left out {file} (--skip-invalid): {error}"), err=True)
    return code or ExitCode.NOTHING_SELECTED
