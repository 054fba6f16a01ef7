"""Load the cases of suites and data files that an agent.yaml names."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from holodeck.config.cases.data_files import CaseFiles, LocatedCase
from holodeck.config.cases.stand_ins import with_stub_file
from holodeck.config.cases.suite_files import (
    current_invalid_suites,
    is_suite_file,
    is_yaml,
    may_be_suite,
)
from holodeck.config.cases.written_cases import (
    scenario_to_case,
    with_moved_files,
    with_suite_defaults,
)
from holodeck.config.yaml.lost_checks import (
    LostCheck,
    keys_without_value,
    misplaced_keys,
    raise_on_lost_checks,
)
from holodeck.config.yaml.source import Locations, Origin, Source, display_path
from holodeck.config.yaml.validation_errors import config_error
from holodeck.errors import ConfigError
from holodeck.lib.support.text import nearest_word, quote
from holodeck.models.agent import Agent, AgentFile, DataFile, SuiteEntry, SuiteFile, SuiteHeader
from holodeck.models.cases.stubs import StandIns

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
HOLDS = ("test_cases", "test_cases_file", "scenarios")
"""Keys of a suite file that hold cases."""

_OF_A_CASE = ("input", "turns", "script", "simulate")

WITHOUT_CASES = "the suite has no test cases; write 'test_cases'"
NO_FILE = "has no value; write the path of the cases, or remove the key"


@dataclass(frozen=True)
class CaseSuite:
    """A suite with its cases as written."""

    name: str
    header: SuiteHeader
    origin: Origin
    folder: Path
    """The folder that paths of its cases are relative to."""
    cases: list[LocatedCase]


def suite_name(path: Path) -> str:
    """Return the name of the suite in a file. Raises ConfigError."""
    source = Source.read(path, display_path(path))
    written = source.data().get("suite")
    named = isinstance(written, dict) and written.get("name")
    return str(named) if named else _stem(path)


def _stem(path: Path) -> str:
    return path.stem.removesuffix(".suite")


def validate_suite(model: type[M], written: Any, origin: Origin) -> M:
    """Validate a suite's mapping; its cases are validated later. Raises ConfigError."""
    data = written
    if isinstance(written, dict) and isinstance(written.get("test_cases"), list):
        data = {**written, "test_cases": []}
    locations = Locations(origin.source)
    try:
        suite = model.model_validate(data)
    except ValidationError as error:
        raise config_error(error, locations, model, origin.path) from None
    lost = chain(keys_without_value(suite, ()), _misplaced_in(suite))
    raise_on_lost_checks((((*origin.path, *path), message) for path, message in lost), locations)
    return suite


def _misplaced_in(written: BaseModel) -> Iterator[LostCheck]:
    """Yield keys of cases in the `context` of a suite and in the `metadata` of a scenario."""
    if isinstance(written, SuiteEntry):
        yield from misplaced_keys(written.context, ("context",))
    if isinstance(written, SuiteFile):
        if written.suite is not None:
            yield from misplaced_keys(written.suite.context, ("suite", "context"))
        for index, scenario in enumerate(written.scenarios or ()):
            yield from misplaced_keys(scenario.metadata, ("scenarios", index, "metadata"))


def _load_matching(pattern: str, origin: Origin, files: CaseFiles) -> Iterator[CaseSuite]:
    """Yield the suites of the files that match a path or pattern, sorted by path."""
    is_pattern = any(sign in pattern for sign in "*?[")
    paths = _matching_paths(pattern, origin, files) if is_pattern else [pattern]
    has_suite = False
    for name in paths:
        path = files.find(name, files.folder, origin)
        if _is_known_invalid(path):
            has_suite = True
            continue
        source = _read_if_suite(path, files) if is_pattern else _read_suite(path, files)
        if source is not None:
            has_suite = True
            yield _load_suite(source, path, files)
        elif path.resolve() not in files.doubtful:
            logger.warning("%s: skipped, because it holds no suite", display_path(path))
    if not has_suite:
        files.check_all_read()
        raise origin.error(f"no file that matches {pattern!r} holds a suite")


def _is_known_invalid(path: Path) -> bool:
    """Whether the file is known to be invalid and `--skip-invalid` skips it."""
    invalid_suites = current_invalid_suites()
    if invalid_suites is None:
        return False
    invalid_suites.read.add(display_path(path))
    return display_path(path) in invalid_suites.errors


