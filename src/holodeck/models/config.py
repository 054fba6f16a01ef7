"""Settings of a run, and what the configuration files may hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    model_validator,
)
from pydantic_core import CoreSchema

from holodeck.models.base import (
    Json,
    Model,
    NonBlank,
    PathUse,
    ReadPath,
    Seconds,
    WrittenPath,
    is_used,
)
from holodeck.models.llm import ProviderEnum, ProviderSettings
from holodeck.models.metrics.judge_trust import TrustSetting
from holodeck.models.token_usage import PriceTable
from holodeck.models.tool import McpTool
from holodeck.models.tools.knowledge import VectorStoreSettings

_PLACE = re.compile(r"local|ray|ray://[^/\s]+:[0-9]{1,5}")
_HOST = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def _validate_host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError(
            f"found {value!r}; expected a host such as 'files.example' or 'localhost:8080'"
        )
    return value


def _validate_place(value: str) -> str:
    if not _PLACE.fullmatch(value):
        raise ValueError(f"found {value!r}; expected local, ray, or ray://host:port")
    return value


HostName = Annotated[str, AfterValidator(_validate_host)]
"""A host, also with a port; an IPv6 address in brackets."""
Repetitions = Annotated[int, Field(ge=1, le=1000)]
PassesNeeded = Annotated[int, Field(ge=1, le=1000)]
RateNeeded = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _split_at_commas(value: Any) -> Any:
    """Return the items of a text, as a variable holds them; anything else unchanged."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


