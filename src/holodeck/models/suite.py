"""Suites: test cases that belong together, in the agent.yaml or in files beside it."""

from typing import Annotated

from pydantic import Field, model_validator

from holodeck.models.agent import Agent
from holodeck.models.base import Json, Model, NonBlank, Seconds
from holodeck.models.pass_bar import PassesNeeded, RateNeeded, Repetitions, require_reachable_bar
from holodeck.models.scorers import WrittenScorer
from holodeck.models.test_case import RetryKind, TestCaseModel

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


class SuiteConfig(Model):
    """How the cases of a suite are run that do not say it themselves; 0 and false count."""

    timeout: Seconds | None = None
    """Seconds that one call of the agent may take, retries of requests included."""
    default_timeout: Seconds | None = None
    """Another name of `timeout`."""
    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    """How often a case whose agent broke is run again."""
    retry_on: Annotated[list[RetryKind], Field(min_length=1)] | None = None
    """What a case is run again after."""
    fail_fast: bool | None = None
    """Whether no further case of the suite begins once one did not pass; false: nor does the run
    end, whatever `execution` says."""
    repeat: Repetitions | None = None
    """How often a case is run."""
    min_pass: PassesNeeded | None = None
    """How many repetitions must pass; unset: all."""
    min_pass_rate: RateNeeded | None = None
    """The share of repetitions that must pass, instead of `min_pass`."""
    default_scorers: list[WrittenScorer] | None = None
    """Scorers of the cases that name none."""

    @model_validator(mode="after")
    def _has_one_bar(self) -> "SuiteConfig":
        require_reachable_bar(self.repeat, self.min_pass, self.min_pass_rate)
        return self

    @model_validator(mode="after")
    def _has_one_timeout(self) -> "SuiteConfig":
        if self.timeout is not None and self.default_timeout is not None:
            raise ValueError("'default_timeout' is another name of 'timeout'; remove one")
        return self


class SuiteHeader(Model):
    """What the cases of a suite share."""

    name: NonBlank | None = None
    """What reports and `--suite` call it; of a file that says nothing, the file's name."""
    description: NonBlank | None = None
    """For people; nothing else reads it."""
    tags: list[NonBlank] = []
    """Tags that every case has besides its own."""
    config: SuiteConfig = Field(default_factory=SuiteConfig)
    """How its cases are run."""
    context: dict[NonBlank, Json] = {}
    """What the agent is told in each of its cases; a case's own keys win."""


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


class WrittenScenario(Model):
    """A test case in the words of AgenticAssure."""

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
    """Its cases."""
    test_cases_file: NonBlank | DataFile | None = None
    """A file with more of its cases."""

    @model_validator(mode="after")
    def _is_in_one_language(self) -> "SuiteFile":
        if self.scenarios is not None and self.test_cases is not None:
            raise ValueError("'scenarios' stands beside 'test_cases'; write all in one of them")
        return self


class AgentFile(Agent):
    """An agent.yaml as it is written: the cases of its suites and files not yet gathered."""

    test_cases: list[WrittenCase] | None = None  # type: ignore[assignment]
    """What is said to the agent, and what is expected of it."""
    test_cases_file: NonBlank | DataFile | None = None
    """A file with more cases: a path, or a mapping that says what its columns mean."""
    suites: Annotated[list[SuiteEntry], Field(min_length=1)] | None = None
    """Cases that belong together, written here or in files of their own."""
