"""How this copy of holodeck was installed, and the command that adds an optional library to it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "holodeck-harness"
"""The name on the package index, where `holodeck` is another project."""


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to this installation, for any folder."""
    name = f"{DISTRIBUTION}[{extra}]"
    origin = _origin()
    url = str(origin.get("url", ""))
    if origin.get("dir_info", {}).get("editable"):
        checkout = Path(url2pathname(urlsplit(url).path))
        if Path(sys.prefix) == checkout / ".venv":
            return shlex.join([str(checkout / "scripts" / "install"), extra])
        return f"python -m pip install --editable {shlex.quote(f'{checkout}[{extra}]')}"
    if url:
        kind = origin.get("vcs_info", {}).get("vcs")
        name = f"{name} @ {f'{kind}+' if kind else ''}{url}"
    return f"python -m pip install '{name}'"


def _origin() -> dict[str, Any]:
    """Return the installer's record of the package's origin; empty for a package index."""
    # Imported here because only error messages need it.
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        note = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    origin = json.loads(note) if note else {}
    return origin if isinstance(origin, dict) else {}
