"""The model behind an agent: provider, name, sampling and how to reach it."""

from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, SecretStr, field_validator, model_validator

from holodeck.models.base import Model, NonBlank, Ratio, ServerAddress

DEFAULT_LOCAL_MODEL = "smollm2-135m-instruct"


class ProviderEnum(StrEnum):
    """Who serves the model, by the names that LiteLLM uses where it has one."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    LOCAL = "local"
    SCRIPTED = "scripted"
    BEDROCK = "bedrock"
    COHERE = "cohere"
    DEEPSEEK = "deepseek"
    FIREWORKS_AI = "fireworks_ai"
    GEMINI = "gemini"
    GROQ = "groq"
    HOSTED_VLLM = "hosted_vllm"
    HUGGINGFACE = "huggingface"
    LITELLM = "litellm"
    LITELLM_PROXY = "litellm_proxy"
    MISTRAL = "mistral"
    OPENROUTER = "openrouter"
    PERPLEXITY = "perplexity"
    TOGETHER_AI = "together_ai"
    VERTEX_AI = "vertex_ai"
    XAI = "xai"


Protocol = Literal["openai", "azure", "anthropic", "ollama", "local", "scripted", "litellm"]
"""How a provider is called: the chat completions of OpenAI or of Azure, the messages of Anthropic,
the API of Ollama, in the process, not at all, or by the library LiteLLM."""


class Provider(NamedTuple):
    """How to reach a provider; of several variables, the first that is set wins."""

    protocol: Protocol = "openai"
    url: str | None = None
    """The base URL; None if only the user knows it."""
    api_key: tuple[str, ...] = ()
    """Variables of the API key; a provider without any needs no key."""
    endpoint: tuple[str, ...] = ()
    """Variables of another base URL."""
    api_version: tuple[str, ...] = ()
    endpoint_example: str = "http://host:4000/v1"
    """An endpoint, for the error about a missing endpoint."""
    own_domains: tuple[str, ...] = ()
    """Domains besides the host of `url` below which only the provider serves models."""


def _named_after(prefix: str, url: str, *other_keys: str) -> Provider:
    """Return a provider with OpenAI's protocol, whose variables begin with its name."""
    return Provider(
        url=url, api_key=(f"{prefix}_API_KEY", *other_keys), endpoint=(f"{prefix}_API_BASE",)
    )


