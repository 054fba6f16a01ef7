"""Settings of scenarios, and models: their arguments, by the names of OpenAI and LiteLLM."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from holodeck.config.environment import Environment
from holodeck.config.providers import with_provider_variables
from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import ScenarioUsageError
from holodeck.lib.llm.limits import RequestOptions
from holodeck.lib.support.text import did_you_mean
from holodeck.lib.ui.terminal import is_tty
from holodeck.models.llm import PROVIDER_ALIASES, LLMProvider, ProviderEnum

__all__ = ["ModelConfig", "ScenarioConfig", "configure"]

logger = logging.getLogger(__name__)

BODY_ARGUMENTS = frozenset(
    {
        "frequency_penalty", "logit_bias", "max_completion_tokens", "metadata", "min_p",
        "modalities", "prediction", "presence_penalty", "prompt_cache_key", "reasoning_effort",
        "repetition_penalty", "safety_identifier", "seed", "service_tier", "stop", "store",
        "thinking", "top_k", "user", "verbosity", "web_search_options",
    }
)  # fmt: skip
"""Keys of the request's body that are sent as they are."""
ANTHROPIC_ARGUMENTS = {
    "metadata": "metadata",
    "service_tier": "service_tier",
    "stop": "stop_sequences",
    "thinking": "thinking",
    "top_k": "top_k",
}
"""Those that Anthropic's API has, and their names there."""
OPTION_ARGUMENTS = frozenset(
    {
        "additional_drop_params", "api_version", "base_url", "client", "drop_params", "extra_body",
        "extra_headers", "headers", "max_retries", "num_retries", "organization", "timeout",
        "top_p",
    }
)  # fmt: skip
"""Arguments that say how requests are sent."""
LIBRARY_ARGUMENTS = frozenset(
    {
        "aws_access_key_id", "aws_bedrock_runtime_endpoint", "aws_profile_name", "aws_region_name",
        "aws_role_name", "aws_secret_access_key", "aws_session_name", "aws_session_token",
        "aws_sts_endpoint", "aws_web_identity_token", "region_name", "vertex_credentials",
        "vertex_location", "vertex_project",
    }
)  # fmt: skip
"""Arguments for models that LiteLLM calls."""
OURS = frozenset(
    {
        "function_call", "functions", "logprobs", "messages", "n", "parallel_tool_calls",
        "response_format", "stream", "stream_options", "tool_choice", "tools", "top_logprobs",
    }
)  # fmt: skip
"""Keys that the requests of judges and simulated users have, or cannot have."""
VOICE = frozenset(
    {
        "audio_effects", "include_audio", "include_timeline", "interrupt_probability", "modality",
        "voice",
    }
)  # fmt: skip
"""Arguments of Scenario for conversations in voice."""
KNOWN_ARGUMENTS = BODY_ARGUMENTS | OPTION_ARGUMENTS | LIBRARY_ARGUMENTS


