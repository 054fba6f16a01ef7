"""Suites: test cases that belong together, in the agent.yaml or in files beside it."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from holodeck.models.agent import Agent
from holodeck.models.base import Json, Model, NonBlank, ReadPath, Seconds
from holodeck.models.cases.expectations import WrittenScorer
from holodeck.models.cases.stubs import StandIns
from holodeck.models.test_case import CaseSettings, TestCaseModel

Parameters = dict[NonBlank, list[Json]] | list[dict[NonBlank, Json]]


class WrittenCase(TestCaseModel):
    """A test case as written; with `parameters`, it becomes several test cases."""

    parameters: Parameters | None = None
    """Values for placeholders: a mapping of name to values, every combination of which is a case,
    or a list of mappings with one case each. `{{name}}` in any text of the case is replaced by
    the value."""


class DataFile(Model):
    """A file of test cases."""

    file: ReadPath
    """Path of a .yaml, .yml, .csv, .jsonl or .json file."""
    columns: dict[NonBlank, NonBlank] = {}
    """For each key of a test case, the column or key of the file that contains it, if the names
    differ."""
    ignore: list[NonBlank] = []
    """Columns or keys of the file to ignore."""


class SuiteSettings(CaseSettings):
    """Settings for cases of a suite that do not set them themselves."""

    other_names: ClassVar = {"default_timeout": "timeout"}

    default_scorers: list[WrittenScorer] | None = None
    """Scorers of cases that name none."""


class SuiteHeader(StandIns):
    """The settings that all cases of a suite share."""

    name: NonBlank | None = None
    """Name of the suite for reports and `--suite`; by default the name of its file."""
    description: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    tags: list[NonBlank] = []
    """Tags of every case, in addition to its own."""
    config: SuiteSettings = Field(default_factory=SuiteSettings)
    """Settings for the cases of the suite."""
    context: dict[NonBlank, Json] = {}
    """`context` of each case; keys of a case win."""


class SuiteEntry(SuiteHeader):
    """A suite with its test cases, or the files that contain suites."""

    file: ReadPath | None = None
    """Path or pattern (`suites/*.yaml`; `**` matches nested folders) of suite files."""
    test_cases: list[WrittenCase] | None = None
    """The test cases of the suite."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases of the suite."""

    @model_validator(mode="after")
    def _has_name_or_file(self) -> "SuiteEntry":
        given = self.model_fields_set
        if self.file is not None and len(given) > 1:
            other = next(name for name in type(self).model_fields if name in given - {"file"})
            raise ValueError(f"{other!r} cannot be combined with 'file'; write it in the file")
        if self.file is None and self.name is None:
            raise ValueError("'name' is missing; write the suite's name, or a 'file'")
        return self


class WrittenScenario(Model):
    """A test case with the keys of AgenticAssure."""

    id: NonBlank | None = None
    """As of a test case."""
    name: NonBlank
    """As of a test case."""
    description: NonBlank | None = None
    """As of a test case."""
    input: NonBlank
    """As of a test case."""
    expected_output: NonBlank | None = None
    """`ground_truth` of a test case."""
    expected_tools: list[NonBlank] | None = None
    """Exact names of tools that have to be called; [] means that no tool may be called."""
    expected_tool_args: dict[NonBlank, dict[NonBlank, Json]] = {}
    """Tool → argument → value, all of them in one call of the tool."""
    tags: list[NonBlank] = []
    """As of a test case."""
    metadata: dict[str, Json] = {}
    """Options of scorers (`regex_pattern`, `exact_normalize`, `similarity_threshold`), notes."""
    scorers: list[NonBlank] | None = None
    """Those of the suite if not given, else `passfail`."""
    timeout_seconds: Seconds | None = None
    """`timeout` of a test case."""


class SuiteFile(Model):
    """A file that holds a suite."""

    suite: SuiteHeader | None = None
    """What its cases share."""
    scenarios: Annotated[list[WrittenScenario], Field(min_length=1)] | None = None
    """Its cases in the words of AgenticAssure, whose files are read as they are."""
    test_cases: list[WrittenCase] | None = None
    """The test cases of the suite."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases of the suite."""

    @model_validator(mode="after")
    def _cases_have_one_format(self) -> "SuiteFile":
        if self.scenarios is not None and self.test_cases is not None:
            raise ValueError("'scenarios' and 'test_cases' cannot be combined; use one of them")
        return self


class AgentFile(Agent):
    """The content of an `agent.yaml`, before holodeck reads the suites and files that it names."""

    test_cases: list[WrittenCase] | None = None  # type: ignore[assignment]
    """The test cases."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases: its path, or a mapping that also describes its columns."""
    suites: Annotated[list[SuiteEntry], Field(min_length=1)] | None = None
    """Suites of test cases, written here or in separate files."""