PlaceName = Annotated[str, AfterValidator(_validate_place)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableNames = Annotated[list[VariableName], BeforeValidator(_split_at_commas)]
HostNames = Annotated[list[HostName], BeforeValidator(_split_at_commas)]


def validate_min_pass(
    repeat: int | None, min_pass: int | None, min_pass_rate: float | None
) -> None:
    """Raise ValueError if both kinds of bar are set, or the bar cannot be reached."""
    if min_pass is not None and min_pass_rate is not None:
        raise ValueError("'min_pass' and 'min_pass_rate' are both set; remove one of them")
    if repeat is not None and min_pass is not None and min_pass > repeat:
        raise ValueError(
            f"'min_pass' is {min_pass}, but 'repeat' is {repeat}: that many cannot pass"
        )


LIMITS, REPEATS, RUN = "Limits", "Retries and repeats", "Run"
OUTPUT, CACHE = "Output", "Cache and recordings"
COMMAND_LINE = "command line"
"""The source of values that the caller of a run sets without a flag."""


@dataclass(frozen=True)
class Setting:
    """Default and help of a setting; its flag and its variable are made from its field's name."""

    default: Any
    help: str
    """At most 48 characters together with the default, so that `--help` needs one line. The
    docstring of the field follows it in the reference."""
    group: str | None = None
    """The heading of the flag in the help, see `lib.ui.help`; None for a setting without a flag."""
    metavar: str = "N"
    """The placeholder of the value in the help."""
    flag: str | None = None
    """The flag, if it has another name than the field."""
    short: str | None = None
    """The flag of a single letter."""
    aliases: tuple[str, ...] = ()
    """Older flags that work but are not in the help."""
    variable_name: str | None = None
    """The environment variable, if it has another name than the field."""
    has_only_off_flag: bool = False
    """Whether the flag of a switch only turns it off, as `--no-record` does."""
    rival: str | None = None
    """An alternative field; the one from the stronger source wins."""
    reaches_out: bool = False
    """Whether it opens further networks to a run, so that `--untrusted` refuses it in files."""
    none_is_no_limit: bool = False
    """Whether a None that is given in Python means no limit, and not the default."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of the field with help and default."""
        return {**handler(schema), "description": self.help, "default": self.default}


RecordingMode = Literal["replay", "missing", "failed", "all", "off"]
"""What a run does with recordings."""
RECORDING_MODES = frozenset({"missing", "failed", "all"})
"""Those in which something is recorded."""
NO_CACHE = (
    "recordings take the place of the response cache: 'holodeck test --record', then '--replay'"
)
ReportDetail = Literal["failures", "all"]
"""Which tests a report in Markdown has."""


class ExecutionConfig(Model):
    """Settings of a run. A field that is None was not set at this level; see `config.settings`."""

    other_names: ClassVar = {"cache_directory": "cache_dir"}
    not_supported_yet: ClassVar = {"cache_key": NO_CACHE, "cache_mode": NO_CACHE}

    llm_timeout: Annotated[
        Seconds | None,
        Setting(
            60.0,
            "Limit of one agent or judge call.",
            LIMITS,
            "SECONDS",
            aliases=("--timeout",),
            none_is_no_limit=True,
        ),
    ] = None
    """In seconds, retries included; for requests to every model."""
    attempt_timeout: Annotated[
        Seconds | None, Setting(None, "Time limit of one attempt of a request.", LIMITS, "SECONDS")
    ] = None
    """In seconds."""
    case_timeout: Annotated[
        Seconds | None,
        Setting(None, "Time limit of one test case with its metrics.", LIMITS, "SECONDS"),
    ] = None
    """In seconds."""
    run_timeout: Annotated[
        Seconds | None,
        Setting(None, "Time limit of the run; ends running cases.", LIMITS, "SECONDS"),
    ] = None
    """In seconds."""
    max_time: Annotated[
        Seconds | None, Setting(None, "Start no more cases after this time.", LIMITS, "SECONDS")
    ] = None
    """In seconds; unlike with run_timeout, running cases finish."""
    max_cost: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Setting(None, "Start no more cases at this cost.", LIMITS, "AMOUNT"),
    ] = None
    """Costs are computed from `prices`."""
    max_tokens: Annotated[
        Annotated[int, Field(gt=0)] | None,
        Setting(None, "Start no more cases after N tokens.", LIMITS),
    ] = None
    """Those of the agent, judges and simulated users count."""
    max_calls: Annotated[
        Annotated[int, Field(gt=0)] | None,
        Setting(None, "Start no more cases after N model calls.", LIMITS),
    ] = None
    """Those to the agent, judges and simulated users count."""
    fail_fast: Annotated[
        bool | None,
        Setting(
            False,
            "Stop after the first case that does not pass.",
            LIMITS,
            short="-x",
            rival="maxfail",
        ),
    ] = None
    maxfail: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Setting(None, "Stop after N cases that do not pass.", LIMITS, rival="fail_fast"),
    ] = None
    give_up: Annotated[bool | None, Setting(True, "Stop when a provider refuses all.", LIMITS)] = (
        None
    )
    """After three in a row: a wrong key or model, or no connection."""
    max_retries: Annotated[
        Annotated[int, Field(ge=0, le=20)] | None,
        Setting(5, "Retries of one agent request.", REPEATS),
    ] = None
    """A request is sent again after a temporary error."""
    retries: Annotated[
        Annotated[int, Field(ge=0, le=20)] | None,
        Setting(0, "Reruns after an agent error.", REPEATS, aliases=("--retry",)),
    ] = None
    """Each begins with a new agent."""
    retry_delay: Annotated[
        Annotated[float, Field(ge=0, le=60)] | None, Setting(2.0, "Seconds before the first retry.")
    ] = None
    """Each further retry waits twice as long, up to 60 seconds."""
    repeat: Annotated[Repetitions | None, Setting(None, "Run each case N times.", REPEATS)] = None
    """Each repetition has an agent of its own."""
    min_pass: Annotated[
        PassesNeeded | None,
        Setting(None, "Repetitions of a case that must pass.", REPEATS, rival="min_pass_rate"),
    ] = None
    """Without it, all must pass."""
    min_pass_rate: Annotated[
        RateNeeded | None,
        Setting(None, "Share of repetitions that must pass.", REPEATS, "RATE", rival="min_pass"),
    ] = None
    stop_early: Annotated[bool | None, Setting(True, "Stop repeating a decided case.", REPEATS)] = (
        None
    )
    max_answer_mb: Annotated[
        Annotated[float, Field(gt=0, le=1000)] | None,
        Setting(8.0, "Megabytes that are read of one response."),
    ] = None
    """A longer response is an error."""
    file_timeout: Annotated[
        Seconds | None, Setting(30.0, "Time limit of the conversion of one file.")
    ] = None
    """In seconds."""
    download_timeout: Annotated[
        Seconds | None, Setting(30.0, "Time limit of the download of one file.")
    ] = None
    """In seconds, with redirects and retries."""
    cache_enabled: Annotated[bool | None, Setting(True, "Cache downloaded files.")] = None
    """A cached file is used if the server says that it has not changed."""
    allowed_hosts: Annotated[
        HostNames | None,
        Setting(None, "Hosts in private networks to download from.", reaches_out=True),
    ] = None
    """Each as `host` or `host:port`; the variable separates them by commas."""
    parallel_test_cases: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] | None,
        Setting("auto", "Cases to run at the same time.", RUN, short="-j", aliases=("--parallel",)),
    ] = None
    """`auto` adapts to the endpoint; it runs 10 cases of async Python code, and 1 of other Python
    code."""
    workers: Annotated[
        Annotated[int, Field(ge=1, le=256)] | Literal["auto"] | None,
        Setting(1, "Processes that run the cases.", RUN),
    ] = None
    """`auto` uses several for many cases on Semantic Kernel. They share all limits of the run."""
    run_on: Annotated[
        PlaceName | None,
        Setting("local", "Where workers run.", RUN, "PLACE", flag="--on", reaches_out=True),
    ] = None
    """`local` is this machine, `ray://host:port` a Ray cluster, `ray` that of RAY_ADDRESS, else a
    new one on this machine."""
    ray_variables: Annotated[
        VariableNames | None,
        Setting(None, "Variables that workers on Ray get, such as API keys.", reaches_out=True),
    ] = None
    """Names; the variable separates them by commas."""
    allow_side_effects: Annotated[
        bool | None, Setting(False, "Run tools with side effects.", RUN)
    ] = None
    """These are the tools with `side_effects: true`."""
    force_ingest: Annotated[
        bool | None, Setting(False, "Embed all documents of tools again.", RUN, short="-f")
    ] = None
    """Otherwise only those that changed since the last run."""
    judge_trust: Annotated[
        TrustSetting | None, Setting("warn", "Judges: require, warn or off.", RUN, "MODE")
    ] = None
    """What happens if no check has shown that a judge is good enough: its verdicts are inconclusive
    (`require`), a note names it (`warn`), or nothing (`off`). A mapping of `mode`, `min_kappa` and
    `max_false_passes` also sets the limits of the check."""
    offline: Annotated[bool | None, Setting(False, "Never download a model.", RUN)] = None
    verbose: Annotated[
        bool | None, Setting(False, "Show conversations and all metrics.", OUTPUT, short="-v")
    ] = None
    quiet: Annotated[
        bool | None, Setting(False, "Show only failures and the summary.", OUTPUT, short="-q")
    ] = None
    record: Annotated[
        bool | None, Setting(True, "Write a run record.", OUTPUT, has_only_off_flag=True)
    ] = None
    """Records are in .holodeck/runs."""
    report_detail: Annotated[
        ReportDetail | None, Setting("all", "Markdown: all tests or failures.", OUTPUT, "DETAIL")
    ] = None
    """`failures` leaves out the tests that passed each time."""
    events: Annotated[
        WrittenPath | None, Setting(None, "Append events to a file, as JSON Lines.", OUTPUT, "FILE")
    ] = None
    cache_dir: Annotated[
        WrittenPath | None, Setting(None, "Folder of downloaded files.", CACHE, "DIR")
    ] = None
    """They are in its folder `files`. The variable also sets the folder of local models."""

    recordings: Annotated[
        WrittenPath | None,
        Setting(
            None, "Folder of recordings.", CACHE, "DIR", variable_name="HOLODECK_RECORDINGS_DIR"
        ),
    ] = None
    """Each agent has a folder of its own in it."""
    recording: Annotated[
        RecordingMode | None,
        Setting("off", "What is recorded or replayed.", variable_name="HOLODECK_RECORDINGS"),
    ] = None
    """`replay` answers from recordings only; `missing` records what they lack, `failed` that of
    cases with a recording, `all` everything anew; `off` uses none."""
    strict_recordings: Annotated[
        bool | None, Setting(False, "Outdated recordings are errors.", CACHE)
    ] = None
    """Otherwise a note names those older than `max_age_days`, or of an agent that changed."""

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _failure_limits_do_not_conflict(self) -> "ExecutionConfig":
        if self.fail_fast and self.maxfail is not None:
            raise ValueError("'fail_fast' and 'maxfail' are both set; remove one of them")
        validate_min_pass(None, self.min_pass, self.min_pass_rate)
        return self

    @property
    def has_budget(self) -> bool:
        """Whether the run has a limit on cost, tokens, calls or time."""
        limits = (self.max_cost, self.max_tokens, self.max_calls, self.max_time)
        return any(limit is not None for limit in limits)

    def source_of(self, field: str) -> str:
        """Return the source of a value, such as `agent.yaml:12:5` or `HOLODECK_LLM_TIMEOUT`."""
        return self._sources.get(field, "given")

    def is_from_command_line(self, field: str) -> bool:
        """Whether the caller of the run set the value, which then overrides the cases."""
        source = self.source_of(field)
        return source == COMMAND_LINE or source.startswith("--")

    def path_of(self, field: str, folder: Path) -> Path | None:
        """Return the absolute path that a setting names; None if it names none.

        `folder` is that of the agent.yaml.
        """
        path = getattr(self, field)
        start = self.start_of(field, folder).absolute()
        return None if path is None else start / Path(path).expanduser()

    def start_of(self, field: str, folder: Path) -> Path:
        """Return where a relative path starts: in a configuration file from `folder`, in a `.env`
        file from its own, elsewhere from the working folder."""
        source, variable = self.source_of(field), setting_fields()[field].variable
        if source.startswith(f"{variable} in "):
            return Path(source.removeprefix(f"{variable} in ")).parent
        is_code = source in {"given", "default"}
        is_outside = is_code or source == variable or self.is_from_command_line(field)
        return Path() if is_outside else folder

    def with_sources(self, sources: Mapping[str, str]) -> "ExecutionConfig":
        """Return the settings with the source of each."""
        return self.with_private(_sources=dict(sources))


