"""What a provider's own variables give a model that does not say it: key, endpoint, version."""

from collections.abc import Mapping
from typing import Any

from holodeck.models.llm import PROVIDER_VARIABLES, LLMProvider, ProviderEnum

OLLAMA_PORT = 11434


def resolve_api_key(
    provider: ProviderEnum, llm: LLMProvider | None, env: Mapping[str, str]
) -> str | None:
    """The key to use: the model's own, else the provider's variable; None if there is none."""
    if llm is not None and llm.api_key is not None:
        return llm.api_key.get_secret_value()
    return _first_set(PROVIDER_VARIABLES[provider].api_key, env)


def with_provider_variables(model: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """`model` as written, its missing keys taken from the provider's variables."""
    data = dict(model)
    provider = data.get("provider")
    if provider not in list(ProviderEnum):
        return data
    variables = PROVIDER_VARIABLES[ProviderEnum(str(provider))]
    _fill(data, "api_key", _first_set(variables.api_key, env))
    _fill(data, "endpoint", _url(provider, _first_set(variables.endpoint, env)))
    _fill(data, "api_version", _first_set(variables.api_version, env))
    return data


def missing_key_message(model: LLMProvider) -> str | None:
    """What to tell someone whose model needs a key and has none; None if all is well."""
    names = PROVIDER_VARIABLES[model.provider].api_key
    needs_none = not names or (
        model.endpoint is not None and model.provider is not ProviderEnum.AZURE_OPENAI
    )
    if model.api_key is not None or needs_none:
        return None
    return (
        f"there is no API key for {model.provider.value}: set {names[0]}, or write"
        f" 'api_key: ${{{names[0]}}}' under 'model'"
    )


def _first_set(names: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    return next((env[name] for name in names if env.get(name, "").strip()), None)


def _fill(data: dict[str, Any], key: str, value: str | None) -> None:
    if value is not None and data.get(key) is None:
        data[key] = value


def _url(provider: Any, host: str | None) -> str | None:
    """OLLAMA_HOST may be a bare host, and 0.0.0.0 where it tells the server what to listen on."""
    if host is None or provider != ProviderEnum.OLLAMA or "://" in host:
        return host
    name, _, port = host.partition(":")
    return f"http://{'127.0.0.1' if name in ('', '0.0.0.0') else name}:{port or OLLAMA_PORT}"  # noqa: S104
