"""All test cases of an agent.yaml in one list: its own, those of data files, those of suites."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.cases.files import Files, in_words
from holodeck.config.cases.parameters import expanded
from holodeck.config.cases.sharing import moved, shared
from holodeck.config.cases.suites import NO_FILE, Suite, suite_in, suites_of, validated
from holodeck.config.nodes import short
from holodeck.config.places import Origin
from holodeck.config.source import Source
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.suite import AgentFile, DataFile

_ELSEWHERE = tuple(AgentFile.model_fields.keys() - Agent.model_fields.keys())
"""Keys that name cases outside of `test_cases`."""


@dataclass
class Gathered:
    """An agent.yaml's values, `test_cases` being all of them."""

    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    """Of each case, where it was written."""

    def add(self, case: Any, origin: Origin) -> None:
        """Add the cases that one stands for; what is no case is left to be told of."""
        several = expanded(case, origin) if isinstance(case, dict) else iter([case])
        for one in several:
            self.cases.append(one)
            self.origins.append(origin)


def gather(source: Source, files: Files, also: Sequence[str] = ()) -> Gathered:
    """The values of an agent.yaml with the cases from everywhere. Raises ConfigError.

    `also` are files of suites that it need not name itself, as seen from its folder.
    """
    data = source.data(files.change)
    elsewhere = {key: _named(key, data.pop(key), source) for key in _ELSEWHERE if key in data}
    named, suites = elsewhere.get("test_cases_file"), elsewhere.get("suites")
    own = data.get("test_cases")
    found = Gathered(data)
    if own is not None and not isinstance(own, list):
        return found  # which is told together with whatever else is wrong
    for index, case in enumerate(own or []):
        found.add(case, Origin(source, ("test_cases", index)))
    if named is not None:
        origin = Origin(source, ("test_cases_file",))
        data_file = validated(
            DataFile, {"file": named} if isinstance(named, str) else named, origin
        )
        for case, at in files.cases(data_file, files.folder, origin):
            found.add(case, at)
    for suite in _unique(_suites(suites, source, files, also)):
        for case, at in suite.cases:
            found.add(_of_suite(case, suite, files.folder, at), at)
    if own is not None or found.cases:
        data["test_cases"] = found.cases
    return found


def _named(key: str, value: Any, source: Source) -> Any:
    """The value of a key that names cases; without one, tests would be left out unnoticed."""
    if value is None:
        raise ConfigError(source.place((key,)), f"{key}: {NO_FILE}")
    return value


def _suites(written: Any, source: Source, files: Files, also: Sequence[str]) -> Iterator[Suite]:
    read = set[str]()
    if written is not None:
        for suite in suites_of(written, Origin(source, ("suites",)), files):
            read.add(suite.origin.source.name)
            yield suite
    for name in also:
        loose = suite_in(name, Origin(source, ()), files)
        if loose is not None and loose.origin.source.name not in read:
            yield loose


def _unique(suites: Iterator[Suite]) -> Iterator[Suite]:
    seen: dict[str, Suite] = {}
    for suite in suites:
        first = seen.setdefault(suite.name, suite)
        if first is not suite and first.origin.place == suite.origin.place:
            raise ConfigError(in_words(suite.origin), "the file is named twice in 'suites'")
        if first is not suite:
            raise ConfigError(
                in_words(suite.origin),
                f"there is a suite {short(suite.name)} already ({first.origin.place});"
                " give each a name of its own",
            )
        yield suite


def _of_suite(case: Any, suite: Suite, folder: Path, origin: Origin) -> Any:
    if not isinstance(case, dict):
        return case
    return moved(shared(case, suite.name, suite.header, origin), suite.folder, folder)
