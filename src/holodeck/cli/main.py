"""The `holodeck` command: finds the command asked for, and makes every error one line and a code.

Nothing but click is imported until a command is known, so that help and version are quick.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TextIO

import click

from holodeck import __version__
from holodeck.cli.cli_context import CliContext
from holodeck.errors import ExitCode, HoloDeckError
from holodeck.lib.suggestions import did_you_mean_or_list

COMMANDS = {
    "test": ("holodeck.cli.test:test", "Run the test cases of an agent."),
    "validate": ("holodeck.cli.validate:validate", "Check an agent.yaml without running it."),
    "schema": ("holodeck.cli.schema:schema", "Print the JSON Schema of agent.yaml."),
    "runs": ("holodeck.cli.runs:runs", "List, show and remove recorded runs."),
    "report": ("holodeck.cli.report:report", "Report on a recorded run, without running it."),
    "score": ("holodeck.cli.score:score", "Grade the answers of a recorded run again."),
    "judge": ("holodeck.cli.judge:judge", "Find out how far a judge can be trusted."),
    "models": ("holodeck.cli.models:models", "List, fetch and remove local models."),
    "config": ("holodeck.cli.config:config", "Show every setting with its value and source."),
}
"""Command → where it lives, and what the help says about it."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"there is no command {name!r}{_hint(name)}")
        return super().resolve_command(ctx, args)


def _hint(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        return f"; did you mean 'holodeck test {name}'?"
    return did_you_mean_or_list(name, COMMANDS)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 passed, 1 a test failed, 2 configuration or usage, 3 the agent could not "
    "be run, 4 a metric could not be computed, 5 nothing or not everything was tested, "
    "6 the budget is used up, 130 interrupted, 143 ended by SIGTERM.",
)
@click.version_option(__version__, "--version", "-V", prog_name="holodeck")
def cli() -> None:
    """Test AI agents: describe one in agent.yaml, run its test cases, trust the verdict."""


def main() -> None:
    """Run the command line and exit."""
    gc.disable()  # start-up frees nothing; `cli.interruptible_run` turns it on
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `holodeck … >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - lives on
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # replaced by something simpler, or closed
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    from holodeck.lib.process_exit import forbid_process_exit

    forbid_process_exit()  # of an agent's thread or exit handler, which would forge the exit code
    sys.exit(_flushed(run(sys.argv[1:])))


def run(args: Sequence[str]) -> int:
    """Run one command; every error becomes a line on stderr and the exit code."""
    invocation = CliContext.of(args)
    try:
        returned = cli.main(list(args), "holodeck", standalone_mode=False, obj=invocation)
    except click.Abort:
        click.echo("Interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.message = invocation.brief(error.message)
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the edge of the program
        from holodeck.cli.error_output import print_error

        print_error(error, invocation)
        return error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
    return returned if isinstance(returned, int) else ExitCode.PASSED


def _flushed(code: int) -> int:
    """The exit code once stdout is out; another one if the results did not reach the disk."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `holodeck … | head` has seen enough
        _abandon(sys.stdout)
    except OSError as error:
        click.echo(f"Execution Error: stdout: {error.strerror}", err=True)
        _abandon(sys.stdout)
        return ExitCode.EXECUTION
    except (AttributeError, ValueError):
        click.echo("Execution Error: stdout is closed", err=True)
        return ExitCode.EXECUTION
    return code


def _abandon(stream: TextIO) -> None:
    """Let the interpreter's own last flush succeed."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), stream.fileno())
