"""The base classes of participants in Python: any, and those that ask a model."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from holodeck.config.providers import missing_key_message
from holodeck.errors import BackendError, ConfigError, Refusal
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.response_cache import model_cache_facts
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes, ScenarioUsageError
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.model import ChatModel, ChatRequest, ChatResponse
from holodeck.models.llm import PROVIDERS, LLMProvider
from holodeck.scenario.config import (
    ModelConfig,
    ModelSettings,
    ScenarioConfig,
    model_settings,
    provider_and_name,
)


class AgentAdapter(ABC):
    """The base class of participants: derive from it and write `call`."""

    role: AgentRole = AgentRole.AGENT
    """The role that it plays."""

    @abstractmethod
    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """Return a text, a message, a list of messages, or the result that ends it all."""


_lock = RLock()


@cache
def _judges() -> Judges:
    """Return what makes the models of all scenarios in the process.

    They share what is known about a server: its rate limits, and whether it was ever reached.
    """
    return Judges()


class ModelAgent(AgentAdapter):
    """A participant that asks a model.

    Its settings are attributes, which a subclass may set without calling our constructor.
    """

    model: str | None = None
    """Provider and name, such as `openai/gpt-4.1`."""
    api_base: str | None = None
    api_key: str | None = None
    temperature: float = 0.0
    max_tokens: int | None = None
    system_prompt: str | None = None
    _extra_params: Mapping[str, Any] = MappingProxyType({})
    """Further arguments of the model."""
    _own_client: ModelClient | None = None
    _kind: ClassVar[str] = "simulator"

    def __init__(
        self, *, model: str | None = None, system_prompt: str | None = None, **arguments: Any
    ) -> None:
        owner = type(self).__name__
        name, known = _with_default(owner, model, arguments)
        model_settings(owner, name, known)
        self.model = name
        self.system_prompt = system_prompt
        self.api_base = known.pop("api_base", None)
        self.api_key = known.pop("api_key", None)
        if "temperature" in known:  # else the recorded responses of earlier versions change
            self.temperature = known.pop("temperature")
        self.max_tokens = known.pop("max_tokens", None)
        self._extra_params = known

    def _model_settings(self) -> ModelSettings:
        """Return the model by the attributes. Raises ConfigError."""
        arguments = {
            "api_base": self.api_base,
            "api_key": self.api_key,
            "temperature": vars(self).get("temperature"),
            "max_tokens": self.max_tokens,
            **self._extra_params,
        }
        return settings_for(type(self).__name__, self.model, arguments)

    @property
    def _client(self) -> ModelClient:
        with _lock:
            if self._own_client is None:
                self._own_client = ModelClient(
                    type(self).__name__, self._model_settings, self._kind
                )
            return self._own_client

    def keep_open(self) -> AbstractAsyncContextManager[None]:
        """Keep the connections open during a run."""
        return self._client.keep_open()

    def _facts(self, prompts: Sequence[str], **further: object) -> dict[str, object]:
        """Return what the responses depend on, the first of the prompts as it is replaced."""
        if self.system_prompt is not None:
            prompts = (self.system_prompt, *prompts[1:])
        return {"model": self._client.facts, "prompts": prompts, **further}


def settings_for(owner: str, model: str | None, arguments: Mapping[str, Any]) -> ModelSettings:
    """Return a model by its arguments, the configured model if None. Raises ConfigError."""
    return model_settings(owner, *_with_default(owner, model, arguments))


def _with_default(
    owner: str, model: str | None, given: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return a model and its arguments, those that are not given from the configured model.

    A model of another provider takes nothing from it: a key or URL would go to the wrong server.
    """
    arguments = {name: value for name, value in given.items() if value is not None}
    default = (ScenarioConfig.default_config or ScenarioConfig()).default_model
    base = ModelConfig(model=default) if isinstance(default, str) else default
    if base is None:
        if model is None:
            raise ConfigError(
                owner,
                f"there is no model; write {owner}(model='openai/gpt-4.1'), or"
                " scenario.configure(default_model='openai/gpt-4.1') once",
            )
        return model, arguments
    if model is None:
        return base.model, {**base.given(), **arguments}
    known = base.api_base is not None
    has_endpoint = known or arguments.get("api_base") is not None
    provider, _ = provider_and_name(owner, model, has_endpoint=has_endpoint)
    is_same = provider is provider_and_name(owner, base.model, has_endpoint=known)[0]
    return model, {**(base.given() if is_same else {}), **arguments}