@dataclass(frozen=True)
class SettingField:
    """A setting as the field of ExecutionConfig declares it."""

    field: str
    setting: Setting
    annotation: Any
    """The type with its range; None is always allowed."""

    @property
    def variable(self) -> str:
        """The environment variable."""
        return self.setting.variable_name or f"HOLODECK_{self.field.upper()}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags, the long flag first; () for a setting without any."""
        if self.setting.group is None:
            return ()
        long = self.setting.flag or f"--{self.field.replace('_', '-')}"
        return (long,) if self.setting.short is None else (long, self.setting.short)

    @property
    def is_written(self) -> bool:
        """Whether it is a path that a run writes."""
        return is_used(ExecutionConfig.model_fields[self.field], PathUse.WRITTEN)


@cache
def setting_fields() -> dict[str, SettingField]:
    """Return the settings by field name, in the order of the model."""
    return {
        name: SettingField(name, metadata, field.annotation)
        for name, field in ExecutionConfig.model_fields.items()
        for metadata in field.metadata
        if isinstance(metadata, Setting)
    }


@cache
def settings_by_flag() -> dict[str, str]:
    """Return the name of a flag → the key of the same setting: `timeout` → `llm_timeout`."""
    return {
        flag.lstrip("-").replace("-", "_"): name
        for name, field in setting_fields().items()
        for flag in (*field.flags, *field.setting.aliases)
    }


