"""The `holodeck` command: loads the requested command, and turns every error into an exit code.

Only click is imported until the command is known, so that `--help` and `--version` are fast.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TextIO

import click

from holodeck import __version__
from holodeck.cli.context import CliContext
from holodeck.errors import ExitCode, HoloDeckError

COMMANDS = {
    "init": ("holodeck.cli.commands.init:init", "Write a first agent.yaml."),
    "test": ("holodeck.cli.commands.test:test", "Run the test cases of an agent."),
    "validate": (
        "holodeck.cli.commands.validate:validate",
        "Check an agent.yaml without running it.",
    ),
    "schema": (
        "holodeck.cli.commands.schema:schema",
        "Print the JSON Schema of a file, for editors.",
    ),
    "runs": ("holodeck.cli.commands.runs:runs", "List, show and remove recorded runs."),
    "recordings": (
        "holodeck.cli.commands.recordings:recordings",
        "List, check and remove recordings.",
    ),
    "report": ("holodeck.cli.commands.report:report", "Report on a recorded run."),
    "view": ("holodeck.cli.commands.view:view", "Open the recorded runs in the browser."),
    "compare": ("holodeck.cli.commands.compare:compare", "Compare a run with an earlier one."),
    "bless": ("holodeck.cli.commands.compare:bless", "Make a run the baseline."),
    "score": ("holodeck.cli.commands.score:score", "Grade the responses of a recorded run again."),
    "import": (
        "holodeck.cli.commands.import_cases:import_cases",
        "Write test cases from logs and runs.",
    ),
    "judge": ("holodeck.cli.commands.judge:judge", "Measure how well a judge agrees with people."),
    "models": ("holodeck.cli.commands.models:models", "List, download and remove local models."),
    "config": (
        "holodeck.cli.commands.config:config",
        "Show every setting, its value and its source.",
    ),
}
"""Command → its location, and its line in the help."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        from holodeck.lib.processes.process_exit import collector_paused

        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with collector_paused():
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
            if name.endswith((".yaml", ".yml")):
                ctx.fail(f"unknown command {name!r}; did you mean 'holodeck test {name}'?")
            # Imported here because mistakes are rare.
            from holodeck.lib.support import synonyms
            from holodeck.lib.support.text import did_you_mean_or_list

            meant = synonyms.meant_word(name, synonyms.COMMANDS)
            hint = f"; did you mean 'holodeck {meant}'?" if meant else None
            ctx.fail(f"unknown command {name!r}{hint or did_you_mean_or_list(name, COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 passed, 1 a test failed, 2 invalid configuration or usage, 3 the agent "
    "could not be run, 4 a metric could not be computed, 5 no tests or not all tests ran, "
    "6 the budget is used up, 130 interrupted, 143 terminated.",
)
@click.version_option(__version__, "--version", "-V", prog_name="holodeck")
def cli() -> None:
    """Test AI agents: describe an agent in agent.yaml and run its test cases."""


def main() -> None:
    """Run the command line and exit."""
    try:
        sys.exit(_run_program())
    except KeyboardInterrupt:  # outside of a command, which handles its own
        click.echo("Interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)


def _run_program() -> int:
    """Prepare the process, run the command line, and return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `holodeck … >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - stays open
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # replaced by a simpler object, or closed
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    from holodeck.lib.processes import process_exit

    process_exit.note_command()
    # an agent's thread or exit handler could change the exit code
    process_exit.forbid_process_exit()
    code = _flush_stdout(run(sys.argv[1:]))
    process_exit.skip_last_collections()
    return code


def run(args: Sequence[str]) -> int:
    """Run a command and return its exit code; an error becomes a line on stderr."""
    context = CliContext.from_args(args)
    try:
        returned = cli.main(list(args), "holodeck", standalone_mode=False, obj=context)
    except click.Abort:
        click.echo("Interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.message = context.brief(error.message)
        error.show()
        return error.exit_code
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from error
        from holodeck.cli.logs import print_error

        print_error(error, context)
        return error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
    return returned if isinstance(returned, int) else ExitCode.PASSED


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error: Python wraps what is raised while a class is created."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _flush_stdout(code: int) -> int:
    """Flush stdout; return `code`, or an error code if the output could not be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `holodeck … | head` has read enough
        _discard(sys.stdout)
    except OSError as error:
        click.echo(f"Execution Error: stdout: {error.strerror}", err=True)
        _discard(sys.stdout)
        return ExitCode.EXECUTION
    except (AttributeError, ValueError):
        click.echo("Execution Error: stdout is closed", err=True)
        return ExitCode.EXECUTION
    return code


def _discard(stream: TextIO) -> None:
    """Let the interpreter's own last flush succeed."""
    with open(os.devnull, "w") as null:  # noqa: PTH123 - a device
        os.dup2(null.fileno(), stream.fileno())