PROVIDERS = {
    ProviderEnum.OPENAI: Provider(
        url="https://api.openai.com/v1",
        api_key=("OPENAI_API_KEY",),
        endpoint=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ),
    ProviderEnum.AZURE_OPENAI: Provider(
        "azure",
        api_key=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        endpoint=("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE"),
        api_version=("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION", "AZURE_API_VERSION"),
        endpoint_example="https://<resource>.openai.azure.com",
        own_domains=(
            "openai.azure.com",
            "openai.azure.us",
            "cognitiveservices.azure.com",
            "services.ai.azure.com",
        ),
    ),
    ProviderEnum.ANTHROPIC: Provider(
        "anthropic",
        url="https://api.anthropic.com",
        api_key=("ANTHROPIC_API_KEY",),
        endpoint=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ),
    ProviderEnum.OLLAMA: Provider(
        "ollama", url="http://127.0.0.1:11434", endpoint=("OLLAMA_HOST", "OLLAMA_API_BASE")
    ),
    ProviderEnum.LOCAL: Provider("local"),
    ProviderEnum.SCRIPTED: Provider("scripted"),
    ProviderEnum.BEDROCK: Provider("litellm"),
    ProviderEnum.COHERE: Provider(
        url="https://api.cohere.ai/compatibility/v1",
        api_key=("COHERE_API_KEY", "CO_API_KEY"),
        endpoint=("COHERE_BASE_URL",),
    ),
    ProviderEnum.DEEPSEEK: _named_after("DEEPSEEK", "https://api.deepseek.com"),
    ProviderEnum.FIREWORKS_AI: _named_after(
        "FIREWORKS", "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"
    ),
    ProviderEnum.GEMINI: Provider(
        url="https://generativelanguage.googleapis.com/v1beta/openai",
        api_key=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        endpoint=("GEMINI_BASE_URL",),
    ),
    ProviderEnum.GROQ: _named_after("GROQ", "https://api.groq.com/openai/v1"),
    ProviderEnum.HOSTED_VLLM: Provider(
        api_key=("HOSTED_VLLM_API_KEY",),
        endpoint=("HOSTED_VLLM_API_BASE",),
        endpoint_example="http://host:8000/v1",
    ),
    ProviderEnum.HUGGINGFACE: Provider(
        url="https://router.huggingface.co/v1",
        api_key=("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        endpoint=("HF_BASE_URL",),
    ),
    ProviderEnum.LITELLM: Provider("litellm"),
    ProviderEnum.LITELLM_PROXY: Provider(
        api_key=("LITELLM_PROXY_API_KEY",), endpoint=("LITELLM_PROXY_API_BASE",)
    ),
    ProviderEnum.MISTRAL: _named_after("MISTRAL", "https://api.mistral.ai/v1"),
    ProviderEnum.OPENROUTER: _named_after(
        "OPENROUTER", "https://openrouter.ai/api/v1", "OR_API_KEY"
    ),
    ProviderEnum.PERPLEXITY: _named_after(
        "PERPLEXITY", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"
    ),
    ProviderEnum.TOGETHER_AI: Provider(
        url="https://api.together.ai/v1",
        api_key=("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY"),
        endpoint=("TOGETHER_AI_API_BASE",),
    ),
    ProviderEnum.VERTEX_AI: Provider("litellm"),
    ProviderEnum.XAI: _named_after("XAI", "https://api.x.ai/v1"),
}
"""All providers; their variables stand in for missing keys of `model`. LiteLLM uses the same, but
for COHERE_BASE_URL, GEMINI_BASE_URL and HF_BASE_URL: its own base URLs have another protocol."""
PROVIDER_ALIASES = {"azure": ProviderEnum.AZURE_OPENAI, "ollama_chat": ProviderEnum.OLLAMA}
"""LiteLLM's names of providers that are called differently here."""
SCRIPTED_URL = "http://scripted.invalid/v1"
"""Where requests to a scripted model seem to go, which are answered before they are sent: a host
that no network has."""
_OLLAMA_PORT = 11434


def ollama_url(host: str) -> str:
    """Return the URL for an OLLAMA_HOST, which may be a bare host or an address to listen on."""
    if "://" in host:
        return host
    name, _, port = host.partition(":")
    return f"http://{'127.0.0.1' if name in ('', '0.0.0.0') else name}:{port or _OLLAMA_PORT}"  # noqa: S104


_PROXY = (
    "write 'provider: litellm_proxy' with the 'endpoint' of a LiteLLM proxy, and remove this key"
)
_OTHER_AUTHENTICATION = {
    "bedrock": _PROXY,
    "vertex": _PROXY,
    "foundry": "write 'endpoint' and 'api_key' of the resource, and remove this key",
    "custom": "write 'endpoint' and 'api_key', such as 'api_key: ${ANTHROPIC_AUTH_TOKEN}', and"
    " remove this key",
    "oauth_token": "a model needs an API key; for an agent that signs in as Claude Code does, write"
    " 'backend: module:attribute' with an agent of the Claude Agent SDK",
}
"""What to write for the values that only HoloDeck's own agents know."""


_DEFAULT_NAMES: dict[str, str] = {
    ProviderEnum.LOCAL: DEFAULT_LOCAL_MODEL,
    ProviderEnum.SCRIPTED: "scripted",
}
"""The name of a model without one, for the providers that are not reached over a network."""
_WITHOUT_EFFORT = frozenset({"anthropic", "local", "scripted", "litellm"})


class ProviderSettings(Model):
    """Settings for all models of a provider."""

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
    endpoint: ServerAddress | None = None
    """Base URL; required for Azure, hosted_vllm and litellm_proxy. With `provider: openai`, any
    OpenAI-compatible server works."""
    api_key: SecretStr | None = None
    """API key; by default the provider's environment variable (OPENAI_API_KEY, …)."""
    api_version: NonBlank | None = None
    """Azure API version."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much a reasoning model thinks; such models refuse `temperature`, so write
    `temperature: null` beside it."""
    auth_provider: Literal["api_key"] | None = None
    """How to authenticate: an API key. Without one, `azure_openai` uses Entra ID."""

    @field_validator("auth_provider", mode="before")
    @classmethod
    def _say_what_to_write(cls, value: Any) -> Any:
        if value in _OTHER_AUTHENTICATION:
            raise ValueError(f"found {value!r}; {_OTHER_AUTHENTICATION[value]}")
        return value


class LLMProvider(ProviderSettings):
    """A model and how to reach it."""

    provider: ProviderEnum
    """The provider of the model."""

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Name the default model of a provider."""
        default = _DEFAULT_NAMES.get(str(data.get("provider")))
        return data if default is None else {"name": default, **data}

    @model_validator(mode="after")
    def _has_what_its_provider_needs(self) -> "LLMProvider":
        if not self.name:
            raise ValueError("'name' is missing; write the name of the model")
        facts = PROVIDERS[self.provider]
        if facts.protocol in {"openai", "azure"} and facts.url is None and not self.endpoint:
            raise ValueError(
                f"{self.provider} needs 'endpoint: {facts.endpoint_example}', or the variable"
                f" {facts.endpoint[0]}"
            )
        if self.reasoning_effort is not None and self.protocol in _WITHOUT_EFFORT:
            raise ValueError(f"{self.provider} has no 'reasoning_effort'; remove it")
        if self.provider in _DEFAULT_NAMES and (self.endpoint or self.api_key):
            raise ValueError(
                f"a {self.provider} model has no 'endpoint' and no 'api_key'; remove them"
            )
        return self

    @property
    def label(self) -> str:
        """Provider and name, as reports show them and prices name them."""
        return f"{self.provider.value}/{self.name}"

    @property
    def protocol(self) -> Protocol:
        """How the model is called; a provider of LiteLLM with an endpoint speaks OpenAI's API."""
        protocol = PROVIDERS[self.provider].protocol
        return "openai" if protocol == "litellm" and self.endpoint else protocol