class ProjectDefaults(Model):
    """`[tool.holodeck]` of a `pyproject.toml`, beside or above the `agent.yaml`."""

    agent: ReadPath | None = None
    """The agent of commands that name none, if there is no `agent.yaml` in the working folder or
    above it: its file or folder, inside that of the `pyproject.toml`."""
    execution: ExecutionConfig | None = None
    """Settings of the run where nothing else sets them, not even a variable."""


class GlobalConfig(Model):
    """A project's or a user's `config.yaml`."""

    providers: dict[str, ProviderSettings] | None = None
    """For each provider, values for keys that the agent's `model` does not set."""
    vectorstores: dict[NonBlank, VectorStoreSettings] | None = None
    """Vector stores by name, for `database` of tools."""
    execution: ExecutionConfig | None = None
    """Settings of the run."""
    prices: PriceTable | None = None
    """What models cost; an agent.yaml's own prices win."""
    mcp_servers: list[McpTool] | None = None
    """MCP servers for all built-in agents, each as in `tools`, whose names take precedence. A
    server that does not start is a warning."""
    deployment: dict[str, Json] | None = None
    """For other commands of HoloDeck; it has no effect here."""

    @model_validator(mode="after")
    def _providers_are_known(self) -> "GlobalConfig":
        for name, settings in (self.providers or {}).items():
            if name not in list(ProviderEnum) and settings.provider is None:
                known = ", ".join(ProviderEnum)
                raise ValueError(
                    f"'providers' contains the unknown provider {name!r}; known: {known};"
                    " for a name of your own, add the key 'provider'"
                )
        return self
