"""The real chat service of each provider, and the settings of its requests."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError
from holodeck.lib.backends.semantic_kernel.bounds import client_options
from holodeck.lib.backends.semantic_kernel.lean import import_openai_connectors
from holodeck.lib.chat.limits import CallLimits
from holodeck.lib.chat.settings import drop_none, sampling
from holodeck.models.llm import LLMProvider, ProviderEnum

if TYPE_CHECKING:
    from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase

    from holodeck.lib.backends.semantic_kernel.local import LocalWeights

NO_KEY = "none"
"""Servers without keys still want the header; the client libraries insist on some text."""


def service_maker(
    llm: LLMProvider, limits: CallLimits, weights: "LocalWeights"
) -> "Callable[[], ChatCompletionClientBase]":
    """Makes a new service with a client of its own at each call. Raises ConfigError."""
    makers: dict[ProviderEnum, Callable[[], ChatCompletionClientBase]] = {
        ProviderEnum.OPENAI: lambda: _openai(llm, limits),
        ProviderEnum.AZURE_OPENAI: lambda: _azure(llm, limits),
        ProviderEnum.ANTHROPIC: lambda: _anthropic(llm, limits),
        ProviderEnum.OLLAMA: lambda: _ollama(llm, limits),
        ProviderEnum.LOCAL: lambda: _local(llm, weights),
    }
    return makers[llm.provider]


def _key(llm: LLMProvider, variable: str) -> str:
    if llm.api_key is not None:
        return llm.api_key.get_secret_value()
    if llm.endpoint is not None and llm.provider is ProviderEnum.OPENAI:
        return NO_KEY
    raise ConfigError("model.api_key", f"is missing: set {variable}, or write it in the model")


def _openai(llm: LLMProvider, limits: CallLimits) -> "ChatCompletionClientBase":
    import_openai_connectors()
    from openai import AsyncOpenAI, DefaultAioHttpClient
    from semantic_kernel.connectors.ai.open_ai.services.open_ai_chat_completion import (
        OpenAIChatCompletion,
    )

    client = AsyncOpenAI(
        api_key=_key(llm, "OPENAI_API_KEY"),
        base_url=llm.endpoint,
        max_retries=0,
        timeout=limits.attempt_timeout,
        http_client=DefaultAioHttpClient(
            timeout=limits.attempt_timeout, **client_options(limits.answer_bytes)
        ),
    )
    return OpenAIChatCompletion(ai_model_id=llm.name, async_client=client)


def _azure(llm: LLMProvider, limits: CallLimits) -> "ChatCompletionClientBase":
    import_openai_connectors()
    from openai import AsyncAzureOpenAI, DefaultAioHttpClient
    from semantic_kernel.connectors.ai.open_ai import AzureChatCompletion

    client = AsyncAzureOpenAI(
        api_key=_key(llm, "AZURE_OPENAI_API_KEY"),
        azure_endpoint=llm.endpoint or "",
        azure_deployment=llm.name,
        api_version=llm.api_version or "2024-10-21",
        max_retries=0,
        timeout=limits.attempt_timeout,
        http_client=DefaultAioHttpClient(
            timeout=limits.attempt_timeout, **client_options(limits.answer_bytes)
        ),
    )
    return AzureChatCompletion(deployment_name=llm.name, async_client=client)


def _anthropic(llm: LLMProvider, limits: CallLimits) -> "ChatCompletionClientBase":
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion

    key = _key(llm, "ANTHROPIC_API_KEY")
    client = AsyncAnthropic(
        api_key=key,
        base_url=llm.endpoint,
        max_retries=0,
        timeout=limits.attempt_timeout,
        http_client=DefaultAsyncHttpxClient(
            timeout=limits.attempt_timeout, **client_options(limits.answer_bytes)
        ),
    )
    return AnthropicChatCompletion(ai_model_id=llm.name, api_key=key, async_client=client)


def _ollama(llm: LLMProvider, limits: CallLimits) -> "ChatCompletionClientBase":
    from ollama import AsyncClient
    from semantic_kernel.connectors.ai.ollama import OllamaChatCompletion

    options = client_options(limits.answer_bytes)
    client = AsyncClient(host=llm.endpoint, timeout=limits.attempt_timeout, **options)
    return OllamaChatCompletion(ai_model_id=llm.name, client=client)


def _local(llm: LLMProvider, weights: "LocalWeights") -> "ChatCompletionClientBase":
    from holodeck.lib.backends.semantic_kernel.local import LocalChatCompletion

    return LocalChatCompletion.of(llm.name, weights)


def request_settings(llm: LLMProvider, schema: dict[str, Any] | None) -> dict[str, Any]:
    """The provider's own names and values for sampling and the format of the answer."""
    if llm.provider is ProviderEnum.OLLAMA:
        options = {
            "temperature": llm.temperature,
            "top_p": llm.top_p,
            "num_predict": llm.max_tokens,
        }
        return drop_none({"options": drop_none(options), "format": schema})
    if llm.provider is ProviderEnum.ANTHROPIC and schema is not None:
        raise ConfigError("response_format", "anthropic has none; ask for the format in words")
    return sampling(llm, schema)