class ModelClient:
    """The client of an agent's model, which closes after the last run on an event loop.

    Args:
        owner: The class that needs it, for messages.
        settings: Returns the model; if it has changed, there is a new client.
        kind: The kind of work; each kind has slots of its own.
    """

    def __init__(
        self, owner: str, settings: Callable[[], ModelSettings], kind: str = "simulator"
    ) -> None:
        self._owner = owner
        self._settings = settings
        self._kind = kind
        self._made: list[tuple[ModelSettings, ChatModel, Judge]] = []
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    @property
    def facts(self) -> dict[str, object]:
        """What the responses of the model depend on, for the cache. Raises ConfigError."""
        settings = self._settings()
        facts = model_cache_facts(settings.llm)
        body, left_out = settings.options.body, settings.options.left_out
        sent = {key: value for key, value in body.items() if key not in left_out}
        return {**facts, "body": sent} if sent else facts

    def get(self) -> ChatModel:
        """Return the model. Raises ScenarioUsageError without an API key."""
        return self._current()[1]

    def judge(self) -> Judge:
        """Return the model as a judge. Raises ScenarioUsageError without an API key."""
        return self._current()[2]

    def _current(self) -> tuple[ModelSettings, ChatModel, Judge]:
        settings = self._settings()
        with _lock:
            if not self._made or self._made[-1][0] != settings:
                llm = settings.llm
                problem = None if settings.options.client else missing_key_message(llm)
                if problem is not None:
                    # Not an error of the constructor: a script may contain all messages, and a
                    # replay calls no model.
                    text = problem.partition(", or")[0]
                    raise ScenarioUsageError(self._owner, f"model '{llm.label}': {text}")
                chat = _judges().model(llm, self._kind, options=settings.options)
                model = ExplainedModel(chat, self._owner, llm)
                self._made.append((settings, model, Judge(model)))
            return self._made[-1]

    @asynccontextmanager
    async def keep_open(self) -> AsyncIterator[None]:
        """Keep the client open during a run."""
        loop = asyncio.get_running_loop()
        self._runs[loop] = self._runs.get(loop, 0) + 1
        try:
            yield
        finally:
            self._runs[loop] -= 1
            if not self._runs[loop]:
                for _, model, _ in self._made:
                    await model.close()


@dataclass(frozen=True)
class ExplainedModel:
    """A model whose refusals say what to change."""

    model: ChatModel
    owner: str
    """The class that asks it."""
    llm: LLMProvider

    @property
    def name(self) -> str:
        """Provider and model."""
        return self.model.name

    async def answer(self, request: ChatRequest) -> ChatResponse:
        """Return the model's response. Raises BackendError."""
        try:
            return await self.model.answer(request)
        except BackendError as error:
            owner = self.owner
            keys = " or ".join((*PROVIDERS[self.llm.provider].api_key, f"{owner}(api_key=…)"))
            hints: dict[Refusal | None, str] = {
                "key": f"check {keys}",
                "quota": f"check the account of {keys}",
                "model": f"check {owner}(model='{self.name}') and api_base",
                "unreachable": f"check that the server is running, and {owner}(api_base=…)",
            }
            if error.refusal in hints:
                error.args = (f"{error}; {hints[error.refusal]}", *error.args[1:])
            raise

    async def close(self) -> None:
        """Close what belongs to the running event loop."""
        await self.model.close()
