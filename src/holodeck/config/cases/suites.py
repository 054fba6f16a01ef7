"""Suites, from the agent.yaml and from files of their own, as cases that know their suite."""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from holodeck.config.cases.files import Case, Files, in_words
from holodeck.config.cases.left_out import current_left_out
from holodeck.config.cases.scenarios import scenario_to_case
from holodeck.config.lost_checks import Lost, misplaced, refuse, without_value
from holodeck.config.owners import holds_a_suite, is_yaml, may_hold_a_suite
from holodeck.config.places import Origin, Places
from holodeck.config.problems import config_error
from holodeck.config.source import Source, shown
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import nearest_word
from holodeck.models.suite import DataFile, SuiteEntry, SuiteFile, SuiteHeader

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
HOLDS = ("test_cases", "test_cases_file", "scenarios")
"""Keys of a file that holds a suite; `suite` alone is one without cases."""

_OF_A_CASE = ("input", "turns", "script", "simulate")

WITHOUT_CASES = "a suite without test cases; write 'test_cases'"
NO_FILE = "found nothing; write where the cases are, or remove the key"


@dataclass(frozen=True)
class Suite:
    """A suite with its cases as they were written."""

    name: str
    header: SuiteHeader
    origin: Origin
    folder: Path
    """Where relative paths of its cases start."""
    cases: list[Case]


def load_suites(written: Any, origin: Origin, files: Files) -> Iterator[Suite]:
    """The suites that `suites:` names. Raises ConfigError."""
    if not isinstance(written, list) or not written:
        raise ConfigError(in_words(origin), "wanted a list with at least one suite in it")
    for index, entry in enumerate(written):
        at = origin.below(index)
        if isinstance(entry, str):
            raise ConfigError(in_words(at), f"wanted a mapping: write 'file: {entry[:80]}'")
        suite = validate_suite(SuiteEntry, entry, at)
        if suite.file is None:
            yield _inline(suite, entry, at, files)
        else:
            yield from _of_files(suite.file, at.below("file"), files)


def load_suite_file(name: str, origin: Origin, files: Files) -> Suite | None:
    """The suite in a file, named as seen from the agent's folder; None if it is left out.

    Raises ConfigError.
    """
    path = files.find(name, files.folder, origin)
    return None if _is_left_out(path) else _of_file(_source(path, files), path, files)


def suite_name(path: Path) -> str:
    """What the suite in a file is called. Raises ConfigError."""
    source = Source.read(path, shown(path))
    written = source.data().get("suite")
    named = isinstance(written, dict) and written.get("name")
    return str(named) if named else _stem(path)


def _stem(path: Path) -> str:
    return path.stem.removesuffix(".suite")


def validate_suite(model: type[M], written: Any, origin: Origin) -> M:
    """A suite's mapping without its cases, which are validated later. Raises ConfigError."""
    data = written
    if isinstance(written, dict) and isinstance(written.get("test_cases"), list):
        data = {**written, "test_cases": []}
    places = Places(origin.source)
    try:
        found = model.model_validate(data)
    except ValidationError as error:
        raise config_error(error, places, model, origin.path) from None
    lost = chain(without_value(found, ()), _misplaced(found))
    refuse((((*origin.path, *path), message) for path, message in lost), places)
    return found


def _misplaced(found: BaseModel) -> Iterator[Lost]:
    """Keys of cases in the `context` of a suite and in the `metadata` of a scenario."""
    if isinstance(found, SuiteEntry):
        yield from misplaced(found.context, ("context",))
    if isinstance(found, SuiteFile):
        if found.suite is not None:
            yield from misplaced(found.suite.context, ("suite", "context"))
        for index, scenario in enumerate(found.scenarios or ()):
            yield from misplaced(scenario.metadata, ("scenarios", index, "metadata"))


def as_data_file(written: str | DataFile) -> DataFile:
    """What is said of a file of cases, be it only its path."""
    return DataFile(file=written) if isinstance(written, str) else written


def _inline(suite: SuiteEntry, entry: Mapping[str, Any], origin: Origin, files: Files) -> Suite:
    cases = _cases(suite, entry, origin, files.folder, files)
    if not cases:
        raise ConfigError(in_words(origin), WITHOUT_CASES)
    return Suite(suite.name or "", suite, origin, files.folder, cases)


def _of_files(pattern: str, origin: Origin, files: Files) -> Iterator[Suite]:
    """The suites in the files that a path or pattern means, in the order of their paths."""
    is_pattern = any(sign in pattern for sign in "*?[")
    paths = _matching(pattern, origin, files) if is_pattern else [pattern]
    found = 0
    for name in paths:
        path = files.find(name, files.folder, origin)
        if _is_left_out(path):
            found += 1
            continue
        source = _found_by_pattern(path, files) if is_pattern else _source(path, files)
        if source is None:
            if path.resolve() not in files.doubtful:
                logger.warning("%s: left out, it holds no suite", shown(path))
            continue
        found += 1
        yield _of_file(source, path, files)
    if not found:
        files.check_all_read()
        raise ConfigError(in_words(origin), f"no file that {pattern!r} matches holds a suite")


