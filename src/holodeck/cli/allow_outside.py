"""`--allow-outside`: for once, paths may lead out of the agent's folder."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def allow_outside_option(command: F) -> F:
    """A switch of the command line alone: what a folder brings along must not open it."""
    return click.option(
        "--allow-outside",
        is_flag=True,
        expose_value=False,
        callback=_allow,
        help="Let files that an agent.yaml names lie outside of its folder.",
    )(command)


def _allow(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from holodeck.lib.safe_paths import outside_allowed

        context.with_resource(outside_allowed())