def argument_problems(names: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each argument that no model takes."""
    known = ["model", "api_base", "api_key", "temperature", "max_tokens", *sorted(KNOWN_ARGUMENTS)]
    for name in names:
        if name in OURS:
            yield f"{name} is what holodeck decides for each request; leave it out"
        elif name in VOICE:
            yield f"{name}: holodeck has no voice; leave it out"
        elif name == "custom_llm_provider":
            yield f"{name} is unknown; write the provider before the name: model='openai/…'"
        elif name not in KNOWN_ARGUMENTS:
            yield f"{name} is an unknown argument{did_you_mean(name, known)}"


class ModelConfig(BaseModel):
    """A model and its settings; None leaves a value to the provider's own variables.

    Further arguments are those of OpenAI's API and of LiteLLM, such as `seed` and `extra_body`.
    """

    model_config = ConfigDict(defer_build=True, extra="allow")

    model: str
    """Provider and name, such as `openai/gpt-4.1`."""
    api_base: str | None = None
    api_key: str | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = None

    @model_validator(mode="after")
    def _has_known_arguments(self) -> ModelConfig:
        problem = next(argument_problems(self.model_extra or {}), None)
        if problem is not None:
            raise ValueError(problem)
        return self

    def given(self) -> dict[str, Any]:
        """Return the values that are set, but for the model."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return {k: v for k, v in values.items() if k != "model" and v is not None}


@dataclass(frozen=True)
class ModelSettings:
    """A model, and what is special about its requests."""

    llm: LLMProvider
    options: RequestOptions


class _Options(BaseModel):
    """The types of the arguments that say how requests are sent."""

    model_config = ConfigDict(defer_build=True)

    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    num_retries: int | None = Field(default=None, ge=0)
    max_retries: int | None = Field(default=None, ge=0)
    headers: dict[str, str] = {}
    extra_headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    organization: str | None = None
    drop_params: bool = False
    additional_drop_params: list[str] = []


def model_settings(owner: str, model: str, given: Mapping[str, Any]) -> ModelSettings:
    """Return the model with its provider's settings from the environment. Raises ConfigError.

    Args:
        owner: The class that needs it, for messages.
        model: Provider and name, such as `openai/gpt-4.1`.
        given: Its arguments; None means not given.
    """
    arguments = {name: value for name, value in given.items() if value is not None}
    fields = ("api_base", "api_key", "temperature", "max_tokens")
    problem = next(argument_problems({k: v for k, v in arguments.items() if k not in fields}), None)
    if problem is not None:
        raise ConfigError(owner, problem)
    try:
        options = _Options.model_validate(arguments)
        llm = _llm(owner, model, arguments)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(owner, f"model {model!r}: {field} {first['msg']}".strip()) from error
    return ModelSettings(llm, _request_options(owner, llm, arguments, options))


def _llm(owner: str, model: str, arguments: Mapping[str, Any]) -> LLMProvider:
    base_url = arguments.get("api_base") or arguments.get("base_url")
    provider, name = provider_and_name(owner, model, has_endpoint=base_url is not None)
    if base_url is None and "client" in arguments:
        client_url = getattr(arguments["client"], "base_url", None)
        base_url = None if client_url is None else str(client_url).rstrip("/")
    same = ("api_key", "api_version", "temperature", "top_p")
    settings = {
        "provider": provider.value,
        "name": name,
        "endpoint": base_url,
        "max_tokens": arguments.get("max_tokens", arguments.get("max_completion_tokens")),
        **{key: arguments.get(key) for key in same},
    }
    settings = {key: value for key, value in settings.items() if value is not None}
    return LLMProvider(**with_provider_variables(settings, Environment.beside()))


def _request_options(
    owner: str, llm: LLMProvider, arguments: Mapping[str, Any], options: _Options
) -> RequestOptions:
    library = {k: v for k, v in arguments.items() if k in LIBRARY_ARGUMENTS}
    if library and llm.protocol != "litellm":
        raise ConfigError(
            owner,
            f"{next(iter(library))} is for models that LiteLLM calls (bedrock/, vertex_ai/);"
            f" {llm.label} is called without it",
        )
    body = {k: v for k, v in arguments.items() if k in BODY_ARGUMENTS}
    body.pop("max_completion_tokens", None)
    if llm.protocol == "anthropic":
        unknown = next((name for name in body if name not in ANTHROPIC_ARGUMENTS), None)
        if unknown is not None and not options.drop_params:
            raise ConfigError(owner, f"Anthropic's API has no {unknown}; leave it out")
        body = {new: body[name] for name, new in ANTHROPIC_ARGUMENTS.items() if name in body}
    organization = options.organization
    named = {} if organization is None else {"OpenAI-Organization": organization}
    return RequestOptions(
        timeout=options.timeout,
        retries=options.max_retries if options.num_retries is None else options.num_retries,
        headers={**named, **options.headers, **options.extra_headers},
        body={**body, **options.extra_body},
        left_out=frozenset(options.additional_drop_params),
        client=arguments.get("client"),
        library=library,
    )


def provider_and_name(
    owner: str, model: str, *, has_endpoint: bool = False
) -> tuple[ProviderEnum, str]:
    """Return the provider of a model and its name there. Raises ConfigError."""
    head, _, rest = model.partition("/")
    providers = {**{provider.value: provider for provider in ProviderEnum}, **PROVIDER_ALIASES}
    if rest and head in providers:
        service, _, name = rest.partition("/")
        if providers[head] is ProviderEnum.HUGGINGFACE and "/" in name:
            # LiteLLM's `together/org/model` is `org/model:together` for the router.
            rest = f"{name}:{service}"
        return providers[head], rest
    if not rest and head.startswith("claude"):
        return ProviderEnum.ANTHROPIC, head
    if not rest or has_endpoint:
        return ProviderEnum.OPENAI, model
    known = f"; the providers are {', '.join(providers)};"
    hint = did_you_mean(head, providers, known, cutoff=0.8)
    raise ConfigError(
        owner,
        f"model {model!r}: unknown provider {head!r}{hint} for any other OpenAI-compatible"
        f" endpoint, give api_base; for any other provider of LiteLLM, write 'litellm/{model}'",
    )


class ScenarioConfig(BaseModel):
    """The settings of scenarios; None is a value as well, and different from not given."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    default_config: ClassVar[ScenarioConfig | None] = None
    """The settings made by `configure`."""

    default_model: str | ModelConfig | None = None
    """For judges and simulated users that name no model."""
    max_turns: int | None = 10
    """The most turns that are played without a script."""
    min_turns: int | None = None
    """The least turns before a judge is called."""
    verbose: bool | int | None = True
    """Whether to show the conversation on stderr as it happens; 2 adds the name of the scenario.
    If it is not given, the conversation is shown if stderr is a terminal."""
    cache_key: str | None = None
    """The key under which responses are cached; without one, none are."""
    cache_mode: Literal["auto", "record", "replay", "off"] | None = None
    """`auto` calls for what is not cached, `record` for everything, `replay` for nothing; None for
    the value of HOLODECK_CACHE_MODE, else `auto`."""
    cache_dir: str | Path | None = None
    """The folder of the responses; None for `scenarios` in the cache folder of holodeck."""
    debug: bool | None = False
    """Whether a person at the terminal may speak for the user."""
    events: Any = None
    """Listeners: a function of an event, the path of a file, or a list of these."""
    timeout: float | None = None
    """Seconds that a whole scenario may take."""
    call_timeout: float | None = 600.0
    """Seconds that a call of a participant may take; `configure(call_timeout=None)` removes the
    limit."""
    observability: dict[str, Any] | None = None
    """The arguments of `setup_scenario_tracing`: `span_filter`, `span_processors`,
    `trace_exporter`, `instrumentors`."""
    headless: bool | None = None
    """Whether the browser stays closed; holodeck opens none."""
    fetch_remote_traces: bool | None = None
    """Whether the judge waits for traces of a service; holodeck asks none."""
    trace_wait_timeout: float | None = None
    """Seconds to wait for these."""
    trace_wait_extension: float | None = None
    """Seconds to wait for them once more."""

    @classmethod
    def configure(cls, *default_model: str | ModelConfig, **settings: Any) -> None:
        """Set defaults for all further scenarios; other settings stay. Raises ConfigError.

        The default model may be a positional argument.
        """
        if default_model:
            [settings["default_model"]] = default_model
        base = cls.default_config or cls()
        ScenarioConfig.default_config = base.merge(_parse_settings("scenario.configure", settings))

    @classmethod
    def current(cls, **settings: Any) -> ScenarioConfig:
        """Return the settings of a run that is given these; None means not given.

        Raises ConfigError.
        """
        chosen = {key: value for key, value in settings.items() if value is not None}
        return (cls.default_config or cls()).merge(_parse_settings("scenario", chosen))

    @property
    def is_shown(self) -> bool:
        """Whether to show the conversation."""
        if self.debug:
            return True
        verbose = self.verbose if "verbose" in self.model_fields_set else None
        return is_tty(sys.stderr) if verbose is None else bool(verbose)

    def merge(self, other: ScenarioConfig) -> ScenarioConfig:
        """Return these settings, overridden by those given to `other`."""
        chosen = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update=chosen)


def _parse_settings(location: str, settings: Mapping[str, Any]) -> ScenarioConfig:
    try:
        config = ScenarioConfig(**settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name, problem = ".".join(map(str, first["loc"])), first["msg"].lower()
        if first["type"] == "extra_forbidden":
            problem = f"unknown setting; the settings are {', '.join(ScenarioConfig.model_fields)}"
        raise ScenarioUsageError(location, f"{name}: {problem}") from error
    _note_service_settings(config)
    return config


configure = ScenarioConfig.configure

SERVICE_SETTINGS = (
    "headless",
    "fetch_remote_traces",
    "trace_wait_timeout",
    "trace_wait_extension",
)
"""Settings for the service of Scenario, which have no effect."""
_noted: set[str] = set()


def _note_service_settings(config: ScenarioConfig) -> None:
    """Log once in the process that settings for the service have no effect."""
    unused = [name for name in SERVICE_SETTINGS if getattr(config, name) is not None]
    if unused and not _noted:
        _noted.update(unused)
        logger.warning(
            "scenario: %s only matters with a service; holodeck sends nothing anywhere, opens no"
            " browser and asks no service for traces",
            ", ".join(unused),
        )
