"""Suites: test cases that belong together, in the agent.yaml or in files beside it."""

from typing import Annotated

from pydantic import Field, model_validator

from holodeck.models.agent import Agent
from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.test_case import TestCaseModel

Parameters = dict[NonBlank, list[Json]] | list[dict[NonBlank, Json]]


class WrittenCase(TestCaseModel):
    """A test case as it is written: with `parameters` it is several."""

    parameters: Parameters | None = None
    """Name → values, of which every combination is a case; or a list of mappings, each of which is
    one. `{{name}}` stands for the value wherever the case holds text."""


class DataFile(Model):
    """A file of test cases."""

    file: NonBlank
    """A path that ends in .yaml, .yml, .csv, .jsonl or .json."""
    columns: dict[NonBlank, NonBlank] = {}
    """Key of a case → the column or key of the file that holds it, where the two differ."""
    ignore: list[NonBlank] = []
    """Columns or keys of the file that are not read."""


class SuiteHeader(Model):
    """What the cases of a suite share."""

    name: NonBlank | None = None
    """What reports and `--suite` call it; of a file that says nothing, the file's name."""
    description: NonBlank | None = None
    """For people; nothing else reads it."""
    tags: list[NonBlank] = []
    """Tags that every case has besides its own."""


class SuiteEntry(SuiteHeader):
    """One suite with its cases, or the files that hold suites."""

    file: NonBlank | None = None
    """Path or pattern (`suites/*.yaml`, `**` for folders in folders) of files with a suite each."""
    test_cases: list[WrittenCase] | None = None
    """Its cases."""
    test_cases_file: NonBlank | DataFile | None = None
    """A file with more of its cases."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "SuiteEntry":
        given = self.model_fields_set
        if self.file is not None and len(given) > 1:
            other = next(name for name in type(self).model_fields if name in given - {"file"})
            raise ValueError(f"{other!r} stands beside 'file'; write it in the file")
        if self.file is None and self.name is None:
            raise ValueError("'name' is missing: name the suite, or a 'file' that holds it")
        return self


class SuiteFile(Model):
    """A file that holds a suite."""

    suite: SuiteHeader | None = None
    """What its cases share."""
    test_cases: list[WrittenCase] | None = None
    """Its cases."""
    test_cases_file: NonBlank | DataFile | None = None
    """A file with more of its cases."""


class AgentFile(Agent):
    """An agent.yaml as it is written: the cases of its suites and files not yet gathered."""

    test_cases: list[WrittenCase] | None = None  # type: ignore[assignment]
    """What is said to the agent, and what is expected of it."""
    test_cases_file: NonBlank | DataFile | None = None
    """A file with more cases: a path, or a mapping that says what its columns mean."""
    suites: Annotated[list[SuiteEntry], Field(min_length=1)] | None = None
    """Cases that belong together, written here or in files of their own."""
