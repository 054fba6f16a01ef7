"""Suites from YAML files: `suite:` holds the shared settings, `scenarios:` the scenarios."""

import builtins
import logging
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from holodeck import errors
from holodeck.config.cases.suite_files import may_be_suite
from holodeck.config.schema import change_objects
from holodeck.config.yaml.lost_checks import (
    keys_without_value,
    misplaced_keys,
    raise_on_lost_checks,
)
from holodeck.config.yaml.nodes import compose
from holodeck.config.yaml.source import Locations, Source, read_file
from holodeck.config.yaml.validation_errors import config_error
from holodeck.errors import ConfigError, NothingSelected
from holodeck.lib.support.text import nearest_word
from holodeck.suite.scenario import Scenario, Suite, SuiteConfig, SuiteModel

logger = logging.getLogger(__name__)

SUFFIXES = (".yaml", ".yml")
_KEYS = ("suite", "scenarios")


# These are also the built-in errors that code written for AgenticAssure catches.


class ScenarioFileNotFound(errors.FileNotFoundError, builtins.FileNotFoundError):
    """A scenario file does not exist."""


class NotAFolder(errors.FileNotFoundError, NotADirectoryError):
    """A folder of scenario files is not a folder."""


class InvalidScenarioFile(ConfigError, ValueError):
    """The content of a scenario file is wrong."""


class SchemaMismatch(InvalidScenarioFile):
    """Keys or values of a scenario file are wrong."""

    def __str__(self) -> str:
        return f"Schema validation failed: {super().__str__()}"  # words that tests look for


class WrittenSuiteHeader(SuiteModel):
    """The key `suite` of a file."""

    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    tags: list[str] = Field(default_factory=list)
    config: SuiteConfig = Field(default_factory=SuiteConfig)


class WrittenSuiteFile(SuiteModel):
    """A whole file."""

    suite: WrittenSuiteHeader | None = None
    scenarios: Annotated[list[Scenario], Field(min_length=1)]


def load_scenarios(path: str | Path) -> Suite:
    """Return the suite in a YAML file; without a name it is called like the file.

    Raises FileNotFoundError if the file does not exist and ValueError, with the lines, if its
    content is wrong; both are also ConfigErrors.
    """
    return _to_suite(Path(path), _read_source(Path(path)))


def load_scenarios_from_dir(directory: str | Path) -> list[Suite]:
    """Return the suites in the YAML files of a folder and its subfolders, sorted by path.

    Other YAML files are left out with a warning, and so are folders whose names begin with a dot.
    Raises like `load_scenarios`, NotADirectoryError, and NothingSelected if there is no suite.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise NotAFolder(str(folder), "is not a folder")
    suites = [_to_suite(path, source) for path, source in _suite_files(folder)]
    if not suites:
        raise NothingSelected(f"{folder}: no YAML file with 'scenarios:' in it")
    return suites


def validate_scenario_file(path: str | Path) -> list[str]:
    """Return what is wrong in a scenario file, one problem a line; empty if nothing is."""
    try:
        load_scenarios(path)
    except ScenarioFileNotFound as error:
        return [f"{path}: file not found ({error.message})"]
    except ConfigError as error:
        return str(error).splitlines()
    return []


def validate_with_schema(data: object) -> list[str]:
    """Return how the values of a scenario file contradict SUITE_SCHEMA; empty if they do not."""
    # Imported here because loading a file needs neither.
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(_suite_schema()).iter_errors(data)
    problems = [
        (".".join(map(str, error.absolute_path)) or "(root)", error.message) for error in errors
    ]
    return [f"Schema: {path}: {message}" for path, message in sorted(problems)]


def __getattr__(name: str) -> Any:
    if name == "SUITE_SCHEMA":
        return _suite_schema()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, made from the models that read them."""
    schema = change_objects(WrittenSuiteFile.model_json_schema(), _without_null)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out null, because a key without a value is an error in a file."""
    choices = [choice for choice in schema.pop("anyOf", []) if choice != {"type": "null"}]
    if not choices:
        return schema
    if schema.get("default", "") is None:
        del schema["default"]
    return schema | (choices[0] if len(choices) == 1 else {"anyOf": choices})


def _suite_files(folder: Path) -> Iterator[tuple[Path, Source]]:
    for path in sorted(folder.rglob("*.y*ml")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_hidden or path.suffix not in SUFFIXES or path.is_dir():
            continue
        source = _read_if_suite(path)
        if source is None:
            logger.warning("%s: left out, there is no 'scenarios:' in it", path)
        else:
            yield path, source


def _read_if_suite(path: Path) -> Source | None:
    """Return a file that holds a suite, even with misspelled keys; None for any other file."""
    try:
        source = _read_source(path)
    except ConfigError:
        if path.is_file() and not may_be_suite(path.read_bytes()):
            return None
        raise
    is_suite = any(nearest_word(str(key), _KEYS) is not None for key in source.data())
    return source if is_suite else None


def _read_source(path: Path) -> Source:
    name = str(path)
    if path.suffix not in SUFFIXES:
        raise InvalidScenarioFile(name, "expected a file that ends in .yaml or .yml")
    try:
        root = compose(read_file(path, name), name)
    except errors.FileNotFoundError as error:
        raise ScenarioFileNotFound(name, error.message) from error
    except ConfigError as error:
        raise InvalidScenarioFile(error.field, error.message) from error
    if not isinstance(root.value, dict):
        written = "an empty file" if root.value is None else "no mapping"
        problem = f"found {written}; write 'scenarios:' and a list of them"
        raise InvalidScenarioFile(f"{name}:{root.line}:{root.column}", problem)
    return Source(name, root)


def _to_suite(path: Path, source: Source) -> Suite:
    try:
        written = WrittenSuiteFile.model_validate(source.data(), strict=True)
    except ValidationError as error:
        wrong = config_error(error, Locations(source), WrittenSuiteFile)
        raise SchemaMismatch(wrong.field, wrong.message) from error
    try:
        # Keys without a value, and keys inside `metadata`, would check nothing.
        lost = list(keys_without_value(written, ()))
        for index, scenario in enumerate(written.scenarios):
            lost += misplaced_keys(scenario.metadata, ("scenarios", index, "metadata"))
        raise_on_lost_checks(lost, Locations(source))
    except ConfigError as error:
        raise InvalidScenarioFile(error.field, error.message) from None
    ids = Counter(scenario.id for scenario in written.scenarios)
    for index, scenario in enumerate(written.scenarios):
        if ids[scenario.id] > 1:
            problem = f"more than one scenario has the id {scenario.id!r}"
            raise InvalidScenarioFile(source.location(("scenarios", index, "id")), problem)
    header = written.suite or WrittenSuiteHeader(name=path.stem)
    return Suite.from_folder(path.parent, **dict(header), scenarios=written.scenarios)