def _is_left_out(path: Path) -> bool:
    """Whether the file is known to be wrong and not wanted; one that is read may become so."""
    left_out = current_left_out()
    if left_out is None:
        return False
    left_out.read.add(shown(path))
    return shown(path) in left_out.errors


def _matching(pattern: str, origin: Origin, files: Files) -> list[str]:
    try:
        paths = sorted(files.folder.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(in_words(origin), f"{pattern!r} is no usable pattern: {error}") from None
    own = files.agent_file.resolve()
    found = [path for path in paths if _is_meant(path) and path.resolve() != own]
    _note_other_endings(pattern, {path.resolve() for path in paths}, origin, files)
    if not found:
        files.check_all_read()
        raise ConfigError(in_words(origin), f"no file matches {pattern!r} in {files.folder}")
    return [os.path.relpath(path, files.folder) for path in found]


def _is_meant(path: Path) -> bool:
    """A link to nowhere is told of, as its suite would be missed; editors leave hidden ones."""
    is_broken = path.is_symlink() and not path.exists()
    return path.is_file() or (is_broken and not path.name.startswith("."))


def _note_other_endings(pattern: str, matched: set[Path], origin: Origin, files: Files) -> None:
    """Note the suites that only the ending of their names (.yml, .YAML) keeps out of a pattern."""
    if not is_yaml(pattern):
        return
    for path in sorted(files.folder.glob(f"{pattern.rpartition('.')[0]}.*")):
        full = path.resolve()
        is_like = is_yaml(path) and path.name != files.agent_file.name
        if is_like and full not in matched and _is_meant(path) and holds_a_suite(path):
            files.doubtful[full] = ConfigError(
                in_words(origin),
                f"{pattern!r} does not match {shown(path)!r}, which holds a suite; name it, too, or"
                f" let it end in {Path(pattern).suffix!r}",
            )


def _source(path: Path, files: Files) -> Source:
    if not is_yaml(path):
        raise ConfigError(
            shown(path), "holds no suite; name it in 'test_cases_file' if it holds test cases"
        )
    return files.read_yaml(path)


def _found_by_pattern(path: Path, files: Files) -> Source | None:
    """A file that holds a suite; None if it holds something else. Raises ConfigError."""
    try:
        source = _source(path, files)
    except ConfigError:
        if is_yaml(path) and path.is_file() and not may_hold_a_suite(path.read_bytes()):
            return None
        raise
    if source.root.value is None and not path.read_bytes().strip():
        raise ConfigError(f"{source.name}:1:1", "the file is empty; write a suite, or remove it")
    if _holds_a_suite(source):
        return source
    place = _cases_in(source)
    if place is not None:
        files.doubtful[path.resolve()] = ConfigError(
            place, "found test cases outside of a suite; write 'test_cases:' above them"
        )
    return None


def _cases_in(source: Source) -> str | None:
    """Where test cases stand in a file without the keys of a suite; None if there are none."""
    value = source.root.value
    below = [node for _, node in value.values()] if isinstance(value, dict) else []
    for node in (source.root, *below):
        entries = node.value if isinstance(node.value, list) else []
        for one in entries:
            if isinstance(one.value, dict) and not one.value.keys().isdisjoint(_OF_A_CASE):
                return f"{source.name}:{node.line}:{node.column}"
    return None


def _holds_a_suite(source: Source) -> bool:
    """Whether it holds one; a file that only nearly says so does, to be told what is wrong."""
    if not isinstance(source.root.value, dict):
        return False
    keys = source.root.value
    wanted = ("suite", *HOLDS)
    return any(nearest_word(key, wanted) for key in keys)


def _of_file(source: Source, path: Path, files: Files) -> Suite:
    files.read.add(path.resolve())
    origin = Origin(source, ())
    written = source.value(files.change)
    if not isinstance(written, dict):
        raise ConfigError(origin.place, "wanted a mapping with 'suite' and 'test_cases'")
    held = validate_suite(SuiteFile, written, origin)
    header = held.suite or SuiteHeader()
    name = header.name or _stem(path)
    cases = _cases(held, written, origin, path.parent, files)
    for index, scenario in enumerate(held.scenarios or ()):
        at = origin.below("scenarios", index)
        cases.append((scenario_to_case(scenario, header.config.default_scorers, at), at))
    if not cases:
        raise ConfigError(in_words(origin), WITHOUT_CASES)
    return Suite(name, header, origin, path.parent, cases)


def _cases(
    suite: SuiteEntry | SuiteFile,
    written: Mapping[str, Any],
    origin: Origin,
    start: Path,
    files: Files,
) -> list[Case]:
    listed = written.get("test_cases") or []
    cases: list[Case] = [
        (case, origin.below("test_cases", index)) for index, case in enumerate(listed)
    ]
    named = origin.below("test_cases_file")
    if suite.test_cases_file is None and "test_cases_file" in written:
        raise ConfigError(in_words(named), NO_FILE)
    if suite.test_cases_file is not None:
        data = as_data_file(suite.test_cases_file)
        cases += files.cases(data, start, named)
    return cases
