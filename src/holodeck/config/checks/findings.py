"""Findings of the static checks: errors, which stop a run, and warnings."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from holodeck.config.yaml.source import KeyPath, format_key_path
from holodeck.config.yaml.validation_errors import MAX_MESSAGE, limit_lines
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import RequiredInputs
from holodeck.lib.support.text import shorten_middle
from holodeck.models.agent import Agent

Severity = Literal["error", "warning"]
Tools = Mapping[str, list[str] | None]
"""Tool → names of its parameters; None for a tool that takes any, or whose file has errors."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong (an error), or probably unintended (a warning)."""

    severity: Severity
    path: str
    """Such as `test_cases[2].expected_tools[0]`."""
    message: str
    location: str
    """Such as `agent.yaml:41:7`."""
    stops_the_run: bool = True
    """Whether an error affects more than its own case, which would fail by itself."""

    def __str__(self) -> str:
        return f"{self.location}: {self.severity}: {self.path}: {self.message}"


@dataclass
class CheckContext:
    """What a check reads, and where it reports what it finds."""

    agent: Agent
    inputs: RequiredInputs
    """What each metric needs; known once the metrics are checked."""
    tools: Tools = field(default_factory=dict)
    """The tools of the agent; known once they are checked."""
    tools_of_servers: Collection[str] = ()
    """Tools with the name of their MCP server before it, which `expected_tools` may mean too."""
    knows_all_tools: bool = True
    """Whether there are no further tools, whose names only the run knows."""
    findings: list[Finding] = field(default_factory=list)

    def error(self, path: KeyPath, message: str, *, stops_the_run: bool = True) -> None:
        """Report something that makes a verdict wrong or meaningless."""
        self._add("error", path, message, stops_the_run)

    def warning(self, path: KeyPath, message: str) -> None:
        """Report something that is probably unintended, but may be right."""
        self._add("warning", path, message, stops_the_run=False)

    def config_error(
        self, path: KeyPath, error: ConfigError, *, stops_the_run: bool = True
    ) -> None:
        """Report a ConfigError; a location that it repeats is left out."""
        key_path = format_key_path(self.agent.source_path(*path))
        inner = error.field.removeprefix(f"{self.agent.location(*path)}: {key_path}").lstrip(".: ")
        has_own_location = inner and inner != key_path
        message = f"{inner}: {error.message}" if has_own_location else error.message
        self.error(path, message, stops_the_run=stops_the_run)

    @contextmanager
    def reporting(self, path: KeyPath, *, stops_the_run: bool = True) -> Iterator[None]:
        """Report a ConfigError that is raised within the block."""
        try:
            yield
        except ConfigError as error:
            self.config_error(path, error, stops_the_run=stops_the_run)

    def _add(self, severity: Severity, path: KeyPath, message: str, stops_the_run: bool) -> None:
        key_path = format_key_path(self.agent.source_path(*path)) or self.agent.name
        message = shorten_middle(message, MAX_MESSAGE // 2)  # it may quote megabytes
        location = self.agent.location(*path)
        self.findings.append(Finding(severity, key_path, message, location, stops_the_run))


def raise_on_errors(findings: Iterable[Finding]) -> None:
    """Raise a ConfigError with a line for each error that stops the run, if there is any."""
    errors = [
        finding for finding in findings if finding.severity == "error" and finding.stops_the_run
    ]
    if errors:
        lines = [f"{error.location}: {error.path}: {error.message}" for error in errors]
        location = errors[0].location
        raise ConfigError(location, "\n".join(limit_lines(lines)).removeprefix(f"{location}: "))
