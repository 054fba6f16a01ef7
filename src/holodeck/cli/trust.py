"""Asks before a run sends to an endpoint that a repository chose, and remembers the answer."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.context import CliContext
from holodeck.errors import ConfigError

if TYPE_CHECKING:
    from holodeck.models.agent import Agent


def confirm_endpoints(agent: "Agent", context: CliContext) -> None:
    """Ask for consent to endpoints of `.env` files, and name hosts that are not a provider's own.

    Raises ConfigError without consent, or without a terminal to ask on.
    """
    from holodeck.config.environment import Environment
    from holodeck.config.trust import addresses_of_repository, other_hosts
    from holodeck.lib.support.environment import is_trusting
    from holodeck.lib.ui.live import echo

    is_trusted = context.trusts_endpoints or is_trusting()
    found = addresses_of_repository(agent, Environment.beside(agent.base_dir))
    for address, source in found if not is_trusted else ():
        finding = f"{source} leads requests to {address.shown}"
        _require_consent(agent, address.shown, finding, context)
    for address in other_hosts(agent):
        place = agent.location(*address.path)
        notice = f"Requests go to {address.shown}, not to a host of {address.provider} ({place})"
        if context.is_new_notice(f"host {address.shown}"):
            echo(context.clean(notice), err=True)


def _require_consent(agent: "Agent", host: str, finding: str, context: CliContext) -> None:
    from holodeck.lib.support.files import create_file
    from holodeck.lib.support.text import inert
    from holodeck.lib.ui.conversation import find_missing_terminal

    remembered = _consent_file(agent.base_dir, host)
    if remembered.is_file():
        return
    if find_missing_terminal() is not None:
        raise ConfigError(
            finding,
            "your key, variables and texts would be sent there; if you trust it, run with --trust",
        )
    question = f"{finding}. Your key, variables and texts are sent there. Do you trust it?"
    if not click.confirm(inert(context.clean(question)), err=True):
        raise ConfigError(finding, "not trusted, so nothing was sent")
    try:
        create_file(remembered)
    except OSError as error:
        context.warn(f"the answer cannot be remembered: {remembered}: {error.strerror}")


def _consent_file(folder: Path, host: str) -> Path:
    """Return the file that exists once the user trusted a host for a folder."""
    from holodeck.lib.support.environment import data_dir

    digest = hashlib.sha256(f"{folder.resolve()}\0{host}".encode()).hexdigest()
    return data_dir() / "trust" / digest
