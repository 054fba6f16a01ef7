"""Scenarios, and suites of them with the settings that they share."""

from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from holodeck.models.base import Seconds

T = TypeVar("T")
Retries = Annotated[int, Field(ge=0)]


def _as_bool(value: object) -> object:
    """Read `yes` and `on` as YAML 1.1 does, in which scenario files are written."""
    words = {"yes": True, "on": True, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


class SuiteModel(BaseModel):
    """A model of the suite API; it refuses unknown keys, as a misspelled expectation checks
    nothing."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    def is_given(self, field: str) -> bool:
        """Whether the field was set, or a default list appended to; else other levels decide."""
        default = type(self).model_fields[field].get_default(call_default_factory=True)
        return field in self.model_fields_set or getattr(self, field) != default

    def setting(self, field: str, otherwise: T) -> T:
        """Return the value of a field that was set, 0 and false included, else the other value."""
        value: T = getattr(self, field)
        return value if self.is_given(field) else otherwise


class Scenario(SuiteModel):
    """One input to the agent, and what is expected of the answer."""

    id: str = Field(default_factory=lambda: str(uuid4()), min_length=1)
    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    input: str
    expected_output: str | None = None
    """What scorers compare the answer with."""
    expected_tools: list[str] | None = None
    """Exact names of tools that must be called, in any order; [] means that none may be."""
    expected_tool_args: dict[str, dict[str, Any]] | None = None
    """Tool → argument → value; one call of the tool must have all of them."""
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Options of scorers, such as `regex_pattern`, and anything else."""
    scorers: list[str] = Field(default_factory=lambda: ["passfail"])
    """Names, or `module:attribute`; the suite's `default_scorers` if not given."""
    timeout_seconds: Seconds = 30.0
    """Limit of each call of the agent; if not given, the suite's, then the runner's."""


class SuiteConfig(SuiteModel):
    """Settings of a suite; one that is given, 0 and false included, wins over the runner's."""

    default_timeout: Seconds = 30.0
    retries: Retries = 0
    default_scorers: list[str] = Field(default_factory=lambda: ["passfail"])
    fail_fast: Annotated[bool, BeforeValidator(_as_bool)] = False


class Suite(SuiteModel):
    """Scenarios that run together."""

    name: Annotated[str, Field(pattern=r"\S")]
    description: str | None = None
    scenarios: list[Scenario] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    """Tags that every scenario of the suite has besides its own."""
    config: SuiteConfig = Field(default_factory=SuiteConfig)

    _folder: Path | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path | None:
        """The folder in which scorers named as `module:attribute` are looked for first."""
        return self._folder

    @classmethod
    def from_folder(cls, folder: Path, **fields: Any) -> "Suite":
        """Return a suite that was read from a file in `folder`."""
        suite = cls(**fields)
        suite._folder = folder
        return suite
