"""The table of providers: the endpoint, key and request settings of each."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.llm.http_client import Server
from holodeck.models.llm import LLMProvider, ProviderEnum


def endpoint_key(llm: LLMProvider) -> str:
    """What shares one limit: provider, address and key, of which only a hash is told."""
    key = "" if llm.api_key is None else llm.api_key.get_secret_value()
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{llm.provider.value} {llm.endpoint or llm.name} ({digest})"


def sampling(llm: LLMProvider, schema: dict[str, Any] | None) -> dict[str, Any]:
    """The settings of a chat completion, in OpenAI's names."""
    limit = "max_completion_tokens" if _speaks_new_names(llm) else "max_tokens"
    return drop_none(
        {
            "temperature": llm.temperature,
            "top_p": llm.top_p,
            limit: llm.max_tokens,
            "response_format": _wrapped(schema),
        }
    )


def drop_none(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _speaks_new_names(llm: LLMProvider) -> bool:
    """OpenAI has renamed the limit and refuses the old name for its newer models; servers that
    imitate it often know the old one only."""
    own_server = llm.provider is ProviderEnum.OPENAI and llm.endpoint is None
    return own_server or llm.provider is ProviderEnum.AZURE_OPENAI


def _wrapped(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is None or "json_schema" in schema:
        return schema
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
ANTHROPIC_VERSION = "2023-06-01"
OLLAMA_URL = "http://127.0.0.1:11434"
AZURE_VERSION = "2024-10-21"

ProxyFor = Callable[[str], str | None]
"""URL → the URL of the proxy on the way to it; None for a direct connection."""


@dataclass(frozen=True)
class Endpoint:
    """Where chat completions are to be had, and with what."""

    server: Server
    headers: Mapping[str, str]
    name: str
    """What shares one limit; tells no secret."""

    @classmethod
    def of(cls, llm: LLMProvider, proxy_for: ProxyFor | None = None) -> "Endpoint":
        """The endpoint of a model; `proxy_for` names the proxy on the way to it.

        Raises ConfigError, also for a local model, which has none.
        """
        if llm.provider not in _MAKERS:
            raise ConfigError("model.provider", f"{llm.provider.value} has no endpoint")
        url, headers = _MAKERS[llm.provider](llm)
        server = Server(_checked(url), proxy_for(url) if proxy_for else None)
        return cls(server, headers, endpoint_key(llm))


def _openai(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    base = (llm.endpoint or OPENAI_URL).rstrip("/")
    key = _key(llm, "OPENAI_API_KEY", needed=llm.endpoint is None)
    return f"{base}/chat/completions", {"Authorization": f"Bearer {key}"} if key else {}


def _azure(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    from urllib.parse import quote  # noqa: PLC0415 - the only user of it

    base = (llm.endpoint or "").rstrip("/")
    version = quote(llm.api_version or AZURE_VERSION)
    deployment = quote(llm.name, safe="")
    url = f"{base}/openai/deployments/{deployment}/chat/completions?api-version={version}"
    return url, {"api-key": _key(llm, "AZURE_OPENAI_API_KEY", needed=True)}


def _key(llm: LLMProvider, variable: str, *, needed: bool) -> str:
    key = "" if llm.api_key is None else llm.api_key.get_secret_value().strip()
    if needed and not key:
        raise ConfigError("model.api_key", f"is missing: set {variable}, or write it in the model")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("model.api_key", "holds characters that no key has; copy it again")
    return key


def _checked(url: str) -> str:
    server = Server(url)
    try:
        is_usable = server.parts.scheme in {"http", "https"} and server.host and server.port
    except ValueError:
        is_usable = False
    if not (is_usable and url.isascii() and url.isprintable() and " " not in url):
        raise ConfigError("model.endpoint", "is no URL such as 'https://host/v1'")
    return url


def _anthropic(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    base = (llm.endpoint or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")
    key = _key(llm, "ANTHROPIC_API_KEY", needed=True)
    return f"{base}/v1/messages", {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}


def _ollama(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    base = (llm.endpoint or OLLAMA_URL).rstrip("/").removesuffix("/v1")
    key = _key(llm, "", needed=False)
    return f"{base}/v1/chat/completions", {"Authorization": f"Bearer {key}"} if key else {}


_MAKERS: dict[ProviderEnum, Callable[[LLMProvider], tuple[str, dict[str, str]]]] = {
    ProviderEnum.OPENAI: _openai,
    ProviderEnum.AZURE_OPENAI: _azure,
    ProviderEnum.ANTHROPIC: _anthropic,
    ProviderEnum.OLLAMA: _ollama,
}
