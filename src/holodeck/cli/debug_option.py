"""`--debug`: a person at the terminal speaks for the user."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.errors import ConfigError

if TYPE_CHECKING:
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig

F = TypeVar("F", bound=Callable[..., Any])


def debug_option(command: F) -> F:
    """A switch of the command line alone: a file cannot know whether somebody is there."""
    return click.option(
        "--debug",
        is_flag=True,
        help="Ask a person at the terminal before a simulated user speaks; one case at a time.",
    )(command)


def validate_debug_option(given: "ExecutionConfig") -> None:
    """Raise UsageError where several cases would ask at once, or where nobody can be asked."""
    from holodeck.lib.ui.prompt import missing_terminal

    if given.parallel_test_cases not in {None, "auto", 1}:
        raise click.UsageError("--debug plays one case at a time; leave --parallel out")
    missing = missing_terminal()
    if missing is not None:
        raise click.UsageError(f"--debug needs a person at a terminal, and {missing} is none")


def with_debug_settings(agent: "Agent", settings: "ExecutionConfig") -> "ExecutionConfig":
    """The settings of a run that waits for a person. Raises ConfigError if it would never."""
    if not any(case.is_played for case in agent.test_cases or []):
        raise ConfigError("--debug", "no case that is to run has a simulated user to speak for")
    return settings.model_copy(update={"parallel_test_cases": 1, "run_timeout": None})
