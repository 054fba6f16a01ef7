"""The model behind an agent: provider, name, sampling and how to reach it."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Model, NonBlank, Ratio

DEFAULT_LOCAL_MODEL = "smollm2-135m-instruct"


class ProviderEnum(StrEnum):
    """Who serves the model; `local` runs it in the process, without key or server."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    LOCAL = "local"


class ProviderVariables(NamedTuple):
    """Environment variables of a provider; of several names, the first that is set wins."""

    api_key: tuple[str, ...] = ()
    endpoint: tuple[str, ...] = ()
    api_version: tuple[str, ...] = ()


PROVIDER_VARIABLES = {
    ProviderEnum.OPENAI: ProviderVariables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    ProviderEnum.AZURE_OPENAI: ProviderVariables(
        ("AZURE_OPENAI_API_KEY",),
        ("AZURE_OPENAI_ENDPOINT",),
        ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"),
    ),
    ProviderEnum.ANTHROPIC: ProviderVariables(("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL",)),
    ProviderEnum.OLLAMA: ProviderVariables(endpoint=("OLLAMA_HOST",)),
    ProviderEnum.LOCAL: ProviderVariables(),
}
"""Variables that stand in for missing keys of `model`."""
_OLLAMA_PORT = 11434


def ollama_url(host: str) -> str:
    """Return the URL for an OLLAMA_HOST, which may be a bare host or an address to listen on."""
    if "://" in host:
        return host
    name, _, port = host.partition(":")
    return f"http://{'127.0.0.1' if name in ('', '0.0.0.0') else name}:{port or _OLLAMA_PORT}"  # noqa: S104


class ProviderSettings(Model):
    """Settings for all models of a provider."""

    not_supported_yet: ClassVar = {"auth_provider": "API keys are the only way to authenticate"}

    provider: ProviderEnum | None = None
    """The provider of the model."""
    name: NonBlank = ""
    """Name of the model; for Azure the deployment; for `local` a known model or the path of a GGUF
    file."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.3
    """Sampling temperature; null uses the provider's default."""
    max_tokens: Annotated[int, Field(gt=0)] | None = 1000
    """Maximum tokens of one response; null uses the provider's default."""
    top_p: Ratio | None = None
    """Nucleus sampling."""
    endpoint: NonBlank | None = None
    """Base URL; required for Azure. With `provider: openai`, any OpenAI-compatible server works."""
    api_key: SecretStr | None = None
    """API key; by default the provider's environment variable (OPENAI_API_KEY, …)."""
    api_version: NonBlank | None = None
    """Azure API version."""


class LLMProvider(ProviderSettings):
    """A model and how to reach it."""

    provider: ProviderEnum
    """The provider of the model."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_default_local_model(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("provider") == "local" and "name" not in data:
            return {**data, "name": DEFAULT_LOCAL_MODEL}
        return data

    @model_validator(mode="after")
    def _has_what_its_provider_needs(self) -> "LLMProvider":
        if not self.name:
            raise ValueError("'name' is missing; write the name of the model")
        if self.provider is ProviderEnum.AZURE_OPENAI and not self.endpoint:
            raise ValueError("azure_openai needs 'endpoint: https://<resource>.openai.azure.com'")
        if self.provider is ProviderEnum.LOCAL and (self.endpoint or self.api_key):
            raise ValueError("a local model has no 'endpoint' and no 'api_key'; remove them")
        return self
