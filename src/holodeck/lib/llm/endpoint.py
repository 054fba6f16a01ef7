"""Endpoints of models: the URL, headers and request settings of each protocol."""

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from holodeck.errors import ConfigError
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.http_connection import Server
from holodeck.lib.support.text import one_line
from holodeck.models.llm import PROVIDERS, SCRIPTED_URL, LLMProvider, Protocol, ProviderEnum

SCOPE = "https://cognitiveservices.azure.com/.default"
REFRESH_BEFORE_S = 300
"""A token is replaced so long before it expires."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_of_azure(host: str) -> bool:
    """Whether a token may be sent to the host: it opens every resource that the user may use."""
    domains = PROVIDERS[ProviderEnum.AZURE_OPENAI].own_domains
    return host in _LOOPBACK or any(host.endswith(f".{domain}") for domain in domains)


class EntraTokens:
    """Gets tokens from the credentials of this machine, as Azure's tools do.

    A token is kept until shortly before it expires.
    """

    def __init__(self) -> None:
        self._token = ""
        self._expires = 0.0

    async def get(self) -> str:
        """Return a token that is valid now. Raises RequestError."""
        if time.time() < self._expires - REFRESH_BEFORE_S:
            return self._token
        from azure.core.exceptions import AzureError
        from azure.identity.aio import DefaultAzureCredential

        try:
            # A credential belongs to one event loop; a token is used on all.
            async with DefaultAzureCredential() as credential:
                token = await credential.get_token(SCOPE)
        except AzureError as error:
            reason = one_line(str(error).partition("\n")[0], 200)
            raise RequestError(
                "no API key is set (AZURE_OPENAI_API_KEY), and no token of Entra ID could be got:"
                f" {reason}; 'az login' signs in",
                refusal="key",
            ) from error
        self._token, self._expires = token.token, float(token.expires_on)
        return self._token


ANTHROPIC_VERSION = "2023-06-01"
AZURE_VERSION = "2024-10-21"


TokenSource = Callable[[], Awaitable[str]]
"""Returns a token that is valid now. Raises RequestError."""
ProxyFor = Callable[[str], str | None]
"""URL → the URL of its proxy; None for a direct connection."""


_are_keys_needed: ContextVar[bool] = ContextVar("holodeck_keys_needed", default=True)


@contextmanager
def keys_needed(*, needed: bool) -> Iterator[None]:
    """Let endpoints be made without their keys within the block, if none is needed."""
    token = _are_keys_needed.set(needed)
    try:
        yield
    finally:
        _are_keys_needed.reset(token)


@dataclass(frozen=True)
class Endpoint:
    """The URL that takes a model's requests, and their headers."""

    server: Server
    headers: Mapping[str, str]
    name: str
    """The key of the shared rate limit; holds no secret."""
    token: TokenSource | None = None
    """Returns a token for each request, where there is no key."""

    @classmethod
    def of(cls, llm: LLMProvider, proxy_for: ProxyFor | None = None) -> "Endpoint":
        """Return the endpoint of a model; `proxy_for` returns the proxy for a URL.

        Raises ConfigError, also for a model without an endpoint, such as a local one.
        """
        if llm.protocol not in _PROTOCOLS:
            raise ConfigError("model.provider", f"{llm.provider.value} has no endpoint")
        url, headers = _PROTOCOLS[llm.protocol](llm)
        server = Server(_validate_url(url), proxy_for(url) if proxy_for else None)
        token = None
        if llm.protocol == "azure" and not _api_key(llm, required=False):
            token = _entra_token(llm, server.host)
        return cls(server, headers, endpoint_key(llm), token)


def base_url(llm: LLMProvider) -> str:
    """Return the base URL of a model, "" without one."""
    return (llm.endpoint or PROVIDERS[llm.provider].url or "").rstrip("/")


def _entra_token(llm: LLMProvider, host: str) -> TokenSource | None:
    """Return what gets tokens for a resource without a key; None if none is needed.

    Raises ConfigError.
    """
    if is_of_azure(host):
        return EntraTokens().get
    missing = missing_api_key(llm)
    if not _are_keys_needed.get():
        return None
    raise ConfigError(
        missing.field,
        f"{missing.message}; tokens of Entra ID are sent to Azure's own hosts only, and {host!r} is"
        " none of these",
    )


