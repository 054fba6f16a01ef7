"""A run in a step of GitHub Actions: its output is no workflow command, its failures annotate
lines of YAML, and a summary tells the rest."""

import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from holodeck.lib.reports.failures import (
    CheckGroup,
    each_outcome_first,
    explained_lines,
    in_turns,
)
from holodeck.lib.reports.junit import case_title
from holodeck.lib.reports.locations import place_of, short_location
from holodeck.lib.reports.markdown import SourceLinks
from holodeck.lib.reports.markdown_report import most_telling_first, overview
from holodeck.lib.support.text import one_line, plural, shorten_list
from holodeck.lib.ui.live import echo, write_raw
from holodeck.models.test_result import TestReport, TestResult


@dataclass(frozen=True)
class GitHubActions:
    """The step in which this process runs."""

    token: str
    """Until it is written, GitHub takes no line for a command."""
    workspace: Path
    summary_file: Path | None
    source: str = ""
    """The address of the checkout's files; empty if unknown."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> "GitHubActions":
        """Return the step that GitHub describes by these variables."""
        summary = variables.get("GITHUB_STEP_SUMMARY")
        return cls(
            token=secrets.token_hex(16),
            workspace=Path(variables.get("GITHUB_WORKSPACE") or Path.cwd()).absolute(),
            summary_file=Path(summary) if summary else None,
            source=_source(variables),
        )

    @property
    def links(self) -> SourceLinks:
        """Where the lines of YAML can be read."""
        return SourceLinks(self.source, str(self.workspace))

    def show(self, report: TestReport) -> None:
        """Annotate the lines of YAML of tests that did not pass, and add to the step summary."""
        lines = annotations(report, self.workspace)
        if lines:
            write_raw(sys.stdout, f"::{self.token}::\n{lines}::stop-commands::{self.token}\n")
        self.summarize(report)

    def summarize(self, report: TestReport) -> None:
        """Add the counts and the tests that did not pass to the step summary."""
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
        write_raw(sys.stdout, f"::stop-commands::{self.token}\n")
        try:
            yield
        finally:
            write_raw(sys.stdout, f"::{self.token}::\n")


def _source(variables: Mapping[str, str]) -> str:
    """Return the address of the files of the commit that is checked out; empty if unknown."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    server, repository, commit = (variables.get(name, "") for name in names)
    if not (server.startswith("https://") and repository and commit):
        return ""
    return f"{quote(server, safe='/:')}/{quote(repository)}/blob/{quote(commit)}/"


MOST_ANNOTATIONS = 10
"""GitHub shows no more of a kind for a step."""
_MAX_LINE = 1_000
_MAX_LINES = 20
_MAX_NAMED = 5
"""Other tests in which the same check failed that an annotation names."""
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotations(report: TestReport, workspace: Path) -> str:
    """Return a workflow command for each of the most telling tests that did not pass.

    Every outcome and every failed check comes before a second test of the same check. The first
    test of a check names the others.

    Args:
        report: The results.
        workspace: The folder of the checkout, to which paths must be relative, unless the report
            knows it better.
    """
    groups = each_outcome_first(most_telling_first(report))
    firsts = [(group.first, _others(group)) for group in groups[:MOST_ANNOTATIONS]]
    rest = in_turns(islice(group.results(), 1, None) for group in groups)
    telling = [*firsts, *((result, "") for result in islice(rest, MOST_ANNOTATIONS - len(firsts)))]
    lines = [_command(result, others, report, workspace) for result, others in telling]
    return "".join(f"{line}\n" for line in lines)


def step_summary(report: TestReport, links: SourceLinks) -> str:
    """Return the first screen of the report, as Markdown."""
    return "\n".join(overview(report, most_telling_first(report), links)) + "\n"


def _others(group: CheckGroup) -> str:
    """Return `also in 2 tests: pays (agent.yaml:4), waits (agent.yaml:9)`; empty for no other."""
    named = [_named(result) for result in islice(group.results(), 1, _MAX_NAMED + 1)]
    if not named:
        return ""
    others = group.count - 1
    names = shorten_list(named, _MAX_NAMED, count=others)
    return f"{group.checks}: also in {plural(others, 'test')}: {names}"


def _named(result: TestResult) -> str:
    place = short_location(result.location)
    return case_title(result) + (f" ({place})" if place else "")


def _command(result: TestResult, others: str, report: TestReport, workspace: Path) -> str:
    file, line, column = place_of(report, result, str(workspace))
    title = one_line(case_title(result), 100)
    properties = {"file": file, "line": line, "col": column, "title": title}
    written = ",".join(
        f"{key}={str(value).translate(_PROPERTY)}"
        for key, value in properties.items()
        if value is not None
    )
    lines = [*islice(explained_lines(result, _MAX_LINE), _MAX_LINES), one_line(others, _MAX_LINE)]
    message = "\n".join(filter(None, lines))
    return f"::error {written}::{message.translate(_DATA)}"
