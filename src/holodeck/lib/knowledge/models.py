"""The embedding model of a tool: that of the agent's provider, another, or the embedded one."""

from functools import partial

from holodeck.errors import ConfigError
from holodeck.lib.knowledge.embeddings import Embedder, HttpEmbedder, LocalEmbedder
from holodeck.lib.llm.endpoint import ProxyFor
from holodeck.lib.llm.limits import build_limiters, call_limits
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.tools.knowledge import KnowledgeTool

LOCAL_MODEL = "all-minilm-l6-v2"
DEFAULT_MODELS = {
    ProviderEnum.OPENAI: "text-embedding-3-small",
    ProviderEnum.AZURE_OPENAI: "text-embedding-3-small",
    ProviderEnum.OLLAMA: "nomic-embed-text:latest",
    ProviderEnum.GEMINI: "gemini-embedding-001",
    ProviderEnum.MISTRAL: "mistral-embed",
}
"""The embedding model for agents of these providers; for Azure the name of the deployment."""
_WITHOUT_EMBEDDINGS = frozenset({"anthropic", "local", "litellm"})
"""Protocols that holodeck requests no embeddings with."""


def embedding_llm(config: KnowledgeTool, agent: Agent) -> LLMProvider | None:
    """Return the embedding model of a tool; None for the embedded one. Raises ConfigError."""
    given = agent.embedding_provider
    if given is not None:
        return _given_llm(config.embedding_model, given)
    own = agent.model
    location = f"tools.{config.name}.embedding_model"
    if own is None or own.protocol in _WITHOUT_EMBEDDINGS:
        if config.embedding_model in {None, LOCAL_MODEL}:
            return None
        provider = "the agent" if own is None else f"the provider {own.provider.value!r}"
        raise ConfigError(
            location,
            f"{provider} has no embedding models; write 'embedding_provider', or remove the key to"
            f" use the embedded {LOCAL_MODEL}",
        )
    name = config.embedding_model or DEFAULT_MODELS.get(own.provider)
    if name is None:
        raise ConfigError(
            location,
            f"is missing, and the provider {own.provider.value!r} has no default; write it, or"
            " 'embedding_provider: {provider: local}' for the embedded model",
        )
    return own.model_copy(update={"name": name})


def filtering_llm(agent: Agent) -> LLMProvider | None:
    """Return the embedding model that tools are filtered with; None for the embedded one.

    It is that of `embedding_provider`, else that of the first tool with an `embedding_model`.
    Raises ConfigError.
    """
    searches = [tool for tool in agent.tools or () if isinstance(tool, KnowledgeTool)]
    naming = [search for search in searches if search.embedding_model is not None]
    if naming:
        return embedding_llm(naming[0], agent)
    given = agent.embedding_provider
    return None if given is None else _given_llm(None, given)


def _given_llm(name: str | None, given: LLMProvider) -> LLMProvider | None:
    if given.provider is ProviderEnum.LOCAL:
        return None
    if given.protocol in _WITHOUT_EMBEDDINGS:
        raise ConfigError(
            "embedding_provider.provider",
            f"holodeck cannot request embeddings from {given.provider.value!r}; write another"
            " provider, such as openai, ollama or local",
        )
    return given.model_copy(update={"name": name or given.name})


def build_embedder(
    config: KnowledgeTool,
    agent: Agent,
    execution: ExecutionConfig | None,
    proxy_for: ProxyFor | None,
) -> Embedder:
    """Return the embedding model of a tool. Raises ConfigError; nothing is sent or downloaded."""
    llm, location = embedding_llm(config, agent), f"tools.{config.name}"
    return _embedder(llm, config.embedding_dimensions, location, execution, proxy_for)


def build_filter_embedder(
    agent: Agent, execution: ExecutionConfig | None, proxy_for: ProxyFor | None
) -> Embedder:
    """Return the embedding model that tools are filtered with. Raises ConfigError, as above."""
    return _embedder(filtering_llm(agent), None, "tool_filtering", execution, proxy_for)


def _embedder(
    llm: LLMProvider | None,
    dimensions: int | None,
    location: str,
    execution: ExecutionConfig | None,
    proxy_for: ProxyFor | None,
) -> Embedder:
    limits = call_limits(execution)
    if llm is None:
        # Imported here because most agents use a model behind an endpoint.
        from holodeck.lib.judging.judge import embedding_model  # noqa: PLC0415

        is_offline = bool(execution and execution.offline)
        load = partial(embedding_model, is_offline=is_offline)
        return LocalEmbedder(LOCAL_MODEL, load, limits.timeout)
    limiters = build_limiters(execution)
    try:
        return HttpEmbedder(llm, dimensions, limits, limiters, proxy_for)
    except ConfigError as error:
        raise ConfigError(location, f"embeddings with {llm.name}: {error}") from error
