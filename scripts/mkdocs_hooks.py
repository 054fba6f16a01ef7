"""Hooks of mkdocs: show the file name above each example, and publish CHANGELOG.md."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXAMPLE = re.compile(r"^<!-- file: (?P<name>.*?) -->\n```(?P<language>\w*)$", re.MULTILINE)
CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog, whose links start from the root of the repository."""
    text = CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn the marker `<!-- file: NAME -->` of an example into a title of its block."""
    return EXAMPLE.sub(r'```\g<language> title="\g<name>"', markdown)
