"""Hooks of mkdocs: list the decisions, publish CHANGELOG.md, show the file name of each example."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EXAMPLE = re.compile(r"^<!-- file: (?P<name>.*?) -->\n```(?P<language>\w*)$", re.MULTILINE)
ROOT = Path(__file__).resolve().parent.parent


def on_config(config: Any) -> None:
    """Fill in the section of the navigation that lists the decisions."""
    [project] = (one["Project"] for one in config.nav if "Project" in one)
    [section] = (one for one in project if "Decisions" in one)
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    section["Decisions"] = [
        f"decisions/{name}" for name in ["README.md", *(page.name for page in pages)]
    ]


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog, whose links start from the root of the repository."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Keep decisions out of the search, and give each example the name of its file as its title."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    return EXAMPLE.sub(r'```\g<language> title="\g<name>"', markdown)
