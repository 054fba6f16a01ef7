"""Suites from YAML files: `suite:` with the shared settings, `scenarios:` with the work."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from holodeck import errors
from holodeck.config.lost_checks import (
    LostCheck,
    keys_without_value,
    misplaced_keys,
    raise_on_lost_checks,
)
from holodeck.config.source import Locations, Source, read_bytes
from holodeck.config.suite_files import may_be_suite
from holodeck.config.validation_errors import config_error
from holodeck.config.yaml_nodes import compose, decode_text
from holodeck.errors import ConfigError, NothingSelected
from holodeck.lib.suggestions import nearest_word
from holodeck.suite.faults import BadScenarioFile, NoSuchFile, NotAFolder
from holodeck.suite.scenario import Noun, Scenario, Suite, SuiteConfig

logger = logging.getLogger(__name__)

SUFFIXES = (".yaml", ".yml")
_KEYS = ("suite", "scenarios")


class Header(Noun):
    """What a file says of the suite."""

    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    tags: list[str] = Field(default_factory=list)
    config: SuiteConfig = Field(default_factory=SuiteConfig)


class SuiteFile(Noun):
    """A file as it is written."""

    suite: Header | None = None
    scenarios: Annotated[list[Scenario], Field(min_length=1)]


def load_scenarios(path: str | Path) -> Suite:
    """The suite in a YAML file; one without a name is called like the file.

    Raises FileNotFoundError if it is not there and ValueError, with the lines, if it is wrong; both
    are ConfigErrors too.
    """
    return _suite(Path(path), _source(Path(path)))


def load_scenarios_from_dir(directory: str | Path) -> list[Suite]:
    """The suites in the YAML files of a folder and the folders in it, in the order of their paths.

    Other YAML files are left out and named in the log, as are folders whose names begin with a dot.
    Raises like `load_scenarios`, NotADirectoryError, and NothingSelected if there is no suite.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise NotAFolder(str(folder), "is not a folder")
    suites = [_suite(path, source) for path, source in _suite_files(folder)]
    if not suites:
        raise NothingSelected(f"{folder}: no YAML file with 'scenarios:' in it")
    return suites


def _suite_files(folder: Path) -> Iterator[tuple[Path, Source]]:
    for path in sorted(folder.rglob("*.y*ml")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.suffix not in SUFFIXES or path.is_dir():
            continue
        source = _found(path)
        if source is None:
            logger.warning("%s: left out, there is no 'scenarios:' in it", path)
        else:
            yield path, source


def _found(path: Path) -> Source | None:
    """A file that holds a suite, be its keys misspelt; None if it holds something else."""
    try:
        source = _source(path)
    except ConfigError:
        if path.is_file() and not may_be_suite(path.read_bytes()):
            return None
        raise
    is_one = any(nearest_word(str(key), _KEYS) for key in source.data())
    return source if is_one else None


def _source(path: Path) -> Source:
    name = str(path)
    if path.suffix not in SUFFIXES:
        raise BadScenarioFile(name, "wanted a file that ends in .yaml or .yml")
    try:
        root = compose(decode_text(read_bytes(path, name), name), name)
    except errors.FileNotFoundError as error:
        raise NoSuchFile(name, error.message) from error
    except ConfigError as error:
        raise BadScenarioFile(error.field, error.message) from error
    if not isinstance(root.value, dict):
        found = "an empty file" if root.value is None else "no mapping"
        place = f"{name}:{root.line}:{root.column}"
        raise BadScenarioFile(place, f"found {found}; write 'scenarios:' and a list of them")
    return Source(name, root)


def _suite(path: Path, source: Source) -> Suite:
    try:
        written = SuiteFile.model_validate(source.data(), strict=True)
    except ValidationError as error:
        wrong = config_error(error, Locations(source), SuiteFile)
        raise BadScenarioFile(wrong.field, wrong.message) from error
    try:
        raise_on_lost_checks(_lost(written), Locations(source))
    except ConfigError as error:
        raise BadScenarioFile(error.field, error.message) from None
    _check_ids(written.scenarios, source)
    header = written.suite or Header(name=path.stem)
    return Suite.from_folder(
        path.parent,
        name=header.name,
        description=header.description,
        tags=header.tags,
        config=header.config,
        scenarios=written.scenarios,
    )


def _lost(written: SuiteFile) -> Iterator[LostCheck]:
    """Checks that would be lost, being without a value or in `metadata`."""
    yield from keys_without_value(written, ())
    for index, one in enumerate(written.scenarios):
        yield from misplaced_keys(one.metadata, ("scenarios", index, "metadata"))


def _check_ids(scenarios: list[Scenario], source: Source) -> None:
    ids = Counter(one.id for one in scenarios)
    for index, one in enumerate(scenarios):
        if ids[one.id] > 1:
            place = source.place(("scenarios", index, "id"))
            raise BadScenarioFile(place, f"more than one scenario has the id {one.id!r}")
