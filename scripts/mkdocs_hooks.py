"""Hooks of mkdocs: decisions, the changelog, names of files, and pictures for both themes."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EXAMPLE = re.compile(r"^<!-- file: (?P<name>.*?) -->\n```(?P<language>\w*)$", re.MULTILINE)
PICTURE = re.compile(r"!\[(?P<text>[^]]*)\]\((?P<stem>\S+)-light\.(?P<kind>png|svg)\)")
"""A picture that has a twin for the dark theme."""
BOTH = "".join(rf"![\g<text>](\g<stem>-{name}.\g<kind>#only-{name})" for name in ("light", "dark"))
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
    """Hide decisions from the search, name the files of examples, give pictures their twins."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    titled = EXAMPLE.sub(r'```\g<language> title="\g<name>"', markdown)
    return PICTURE.sub(BOTH, titled)
