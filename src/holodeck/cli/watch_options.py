"""`--watch`, and what a round of it is told by the one that watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from holodeck.cli.cli_context import CliContext

F = TypeVar("F", bound=Callable[..., Any])

_PAST = ("resume", "last_failed", "failed_first", "new")
_OPTIONS = (
    click.option(
        "--watch",
        is_flag=True,
        help="Run, and run again what a change touches whenever a file is saved, until Ctrl-C.",
    ),
    click.option("--tell-watcher", type=click.Path(path_type=Path), hidden=True),
)


def watch_options(command: F) -> F:
    """A decorator that gives a command the options that `watch_if_asked` reads."""
    for one in reversed(_OPTIONS):
        command = one(command)
    return command


def watch_if_asked(context: click.Context) -> None:
    """Watch, and exit with what ended it; of a round of that, note what it reads."""
    if context.params["watch"]:
        _refuse_what_does_not_go_with_it(context)
        # Imported here because few runs watch.
        import sys

        from holodeck.cli.watch_loop import watch_command

        context.exit(watch_command(_only_one(context), sys.argv[1:]))
    told = context.params["tell_watcher"]
    if told is not None:
        invocation = context.ensure_object(CliContext)
        context.with_resource(_witnessed(told, _only_one(context), invocation))


def _only_one(context: click.Context) -> Path:
    """The agent.yaml that the paths mean."""
    from holodeck.cli.agent_paths import find_agents
    from holodeck.config.loader import agent_file

    subjects = find_agents(context.params["paths"], context.params["agent"]).subjects
    if len(subjects) != 1:
        raise click.UsageError(f"--watch is for one agent, and the paths lead to {len(subjects)}")
    return agent_file(subjects[0].path)


def _refuse_what_does_not_go_with_it(context: click.Context) -> None:
    if context.params["debug"]:
        raise click.UsageError(
            "--debug asks at the keyboard, which no round has; leave out --watch"
        )
    given = [name for name in _PAST if context.params[name]]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise click.UsageError(f"--watch knows by itself what is to run again; leave out {flag}")


@contextmanager
def _witnessed(told: Path, agent_config: Path, invocation: CliContext) -> Iterator[None]:
    from holodeck.cli.read_tracker import ReadTracker, write_read_files

    read_tracker = invocation.read_tracker = ReadTracker(agent_config.parent)
    read_tracker.watch()
    try:
        yield
    finally:
        write_read_files(told, read_tracker.run, read_tracker.states())
