"""What is run: scenarios, and suites of them with the settings they share."""

from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from holodeck.models.base import Seconds

Retries = Annotated[int, Field(ge=0)]


def _as_flag(value: object) -> object:
    """What YAML 1.1, which scenario files are written in, means by words that are text to us."""
    words = {"yes": True, "on": True, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(_as_flag)]


class Noun(BaseModel):
    """Refuses what it does not know: a misspelled expectation would expect nothing."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    def says(self, field: str) -> bool:
        """Whether the field was given; one that was not leaves the choice to others.

        A list that was appended to counts as given.
        """
        default = type(self).model_fields[field].get_default(call_default_factory=True)
        return field in self.model_fields_set or getattr(self, field) != default


class Scenario(Noun):
    """One input to the agent, and what is expected of the answer."""

    id: str = Field(default_factory=lambda: str(uuid4()), min_length=1)
    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    input: str
    expected_output: str | None = None
    """What scorers compare the answer with."""
    expected_tools: list[str] | None = None
    """Exact names of tools that have to be called, in any order; [] means that none may be."""
    expected_tool_args: dict[str, dict[str, Any]] | None = None
    """Tool → argument → value, all of them in one call of the tool."""
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Options of scorers, such as `regex_pattern`, and whatever else you like."""
    scorers: list[str] = Field(default_factory=lambda: ["passfail"])
    """Names, or `module:attribute`; the suite's `default_scorers` if not given."""
    timeout_seconds: Seconds = 30.0
    """Limit of each call of the agent; the suite's, then the runner's, if not given."""


class SuiteConfig(Noun):
    """Settings of a suite; one that is given, 0 and false included, wins over the runner's."""

    default_timeout: Seconds = 30.0
    retries: Retries = 0
    default_scorers: list[str] = Field(default_factory=lambda: ["passfail"])
    fail_fast: Flag = False


class Suite(Noun):
    """Scenarios that are run together."""

    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    scenarios: list[Scenario] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    """Tags that every scenario of the suite has besides its own."""
    config: SuiteConfig = Field(default_factory=SuiteConfig)

    _folder: Path | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path | None:
        """Where the scorers that it names as `module:attribute` are looked for first."""
        return self._folder

    @classmethod
    def from_folder(cls, folder: Path, **fields: Any) -> "Suite":
        """A suite that was read from a file in `folder`."""
        suite = cls(**fields)
        suite._folder = folder
        return suite
