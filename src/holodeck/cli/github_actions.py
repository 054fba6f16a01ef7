"""A run in a step of GitHub Actions: its output is no workflow command, its failures annotate."""

import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from holodeck.lib.ui.live import echo, write_raw

if TYPE_CHECKING:
    from holodeck.lib.reports.locations import SourceLinks
    from holodeck.models.test_result import TestReport


@dataclass(frozen=True)
class GitHubActions:
    """The step in which this process runs."""

    token: str
    """Until it is written, GitHub takes no line for a command."""
    workspace: Path
    summary_file: Path | None
    source: str = ""
    """The address of the checkout's files; empty if unknown."""

    @property
    def links(self) -> "SourceLinks":
        """Where the lines of YAML can be read."""
        from holodeck.lib.reports.locations import SourceLinks

        return SourceLinks(self.source, str(self.workspace))

    def show(self, report: "TestReport") -> None:
        """Annotate the lines of YAML of tests that did not pass, and add to the step summary."""
        from holodeck.lib.reports.github import annotations

        lines = annotations(report, self.workspace)
        if lines:
            self._write(f"::{self.token}::\n{lines}::stop-commands::{self.token}\n")
        self.summarize(report)

    def summarize(self, report: "TestReport") -> None:
        """Add the counts and the tests that did not pass to the step summary."""
        from holodeck.lib.reports.github import step_summary

        if self.summary_file is None:
            return
        try:
            with self.summary_file.open("a", encoding="utf-8") as file:
                file.write(step_summary(report, self.links))
        except OSError as error:
            echo(f"the step summary cannot be written: {error.strerror}", err=True)

    @contextmanager
    def commands_stopped(self) -> Iterator[None]:
        """Let no line of the block be a workflow command, whatever an agent answers."""
        self._write(f"::stop-commands::{self.token}\n")
        try:
            yield
        finally:
            self._write(f"::{self.token}::\n")

    def _write(self, lines: str) -> None:
        write_raw(sys.stdout, lines)


def github_actions() -> GitHubActions | None:
    """Return the step of GitHub Actions in which this process runs; None elsewhere."""
    from holodeck.lib.support.environment import process_variables

    variables = process_variables()
    if variables.get("GITHUB_ACTIONS") != "true":
        return None
    summary = variables.get("GITHUB_STEP_SUMMARY")
    return GitHubActions(
        token=secrets.token_hex(16),
        workspace=Path(variables.get("GITHUB_WORKSPACE") or Path.cwd()).absolute(),
        summary_file=Path(summary) if summary else None,
        source=_source(variables),
    )


def _source(variables: Mapping[str, str]) -> str:
    """Return the address of the files of the commit that is checked out; empty if unknown."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    server, repository, commit = (variables.get(name, "") for name in names)
    if not (server.startswith("https://") and repository and commit):
        return ""
    return f"{quote(server, safe='/:')}/{quote(repository)}/blob/{quote(commit)}/"
