"""Models by the names that people give them, and what holds their connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from holodeck.config.env import Environment
from holodeck.config.providers import filled, missing_key
from holodeck.errors import ConfigError
from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.scenario.config import ModelConfig, ScenarioConfig

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
        return LLMProvider(**filled(given, Environment.beside()))
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
    return make(llm) if missing_key(llm) is None else None


def asked(made: T | None, llm: LLMProvider, who: str) -> T:
    """What was made of a model. Raises ScenarioUsageError if it has no key."""
    if made is None:
        told = (missing_key(llm) or "").partition(", or")[0]
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