def is_own_endpoint(llm: LLMProvider) -> bool:
    """Whether requests go to the provider's own address, written out or not."""
    own = PROVIDERS[llm.provider].url
    return own is not None and base_url(llm) == own


def _openai(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    key = _api_key(llm, required=is_own_endpoint(llm))
    return f"{base_url(llm)}/chat/completions", _bearer(key)


def _azure(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    key = _api_key(llm, required=False)
    return _azure_url(llm), {"api-key": key} if key else {}


def _azure_url(llm: LLMProvider) -> str:
    """Return where completions of a deployment are requested.

    The endpoint is that of the resource, or one that the portal shows: the address of the current
    API, which takes the deployment in the body, or the whole URI of the deployment.
    """
    base = base_url(llm)
    path = urlsplit(base).path
    if path.endswith(("/openai/v1", "/openai/v1/chat/completions")):
        return f"{base.removesuffix('/chat/completions')}/chat/completions"
    version = quote(llm.api_version or AZURE_VERSION)
    if path.endswith("/chat/completions"):
        return base if "api-version=" in base else f"{base}?api-version={version}"
    base = base.removesuffix("/openai")
    deployment = quote(llm.name, safe="")
    return f"{base}/openai/deployments/{deployment}/chat/completions?api-version={version}"


def _anthropic(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    base = base_url(llm).removesuffix("/v1")
    key = _api_key(llm, required=True)
    return f"{base}/v1/messages", {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}


def _ollama(llm: LLMProvider) -> tuple[str, dict[str, str]]:
    base = base_url(llm).removesuffix("/v1")
    return f"{base}/v1/chat/completions", _bearer(_api_key(llm, required=False))


def _scripted(_: LLMProvider) -> tuple[str, dict[str, str]]:
    return f"{SCRIPTED_URL}/chat/completions", {}


_PROTOCOLS: dict[Protocol, Callable[[LLMProvider], tuple[str, dict[str, str]]]] = {
    "openai": _openai,
    "azure": _azure,
    "anthropic": _anthropic,
    "ollama": _ollama,
    "scripted": _scripted,
}
"""The URL and the headers of a model, by protocol."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _api_key(llm: LLMProvider, *, required: bool) -> str:
    key = "" if llm.api_key is None else llm.api_key.get_secret_value().strip()
    if required and not key and _are_keys_needed.get():
        raise missing_api_key(llm)
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("model.api_key", "holds characters that no key has; copy it again")
    return key


def missing_api_key(llm: LLMProvider) -> ConfigError:
    variables = " or ".join(PROVIDERS[llm.provider].api_key)
    return ConfigError("model.api_key", f"is missing: set {variables}, or write it in the model")


def is_usable_url(url: str) -> bool:
    """Return whether requests can be sent to the URL."""
    server = Server(url)
    try:
        is_usable = server.parts.scheme in {"http", "https"} and server.host and server.port
    except ValueError:
        return False
    return bool(is_usable and url.isascii() and url.isprintable() and " " not in url)


def _validate_url(url: str) -> str:
    if not is_usable_url(url):
        raise ConfigError("model.endpoint", "is not a URL such as 'https://host/v1'")
    return url


def endpoint_key(llm: LLMProvider) -> str:
    """Return the key of the shared rate limit: provider, address and a hash of the API key."""
    key = "" if llm.api_key is None else llm.api_key.get_secret_value()
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{llm.provider.value} {llm.endpoint or llm.name} ({digest})"


def sampling(llm: LLMProvider, schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings of a chat completion request, in OpenAI's names."""
    # OpenAI has renamed the limit and refuses the old name for newer models; servers that imitate
    # it often know only the old one.
    is_openai = llm.provider is ProviderEnum.OPENAI and is_own_endpoint(llm)
    has_new_names = is_openai or llm.protocol == "azure"
    if schema is not None and "json_schema" not in schema:
        named = {"name": "answer", "strict": True, "schema": schema}
        schema = {"type": "json_schema", "json_schema": named}
    return drop_none(
        {
            "temperature": llm.temperature,
            "top_p": llm.top_p,
            "max_completion_tokens" if has_new_names else "max_tokens": llm.max_tokens,
            "reasoning_effort": llm.reasoning_effort,
            "response_format": schema,
        }
    )


def drop_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
