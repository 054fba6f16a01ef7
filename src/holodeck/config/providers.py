"""What variables and `config.yaml` add to an agent: keys of its models, vector stores by name."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean, quote
from holodeck.models.config import GlobalConfig
from holodeck.models.llm import PROVIDERS, LLMProvider, ProviderEnum, ollama_url
from holodeck.models.tools.knowledge import ALIASES, VectorStoreProvider, VectorStoreSettings

if TYPE_CHECKING:
    from holodeck.config.yaml.source import Locations


def with_provider_variables(model: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a `model`, its missing keys taken from the provider's variables."""
    provider = model.get("provider")
    if provider not in list(ProviderEnum):
        return dict(model)
    variables = PROVIDERS[ProviderEnum(str(provider))]
    endpoint = _first_set(variables.endpoint, env)
    if endpoint is not None and provider == ProviderEnum.OLLAMA:
        endpoint = ollama_url(endpoint)
    values = {
        "api_key": _first_set(variables.api_key, env),
        "endpoint": endpoint,
        "api_version": _first_set(variables.api_version, env),
    }
    missing = {key: value for key, value in values.items() if model.get(key) is None}
    return {**model, **{key: value for key, value in missing.items() if value is not None}}


def missing_key_message(model: LLMProvider) -> str | None:
    """Return an error message if the model needs an API key and has none, else None."""
    names = PROVIDERS[model.provider].api_key
    # Without a key, Azure takes a token of Entra ID.
    needs_none = not names or model.endpoint is not None or model.protocol == "azure"
    if model.api_key is not None or needs_none:
        return None
    return (
        f"missing API key for {model.provider.value}: set {' or '.join(names)}, or write"
        f" 'api_key: ${{{names[0]}}}' under 'model'"
    )


def _first_set(names: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    return next((env[name] for name in names if env.get(name, "").strip()), None)


_AGENT_MODELS = (
    ("model",),
    ("embedding_provider",),
    ("evaluations", "model"),
    ("evaluations", "metrics", "[]", "model"),
    ("tools", "[]", "model"),
    ("tools", "[]", "context_model"),
    ("tools", "[]", "reranker_model"),
)
_CASE_MODELS = (
    ("simulate", "model"),
    *(
        (*path, key, "[]", "model")
        for path in ((), ("turns", "[]"), ("script", "[]", "check"))
        for key in ("evaluations", "scorers")
    ),
)
"""Where models stand in an agent.yaml and in its test cases; `[]` is every item of a list."""


def with_models(
    agent: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the values of an agent.yaml with `change` applied to every model in it."""
    changed: Any = dict(agent)
    for path in _AGENT_MODELS:
        changed = _update(changed, path, change)
    cases = changed.get("test_cases")
    if isinstance(cases, list):
        for path in _CASE_MODELS:
            cases = [_update(case, path, change) for case in cases]
        changed = {**changed, "test_cases": cases}
    return dict(changed)


def _update(value: Any, path: tuple[str, ...], change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return `value` with `change` applied to the mappings at `path`; `value` if there are none."""
    if not path:
        return change(value) if isinstance(value, dict) else value
    key, rest = path[0], path[1:]
    if key == "[]":
        items = value if isinstance(value, list) else []
        changed = [_update(item, rest, change) for item in items]
        is_same = all(new is item for new, item in zip(changed, items, strict=True))
        return value if is_same else changed
    if not isinstance(value, dict) or key not in value:
        return value
    part = _update(value[key], rest, change)
    return value if part is value[key] else {**value, key: part}


def with_provider_settings(model: dict[str, Any], shared: GlobalConfig) -> dict[str, Any]:
    """Return the values of a `model`, its missing keys taken from `providers` of config.yaml."""
    name = model.get("provider")
    providers = shared.providers or {}
    of_same_kind = (provider for provider in providers.values() if provider.provider == name)
    provider = providers.get(str(name)) or next(of_same_kind, None)
    if provider is None:
        return model
    known = {key: getattr(provider, key) for key in provider.model_fields_set}
    return {**known, **model, "provider": name}


def merge_shared(user: GlobalConfig, project: GlobalConfig) -> GlobalConfig:
    """Return the providers and vector stores of both configurations; those of the project win."""
    merged = dict(user.providers or {})
    for name, own in (project.providers or {}).items():
        known = {key: getattr(own, key) for key in own.model_fields_set}
        merged[name] = merged[name].model_copy(update=known) if name in merged else own
    stores = {**(user.vectorstores or {}), **(project.vectorstores or {})}
    return GlobalConfig(providers=merged, vectorstores=stores or None)


_TOOL_TYPES = ("vectorstore", "hierarchical_document")


def with_vector_stores(
    agent: dict[str, Any],
    shared: GlobalConfig | None,
    locations: "Locations",
    problems: list[ConfigError],
) -> dict[str, Any]:
    """Return the values of an agent.yaml with the stores of config.yaml in place of their names.

    Unknown names are added to `problems`, unless an error of a config.yaml is there already: that
    file may have them.
    """
    tools = agent.get("tools")
    if not isinstance(tools, list):
        return agent
    known = (shared.vectorstores if shared else None) or {}
    is_complete = not problems
    resolved = []
    for index, tool in enumerate(tools):
        is_search = isinstance(tool, dict) and tool.get("type") in _TOOL_TYPES
        name = tool.get("database") if is_search else None
        if isinstance(name, str) and name in known:
            resolved.append({**tool, "database": known[name]})
            continue
        if isinstance(name, str) and is_complete:
            origin = locations.origin(("tools", index, "database"))
            problems.append(origin.error(_unknown_store(name, known)))
        resolved.append(tool)
    return {**agent, "tools": resolved}


def _unknown_store(name: str, known: Mapping[str, VectorStoreSettings]) -> str:
    message = f"unknown vector store {quote(name)}"
    if known:
        return message + did_you_mean(name, known, f"; config.yaml has {', '.join(known)}")
    if name in {*VectorStoreProvider, *ALIASES}:
        return f"{message}; a product is written as a mapping: 'database: {{provider: {name}}}'"
    return f"{message}; name it under 'vectorstores' in a config.yaml beside the agent.yaml"
