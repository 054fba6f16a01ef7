"""Settings of scenarios: built in, of the process (`configure`), and of one run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from holodeck.config.environment import Environment
from holodeck.config.providers import missing_key_message, with_provider_variables
from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import ScenarioUsageError
from holodeck.lib.ui.terminal import is_tty
from holodeck.models.llm import LLMProvider, ProviderEnum


class ModelConfig(BaseModel):
    """A model and how it is asked; None leaves a value to the provider's own variables."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    model: str
    """Such as `openai/gpt-4.1`: provider and name."""
    api_base: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


class ScenarioConfig(BaseModel):
    """How scenarios are run. Only what was given counts: None can be given, too."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    default_config: ClassVar[ScenarioConfig | None] = None
    """What `configure` has set."""

    default_model: str | ModelConfig | None = None
    """For judges and simulated users that name no model."""
    max_turns: int | None = 10
    """The most turns that are played without a script."""
    min_turns: int | None = None
    """The least, before a judge is asked."""
    verbose: bool | int | None = True
    """Whether the conversation is shown on stderr as it happens; 2 adds the name of the scenario.
    Unless it is given, only where stderr is a terminal."""
    cache_key: str | None = None
    """What answers are kept under; without one, none are."""
    cache_mode: Literal["auto", "record", "replay", "off"] | None = None
    """`auto` asks for what is not kept yet, `record` for everything, `replay` for nothing; None for
    what HOLODECK_CACHE_MODE says, else `auto`."""
    cache_dir: str | Path | None = None
    """The folder of the answers; None for `scenarios` in the cache folder of holodeck."""
    debug: bool | None = False
    """Whether a person at the terminal may speak for the user."""
    events: Any = None
    """Who is told of what happens: a function of an event, the path of a file, or a list."""
    timeout: float | None = None
    """Seconds that a whole scenario may take."""
    call_timeout: float | None = None
    """Seconds that one answer of anybody may take."""

    @classmethod
    def configure(cls, *default_model: str | ModelConfig, **settings: Any) -> None:
        """Set what holds for all scenarios from now on; the rest stays. Raises ConfigError.

        The default model may be given without its name.
        """
        if default_model:
            [settings["default_model"]] = default_model
        base = cls.default_config or cls()
        ScenarioConfig.default_config = base.merge(_read("scenario.configure", settings))

    @classmethod
    def current(cls, **settings: Any) -> ScenarioConfig:
        """What holds for a run with these settings, of which None means not given.

        Raises ConfigError.
        """
        given = {key: value for key, value in settings.items() if value is not None}
        return (cls.default_config or cls()).merge(_read("scenario", given))

    @property
    def is_shown(self) -> bool:
        """Whether there is something to see of the conversation."""
        if self.debug:
            return True
        given = self.verbose if "verbose" in self.model_fields_set else None
        return is_tty(sys.stderr) if given is None else bool(given)

    def merge(self, other: ScenarioConfig) -> ScenarioConfig:
        """This, with everything that was given to `other`."""
        given = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update=given)


def _read(where: str, settings: Mapping[str, Any]) -> ScenarioConfig:
    try:
        return ScenarioConfig(**settings)
    except ValidationError as error:
        wrong = error.errors(include_input=False)[0]
        name, told = ".".join(map(str, wrong["loc"])), wrong["msg"].lower()
        if wrong["type"] == "extra_forbidden":
            told = f"there is no such setting; there are {', '.join(ScenarioConfig.model_fields)}"
        raise ScenarioUsageError(where, f"{name}: {told}") from error


configure = ScenarioConfig.configure


T = TypeVar("T")

PROVIDERS = {
    **{one.value: one for one in ProviderEnum},
    "azure": ProviderEnum.AZURE_OPENAI,
    "ollama_chat": ProviderEnum.OLLAMA,
}


def model_for(who: str, model: str | None, **given: str | float | None) -> LLMProvider:
    """The model that an agent names, else the default one. Raises ConfigError if there is none.

    Args:
        who: The class that needs it, for messages.
        model: Such as `openai/gpt-4.1`.
        given: Fields of ModelConfig that the agent gives.
    """
    default = (ScenarioConfig.default_config or ScenarioConfig()).default_model
    base = ModelConfig(model=default) if isinstance(default, str) else default
    said = {key: value for key, value in given.items() if value is not None}
    if model is not None:
        return llm_of(ModelConfig(model=model, **said), who)
    if base is None:
        raise ConfigError(
            who,
            f"there is no model; write {who}(model='openai/gpt-4.1'), or"
            " scenario.configure(default_model='openai/gpt-4.1') once",
        )
    return llm_of(base.model_copy(update=said), who)


def llm_of(config: ModelConfig, who: str) -> LLMProvider:
    """The model with what the environment says about its provider. Raises ConfigError."""
    provider, name = _split(config, who)
    said = {
        "provider": provider.value,
        "name": name,
        "endpoint": config.api_base,
        "api_key": config.api_key,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
    }
    given = {key: value for key, value in said.items() if value is not None}
    try:
        return LLMProvider(**with_provider_variables(given, Environment.beside()))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        message = f"model {config.model!r}: {place} {wrong['msg']}".strip()
        raise ConfigError(who, message) from error


def unless_keyless(make: Callable[[LLMProvider], T], llm: LLMProvider) -> T | None:
    """What is made of a model; None if it has no key.

    That is told by `ask_model`, and not sooner: a script may say all that the model would, and a
    replay asks nobody.
    """
    return make(llm) if missing_key_message(llm) is None else None


def asked(made: T | None, llm: LLMProvider, who: str) -> T:
    """What was made of a model. Raises ScenarioUsageError if it has no key."""
    if made is None:
        told = (missing_key_message(llm) or "").partition(", or")[0]
        raise ScenarioUsageError(who, f"model '{llm.provider.value}/{llm.name}': {told}")
    return made


def _split(config: ModelConfig, who: str) -> tuple[ProviderEnum, str]:
    head, _, rest = config.model.partition("/")
    if rest and head in PROVIDERS:
        return PROVIDERS[head], rest
    if not rest and head.startswith("claude"):
        return ProviderEnum.ANTHROPIC, head
    if not rest or config.api_base is not None:
        return ProviderEnum.OPENAI, config.model
    raise ConfigError(
        who,
        f"model {config.model!r}: the provider {head!r} is not known; it is one of"
        f" {', '.join(PROVIDERS)}; for any other OpenAI-compatible endpoint, give api_base",
    )


class Held:
    """What is let go of when the last run on an event loop is over."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._users: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One run."""
        loop = asyncio.get_running_loop()
        self._users[loop] = self._users.get(loop, 0) + 1
        try:
            yield
        finally:
            self._users[loop] -= 1
            if not self._users[loop]:
                await self._close()
