"""Cases that an agent.yaml names and does not hold: those of data files and of suites."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.config.cases.files import Case, Files, in_words
from holodeck.config.cases.suite_defaults import with_moved_files, with_suite_defaults
from holodeck.config.cases.suites import (
    NO_FILE,
    Suite,
    load_suite_file,
    load_suites,
    validate_suite,
)
from holodeck.config.nodes import short
from holodeck.config.places import Origin
from holodeck.config.source import Source
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.suite import AgentFile, DataFile

_KEYS = tuple(AgentFile.model_fields.keys() - Agent.model_fields.keys())
"""Keys that name cases outside of `test_cases`."""


def external_cases(
    data: dict[str, Any], source: Source, files: Files, also: Sequence[str]
) -> Iterator[Case]:
    """The cases that the values of an agent.yaml and the files `also` lead to.

    The keys that name them are taken out of `data`, at once. Raises ConfigError.
    """
    written = {key: data.pop(key) for key in _KEYS if key in data}
    for key, value in written.items():
        if value is None:  # tests would be left out unnoticed
            raise ConfigError(source.place((key,)), f"{key}: {NO_FILE}")
    return _cases(written, source, files, also)


def _cases(
    written: Mapping[str, Any], source: Source, files: Files, also: Sequence[str]
) -> Iterator[Case]:
    named = written.get("test_cases_file")
    if named is not None:
        origin = Origin(source, ("test_cases_file",))
        data_file = validate_suite(
            DataFile, {"file": named} if isinstance(named, str) else named, origin
        )
        yield from files.cases(data_file, files.folder, origin)
    for suite in _unique(_suites(written.get("suites"), source, files, also)):
        for case, at in suite.cases:
            yield _of_suite(case, suite, files.folder, at), at


def _suites(written: Any, source: Source, files: Files, also: Sequence[str]) -> Iterator[Suite]:
    read = set[str]()
    if written is not None:
        for suite in load_suites(written, Origin(source, ("suites",)), files):
            read.add(suite.origin.source.name)
            yield suite
    for name in also:
        loose = load_suite_file(name, Origin(source, ()), files)
        if loose is not None and loose.origin.source.name not in read:
            yield loose
    files.check_all_read()


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
    return with_moved_files(
        with_suite_defaults(case, suite.name, suite.header, origin), suite.folder, folder
    )
