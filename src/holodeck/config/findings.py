"""What a check of the configuration found."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holodeck.config.source import KeyPath, format_key_path
from holodeck.config.validation_errors import MAX_MESSAGE, limit_lines
from holodeck.errors import ConfigError
from holodeck.lib.text import abridged
from holodeck.models.agent import Agent

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or probably not meant."""

    severity: Severity
    path: str
    """Such as `test_cases[2].expected_tools[0]`."""
    message: str
    place: str
    """Such as `agent.yaml:41:7`."""
    stops_the_run: bool = True
    """Whether an error concerns more than the one case, which would fail by itself."""

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.path}: {self.message}"


class Findings:
    """Collects what is found about one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.all: list[Finding] = []

    def error(self, path: KeyPath, message: str, *, stops_the_run: bool = True) -> None:
        self._add("error", path, message, stops_the_run)

    def warning(self, path: KeyPath, message: str) -> None:
        self._add("warning", path, message, stops_the_run=False)

    def _add(self, severity: Severity, path: KeyPath, message: str, stops_the_run: bool) -> None:
        where = format_key_path(self._agent.source_path(*path)) or self._agent.name
        place = self._agent.place(*path)
        brief = abridged(message, MAX_MESSAGE // 2)  # what it quotes may be megabytes
        self.all.append(Finding(severity, where, brief, place, stops_the_run))

    def of_error(self, path: KeyPath, error: ConfigError, *, stops_the_run: bool = True) -> None:
        """An error of ours, without the place that it already tells."""
        named = format_key_path(self._agent.source_path(*path))
        known = f"{self._agent.place(*path)}: {named}"
        inner = error.field.removeprefix(known).lstrip(".: ")
        text = f"{inner}: {error.message}" if inner and inner != named else error.message
        self.error(path, text, stops_the_run=stops_the_run)


def raise_on_errors(findings: Iterable[Finding]) -> None:
    """Raise one ConfigError with a line for each error that stops the run, if there is any."""
    wrong = [one for one in findings if one.severity == "error" and one.stops_the_run]
    if wrong:
        lines = [f"{one.place}: {one.path}: {one.message}" for one in wrong]
        place = wrong[0].place
        raise ConfigError(place, "\n".join(limit_lines(lines)).removeprefix(f"{place}: "))
