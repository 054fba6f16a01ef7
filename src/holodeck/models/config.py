"""Settings of a run, and what the configuration files may hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler, PrivateAttr, model_validator
from pydantic_core import CoreSchema

from holodeck.models.base import Count, Model, NonBlank, Seconds
from holodeck.models.llm import ProviderEnum, ProviderSettings
from holodeck.models.pass_bar import PassesNeeded, RateNeeded, Repetitions, require_reachable_bar
from holodeck.models.price import PriceTable

COMMAND_LINE = "command line"
"""The source of values that came with the start of a run, but by no flag."""


@dataclass(frozen=True)
class Setting:
    """How a setting is reached besides its YAML key; its variable is HOLODECK_<NAME>."""

    default: Any
    help: str
    flags: tuple[str, ...] = ()
    metavar: str = "NUMBER"
    """What stands for the value in the help."""
    rival: str | None = None
    """The field that says the same in another way; whichever is set nearer to the user holds."""

    @staticmethod
    def variable(field: str) -> str:
        """The environment variable of a field."""
        return f"HOLODECK_{field.upper()}"

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The field's own schema with the help and default said here."""
        return {**handler(schema), "description": self.help, "default": self.default}


class ExecutionConfig(Model):
    """Settings of a run. A field that is None was not set at this level; see `config.settings`."""

    not_yet: ClassVar = {
        "cache_enabled": "remote files",
        "download_timeout": "remote files",
    }

    llm_timeout: Annotated[
        Seconds | None,
        Setting(60.0, "Seconds one agent call may take, retries included.", ("--timeout",)),
    ] = None
    attempt_timeout: Annotated[
        Seconds | None,
        Setting(None, "Seconds one attempt of an agent call may take.", ("--attempt-timeout",)),
    ] = None
    case_timeout: Annotated[
        Seconds | None,
        Setting(None, "Seconds one test case may take, metrics included.", ("--case-timeout",)),
    ] = None
    run_timeout: Annotated[
        Seconds | None,
        Setting(
            None, "Seconds the whole run may take; then what runs is ended.", ("--run-timeout",)
        ),
    ] = None
    max_cost: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Setting(
            None,
            "What the run may cost, by `prices`, until no further case starts.",
            ("--max-cost",),
        ),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Field(gt=0)] | None,
        Setting(
            None,
            "Tokens of agent, judges and simulated users until no further case starts.",
            ("--max-tokens",),
        ),
    ] = None
    max_calls: Annotated[
        Annotated[int, Field(gt=0)] | None,
        Setting(
            None,
            "Questions to agent, judges and simulated users until no further case starts.",
            ("--max-calls",),
        ),
    ] = None
    max_time: Annotated[
        Seconds | None,
        Setting(
            None,
            "Seconds until no further case starts; what runs finishes, unlike with run_timeout.",
            ("--max-time",),
        ),
    ] = None
    max_retries: Annotated[
        Annotated[int, Field(ge=0, le=20)] | None,
        Setting(
            5,
            "How often one request of the agent that failed for a while is sent again.",
            ("--max-retries",),
        ),
    ] = None
    retries: Annotated[
        Annotated[int, Field(ge=0, le=20)] | None,
        Setting(
            0, "How often a case whose agent broke is run again from the start.", ("--retries",)
        ),
    ] = None
    retry_delay: Annotated[
        Annotated[float, Field(ge=0, le=60)] | None,
        Setting(2.0, "Seconds before the first retry; doubles with each one, up to 60."),
    ] = None
    max_answer_mb: Annotated[
        Annotated[float, Field(gt=0, le=1000)] | None,
        Setting(8.0, "Megabytes of one answer that are read at most; more of it is an error."),
    ] = None
    file_timeout: Annotated[
        Seconds | None, Setting(30.0, "Seconds the conversion of one file may take.")
    ] = None
    parallel_test_cases: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] | None,
        Setting(
            "auto",
            "Most test cases that run at the same time; auto finds out what the endpoint takes,"
            " and runs 10 of async Python code, 1 of other Python code.",
            ("--parallel", "-j"),
        ),
    ] = None
    repeat: Annotated[
        Repetitions | None,
        Setting(None, "How often each test case is run, each time on its own.", ("--repeat",)),
    ] = None
    min_pass: Annotated[
        PassesNeeded | None,
        Setting(
            None,
            "How many repetitions of a test case must pass; unless set, all.",
            ("--min-pass",),
            rival="min_pass_rate",
        ),
    ] = None
    min_pass_rate: Annotated[
        RateNeeded | None,
        Setting(
            None,
            "The share of repetitions of a test case that must pass.",
            ("--min-pass-rate",),
            rival="min_pass",
        ),
    ] = None
    stop_early: Annotated[
        bool | None,
        Setting(
            True,
            "Begin no repetition of a test case whose verdict is known.",
            ("--stop-early",),
        ),
    ] = None
    fail_fast: Annotated[
        bool | None,
        Setting(
            False,
            "End the run with the first test case that does not pass.",
            ("--fail-fast", "-x"),
            rival="maxfail",
        ),
    ] = None
    maxfail: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Setting(
            None,
            "End the run when so many test cases did not pass.",
            ("--maxfail",),
            rival="fail_fast",
        ),
    ] = None
    verbose: Annotated[
        bool | None,
        Setting(
            False,
            "Show what is said as it happens, and every metric of every test.",
            ("--verbose", "-v"),
        ),
    ] = None
    quiet: Annotated[
        bool | None, Setting(False, "Show only the failures and the summary.", ("--quiet", "-q"))
    ] = None
    offline: Annotated[
        bool | None, Setting(False, "Never fetch a model's weights.", ("--offline",))
    ] = None

    record: Annotated[
        bool | None,
        Setting(True, "Keep a record of the run in .holodeck/runs.", ("--record",)),
    ] = None

    events: Annotated[
        NonBlank | None,
        Setting(
            None,
            "File that what happens in cases is appended to, as lines of JSON.",
            ("--events",),
            metavar="FILE",
        ),
    ] = None

    cache_key: Annotated[
        NonBlank | None,
        Setting(
            None,
            "What answers of judges and simulated users are kept under; without one, none are.",
            ("--cache-key",),
            metavar="KEY",
        ),
    ] = None
    cache_mode: Annotated[
        Literal["auto", "record", "replay", "off"] | None,
        Setting(
            "auto",
            "Kept answers: auto asks for what is missing, record for all, replay for none; or off.",
            ("--cache",),
            metavar="MODE",
        ),
    ] = None
    cache_dir: Annotated[
        NonBlank | None,
        Setting(
            None,
            "Folder of kept answers; as a variable, of local models too.",
            ("--cache-dir",),
            metavar="DIR",
        ),
    ] = None

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _says_nothing_twice(self) -> "ExecutionConfig":
        if self.fail_fast and self.maxfail is not None:
            raise ValueError("'fail_fast' and 'maxfail' are both set; remove one of them")
        require_reachable_bar(None, self.min_pass, self.min_pass_rate)
        return self

    @property
    def has_budget(self) -> bool:
        """Whether the run may not spend what it likes."""
        limits = (self.max_cost, self.max_tokens, self.max_calls, self.max_time)
        return any(one is not None for one in limits)

    def source_of(self, field: str) -> str:
        """Where a resolved value came from, such as `agent.yaml:12:5` or `HOLODECK_LLM_TIMEOUT`."""
        return self._sources.get(field, "given")

    def is_from_command_line(self, field: str) -> bool:
        """Whether whoever started the run set the value, so that it overrules the cases."""
        source = self.source_of(field)
        return source == COMMAND_LINE or source.startswith("--")

    def is_from_file(self, field: str) -> bool:
        """Whether a configuration file sets the value, so that paths start from its folder."""
        source = self.source_of(field)
        is_variable = source.startswith(Setting.variable(field))
        is_code = source in {"given", "default"}
        return not (is_variable or is_code or self.is_from_command_line(field))

    def with_sources(self, sources: Mapping[str, str]) -> "ExecutionConfig":
        """The same settings, each knowing where it came from."""
        copy = self.model_copy()
        copy._sources = dict(sources)  # noqa: SLF001 - a copy of its own class
        return copy


class GlobalConfig(Model):
    """A project's or a user's `config.yaml`."""

    not_yet: ClassVar = {
        "vectorstores": "vector stores",
        "deployment": "deployment",
        "mcp_servers": "MCP tools",
    }

    providers: dict[str, ProviderSettings] | None = None
    """Fills keys that the agent's `model` leaves out, by provider name."""
    execution: ExecutionConfig | None = None
    """Settings of the run."""
    prices: PriceTable | None = None
    """What models cost; an agent.yaml's own prices win."""

    @model_validator(mode="after")
    def _providers_are_known(self) -> "GlobalConfig":
        for name, settings in (self.providers or {}).items():
            if name not in list(ProviderEnum) and settings.provider is None:
                known = ", ".join(ProviderEnum)
                raise ValueError(
                    f"'providers' has {name!r}, which is no provider; known: {known};"
                    " a name of your own needs a 'provider' in it"
                )
        return self


Retries = Count
