"""What a person is told of an error."""

import click

from holodeck.cli.cli_context import CliContext
from holodeck.errors import HoloDeckError
from holodeck.lib.exceptions import describe


def print_error(error: Exception, invocation: CliContext) -> None:
    """Write a line about the error to stderr; with -vv where it came from, too."""
    line = describe(error)
    if isinstance(error, HoloDeckError):
        line = f"{error.label}: {error}"
    elif invocation.verbosity < 2:
        line = f"Internal Error: {line} (run again with -vv to see where)"
    if invocation.verbosity >= 2:
        import traceback

        click.echo(invocation.clean("".join(traceback.format_exception(error)).rstrip()), err=True)
    click.echo(invocation.brief(line), err=True)
