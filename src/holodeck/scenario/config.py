"""Settings of scenarios, and the models of their judges and simulated users."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from holodeck.config.environment import Environment
from holodeck.config.providers import missing_key_message, with_provider_variables
from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import ScenarioUsageError
from holodeck.lib.ui.terminal import is_tty
from holodeck.models.llm import LLMProvider, ProviderEnum


class ModelConfig(BaseModel):
    """A model and its settings; None leaves a value to the provider's own variables."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    model: str
    """Provider and name, such as `openai/gpt-4.1`."""
    api_base: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


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
    call_timeout: float | None = None
    """Seconds that one call of a participant may take."""
    observability: dict[str, Any] | None = None
    """The arguments of `setup_scenario_tracing`: `span_filter`, `span_processors`,
    `trace_exporter`, `instrumentors`."""

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
        given = {key: value for key, value in settings.items() if value is not None}
        return (cls.default_config or cls()).merge(_parse_settings("scenario", given))

    @property
    def is_shown(self) -> bool:
        """Whether to show the conversation."""
        if self.debug:
            return True
        given = self.verbose if "verbose" in self.model_fields_set else None
        return is_tty(sys.stderr) if given is None else bool(given)

    def merge(self, other: ScenarioConfig) -> ScenarioConfig:
        """Return these settings, overridden by those given to `other`."""
        given = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update=given)


def _parse_settings(location: str, settings: Mapping[str, Any]) -> ScenarioConfig:
    try:
        return ScenarioConfig(**settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name, problem = ".".join(map(str, first["loc"])), first["msg"].lower()
        if first["type"] == "extra_forbidden":
            problem = f"unknown setting; the settings are {', '.join(ScenarioConfig.model_fields)}"
        raise ScenarioUsageError(location, f"{name}: {problem}") from error


configure = ScenarioConfig.configure

T = TypeVar("T")

PROVIDERS = {
    **{one.value: one for one in ProviderEnum},
    "azure": ProviderEnum.AZURE_OPENAI,
    "ollama_chat": ProviderEnum.OLLAMA,
}


def model_for(owner: str, model: str | None, **given: str | float | None) -> LLMProvider:
    """Return the model of an agent, else the default one. Raises ConfigError if there is none.

    Args:
        owner: The class that needs it, for messages.
        model: Provider and name, such as `openai/gpt-4.1`.
        given: Fields of ModelConfig.
    """
    settings = {key: value for key, value in given.items() if value is not None}
    if model is not None:
        return _with_environment(ModelConfig(model=model, **settings), owner)
    default = (ScenarioConfig.default_config or ScenarioConfig()).default_model
    base = ModelConfig(model=default) if isinstance(default, str) else default
    if base is None:
        raise ConfigError(
            owner,
            f"there is no model; write {owner}(model='openai/gpt-4.1'), or"
            " scenario.configure(default_model='openai/gpt-4.1') once",
        )
    return _with_environment(base.model_copy(update=settings), owner)


def _with_environment(config: ModelConfig, owner: str) -> LLMProvider:
    """Return the model with its provider's settings from the environment. Raises ConfigError."""
    provider, name = _provider_and_name(config, owner)
    settings = {
        "provider": provider.value,
        "name": name,
        "endpoint": config.api_base,
        "api_key": config.api_key,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    try:
        return LLMProvider(**with_provider_variables(given, Environment.beside()))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        message = f"model {config.model!r}: {field} {first['msg']}".strip()
        raise ConfigError(owner, message) from error


def _provider_and_name(config: ModelConfig, owner: str) -> tuple[ProviderEnum, str]:
    head, _, rest = config.model.partition("/")
    if rest and head in PROVIDERS:
        return PROVIDERS[head], rest
    if not rest and head.startswith("claude"):
        return ProviderEnum.ANTHROPIC, head
    if not rest or config.api_base is not None:
        return ProviderEnum.OPENAI, config.model
    raise ConfigError(
        owner,
        f"model {config.model!r}: unknown provider {head!r}; the providers are"
        f" {', '.join(PROVIDERS)}; for any other OpenAI-compatible endpoint, give api_base",
    )


class ModelClient(Generic[T]):
    """The client of an agent's model, which closes after the last run on an event loop.

    Args:
        owner: The class that needs it, for messages.
        llm: The model.
        make: Makes the client.
        close: Closes the client's connections on the current event loop.
    """

    def __init__(
        self,
        owner: str,
        llm: LLMProvider,
        make: Callable[[LLMProvider], T],
        close: Callable[[T], Awaitable[None]],
    ) -> None:
        self.llm = llm
        self._owner = owner
        # A missing key is an error of `get` and not of the constructor: a script may contain all
        # messages, and a replay calls no model.
        self._client = make(llm) if missing_key_message(llm) is None else None
        self._close = close
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the client. Raises ScenarioUsageError without an API key."""
        if self._client is None:
            problem = (missing_key_message(self.llm) or "").partition(", or")[0]
            name = f"{self.llm.provider.value}/{self.llm.name}"
            raise ScenarioUsageError(self._owner, f"model '{name}': {problem}")
        return self._client

    @asynccontextmanager
    async def keep_open(self) -> AsyncIterator[None]:
        """Keep the client open during one run."""
        loop = asyncio.get_running_loop()
        self._runs[loop] = self._runs.get(loop, 0) + 1
        try:
            yield
        finally:
            self._runs[loop] -= 1
            if not self._runs[loop] and self._client is not None:
                await self._close(self._client)
