"""`holodeck schema`: the JSON Schemas of the files that users write."""

import sys
from pathlib import Path

import click

from holodeck.cli.options import file_option
from holodeck.lib.ui.live import echo, write_raw


@click.command()
@click.argument("kind", type=click.Choice(["agent", "suite", "config"]), default="agent")
@file_option("Write the schema to a file instead of stdout.")
def schema(kind: str, output: Path | None) -> None:
    """Print the JSON Schema of an agent.yaml, a suite file or a config.yaml, for editors.

    An editor completes and checks the keys of a file that begins with such a line; `holodeck init`
    writes it:

    \b
    # yaml-language-server: $schema=agent.schema.json
    """
    from holodeck.config.schema import schema_text

    if output is None:
        write_raw(sys.stdout, schema_text(kind))
        return
    from holodeck.errors import ReportError
    from holodeck.lib.support.safe_paths import refuse_input

    refuse_input(output, "--output", ["schema"])
    try:
        output.write_text(schema_text(kind), encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{output} cannot be written: {error.strerror}") from error
    echo(f"Wrote {output}", err=True)