def _matching_paths(pattern: str, origin: Origin, files: CaseFiles) -> list[str]:
    try:
        paths = sorted(files.folder.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise origin.error(f"invalid pattern {pattern!r}: {error}") from None
    agent = files.agent_file.resolve()
    matching = [path for path in paths if _is_file_or_broken_link(path) and path.resolve() != agent]
    _note_other_suffixes(pattern, {path.resolve() for path in paths}, origin, files)
    if not matching:
        files.check_all_read()
        raise origin.error(f"no file matches {pattern!r} in {files.folder}")
    return [os.path.relpath(path, files.folder) for path in matching]


def _is_file_or_broken_link(path: Path) -> bool:
    """Whether to read a path: a file, or a broken link, except the hidden ones of editors."""
    is_broken = path.is_symlink() and not path.exists()
    return path.is_file() or (is_broken and not path.name.startswith("."))


def _note_other_suffixes(
    pattern: str, matched: set[Path], origin: Origin, files: CaseFiles
) -> None:
    """Note suite files that miss a pattern only because of their suffix (.yml, .YAML)."""
    if not is_yaml(pattern):
        return
    for path in sorted(files.folder.glob(f"{pattern.rpartition('.')[0]}.*")):
        full = path.resolve()
        is_like = is_yaml(path) and path.name != files.agent_file.name
        if (
            is_like
            and full not in matched
            and _is_file_or_broken_link(path)
            and is_suite_file(path)
        ):
            files.doubtful[full] = ConfigError(
                str(origin),
                f"{pattern!r} does not match {display_path(path)!r}, which holds a suite; name that"
                f" file too, or rename it to end in {Path(pattern).suffix!r}",
            )


def _read_suite(path: Path, files: CaseFiles) -> Source:
    if not is_yaml(path):
        raise ConfigError(
            display_path(path),
            "is not a suite file; name it in 'test_cases_file' if it holds test cases",
        )
    return files.read_yaml(path)


def _read_if_suite(path: Path, files: CaseFiles) -> Source | None:
    """Read a file if it holds a suite, else return None. Raises ConfigError."""
    try:
        source = _read_suite(path, files)
    except ConfigError:
        if is_yaml(path) and path.is_file() and not may_be_suite(path.read_bytes()):
            return None
        raise
    if source.root.value is None and not path.read_bytes().strip():
        raise ConfigError(f"{source.name}:1:1", "the file is empty; write a suite, or remove it")
    keys = source.root.value if isinstance(source.root.value, dict) else {}
    if any(nearest_word(key, ("suite", *HOLDS)) for key in keys):  # a misspelt one gets an error
        return source
    location = _cases_in(source)
    if location is not None:
        files.doubtful[path.resolve()] = ConfigError(
            location, "found test cases outside of a suite; write 'test_cases:' above them"
        )
    return None


def _cases_in(source: Source) -> str | None:
    """Return the location of test cases in a file without keys of a suite, or None."""
    value = source.root.value
    below = [node for _, node in value.values()] if isinstance(value, dict) else []
    for node in (source.root, *below):
        entries = node.value if isinstance(node.value, list) else []
        for entry in entries:
            if isinstance(entry.value, dict) and not entry.value.keys().isdisjoint(_OF_A_CASE):
                return f"{source.name}:{node.line}:{node.column}"
    return None


def _load_suite(source: Source, path: Path, files: CaseFiles) -> CaseSuite:
    files.read.add(path.resolve())
    origin = Origin(source, ())
    written = source.value(files.substitute)
    if not isinstance(written, dict):
        raise ConfigError(origin.location, "expected a mapping with 'suite' and 'test_cases'")
    held = validate_suite(SuiteFile, written, origin)
    header = held.suite or SuiteHeader()
    name = header.name or _stem(path)
    cases = _cases_of_suite(held, written, origin, path.parent, files)
    for index, scenario in enumerate(held.scenarios or ()):
        at = origin.below("scenarios", index)
        cases.append((scenario_to_case(scenario, header.config.default_scorers, at), at))
    if not cases:
        raise origin.error(WITHOUT_CASES)
    return CaseSuite(name, header, origin, path.parent, cases)


def _cases_of_suite(
    suite: SuiteEntry | SuiteFile,
    written: Mapping[str, Any],
    origin: Origin,
    start: Path,
    files: CaseFiles,
) -> list[LocatedCase]:
    listed = written.get("test_cases") or []
    cases: list[LocatedCase] = [
        (case, origin.below("test_cases", index)) for index, case in enumerate(listed)
    ]
    named = origin.below("test_cases_file")
    if suite.test_cases_file is None and "test_cases_file" in written:
        raise named.error(NO_FILE)
    if suite.test_cases_file is not None:
        named_file = suite.test_cases_file
        data = DataFile(file=named_file) if isinstance(named_file, str) else named_file
        cases += files.cases(data, start, named)
    if not cases and isinstance(suite, SuiteEntry):
        raise origin.error(WITHOUT_CASES)
    return cases


EXTERNAL_KEYS = tuple(AgentFile.model_fields.keys() - Agent.model_fields.keys())
"""Keys that name cases outside of `test_cases`."""


def load_external_cases(
    written: Mapping[str, Any],
    source: Source,
    files: CaseFiles,
    extra_suites: Sequence[str],
    stand_ins: dict[str, StandIns],
) -> Iterator[LocatedCase]:
    """Yield the cases that the EXTERNAL_KEYS of an agent.yaml and `extra_suites` name.

    `stand_ins` gets what each suite has in place of tools and models. Raises ConfigError.
    """
    for key, value in written.items():
        if value is None:  # tests would be left out unnoticed
            raise ConfigError(source.location((key,)), f"{key}: {NO_FILE}")
    named = written.get("test_cases_file")
    if named is not None:
        origin = Origin(source, ("test_cases_file",))
        data_file = validate_suite(
            DataFile, {"file": named} if isinstance(named, str) else named, origin
        )
        yield from files.cases(data_file, files.folder, origin)
    for suite in _with_unique_names(_suites(written.get("suites"), source, files, extra_suites)):
        location = suite.origin.below("stubs").location
        stand_ins[suite.name] = with_stub_file(
            suite.header, suite.folder, location, files.substitute
        )
        for case, origin in suite.cases:
            if isinstance(case, dict):
                full = with_suite_defaults(case, suite.name, suite.header, origin)
                yield with_moved_files(full, suite.folder, files.folder), origin
            else:
                yield case, origin


def _suites(
    written: Any, source: Source, files: CaseFiles, extra_suites: Sequence[str]
) -> Iterator[CaseSuite]:
    """Yield the suites that `suites:` names, and those of further files."""
    names = set[str]()
    for suite in [] if written is None else _named_suites(written, source, files):
        names.add(suite.origin.source.name)
        yield suite
    for name in extra_suites:
        path = files.find(name, files.folder, Origin(source, ()))
        if not _is_known_invalid(path):
            suite = _load_suite(_read_suite(path, files), path, files)
            if suite.origin.source.name not in names:
                yield suite
    files.check_all_read()


def _named_suites(written: Any, source: Source, files: CaseFiles) -> Iterator[CaseSuite]:
    origin = Origin(source, ("suites",))
    if not isinstance(written, list) or not written:
        raise origin.error("expected a list with at least one suite")
    for index, entry in enumerate(written):
        at = origin.below(index)
        if isinstance(entry, str):
            raise at.error(f"expected a mapping: write 'file: {entry[:80]}'")
        suite = validate_suite(SuiteEntry, entry, at)
        if suite.file is None:
            cases = _cases_of_suite(suite, entry, at, files.folder, files)
            yield CaseSuite(suite.name or "", suite, at, files.folder, cases)
        else:
            yield from _load_matching(suite.file, at.below("file"), files)


def _with_unique_names(suites: Iterator[CaseSuite]) -> Iterator[CaseSuite]:
    by_name: dict[str, CaseSuite] = {}
    for suite in suites:
        first = by_name.setdefault(suite.name, suite)
        if first is not suite and first.origin.location == suite.origin.location:
            raise suite.origin.error("'suites' names this file twice")
        if first is not suite:
            raise suite.origin.error(
                f"duplicate suite name {quote(suite.name)} ({first.origin.location}); rename one",
            )
        yield suite
