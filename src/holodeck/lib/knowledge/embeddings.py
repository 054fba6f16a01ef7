"""The embedding model of a tool: behind an endpoint, or in this process."""

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.errors import BackendTimeoutError, ConfigError
from holodeck.lib.judging.judges import embedding_model
from holodeck.lib.llm.client import ChatClient, RequestStats
from holodeck.lib.llm.endpoint import Endpoint, ProxyFor, drop_none
from holodeck.lib.llm.errors import malformed_response, no_answer_within
from holodeck.lib.llm.http_connection import Server
from holodeck.lib.llm.limiter import Limiters, time_limit
from holodeck.lib.llm.limits import CallLimits, build_limiters, call_limits
from holodeck.lib.processes.threads import gather_all, run_in_thread
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.token_usage import TokenUsage
from holodeck.models.tools.knowledge import KnowledgeTool

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel

Vector = Sequence[float]

TEXTS_PER_REQUEST = 64
BYTES_PER_REQUEST = 400_000
"""Of the texts in one request: about 100,000 tokens, a third of what OpenAI accepts."""
CONCURRENT_REQUESTS = 4
_LOCAL_BATCH = 16
"""Texts between two chances to stop."""
EMBEDDINGS = "embeddings"


class Embedder(Protocol):
    """A model that computes a vector for each text."""

    @property
    def model(self) -> str:
        """Provider and model."""
        ...

    @property
    def name(self) -> str:
        """Provider, model and length; vectors of one name can be compared."""
        ...

    async def embed(self, texts: Sequence[str], stats: RequestStats) -> list[Vector]:
        """Return the vector of each text; requests are counted in `stats`. Raises BackendError."""
        ...

    async def close(self) -> None:
        """Close what belongs to the running event loop; the model may be used again."""
        ...


class HttpEmbedder:
    """An embedding model behind an endpoint.

    Args:
        llm: The model and its endpoint.
        dimensions: The length of the vectors; None for the model's own.
        limits: Time limits and retries.
        limiters: The limiters of the run.
        proxy_for: Returns the proxy for a URL.

    Raises:
        ConfigError: The key or the endpoint is unusable. Nothing is sent.
    """

    def __init__(
        self,
        llm: LLMProvider,
        dimensions: int | None,
        limits: CallLimits,
        limiters: Limiters,
        proxy_for: ProxyFor | None = None,
    ) -> None:
        self._llm = llm
        self._dimensions = dimensions
        endpoint = _embeddings_endpoint(llm, proxy_for)
        self._client = ChatClient(
            endpoint, llm.name, limits, limiters, kind=EMBEDDINGS, operation=EMBEDDINGS
        )

    @property
    def model(self) -> str:
        """Provider and model."""
        return self._llm.label

    @property
    def name(self) -> str:
        """Provider, model and length."""
        return self.model if self._dimensions is None else f"{self.model} {self._dimensions}"

    async def embed(self, texts: Sequence[str], stats: RequestStats) -> list[Vector]:
        """Return the vector of each text; requests are counted in `stats`. Raises RequestError."""
        slots = asyncio.Semaphore(CONCURRENT_REQUESTS)

        async def send(batch: Sequence[str]) -> list[Vector]:
            async with slots:
                return await self._embed(batch, stats)

        return list(chain.from_iterable(await gather_all(map(send, split_batches(texts)))))

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    async def _embed(self, texts: Sequence[str], stats: RequestStats) -> list[Vector]:
        body = {"model": self._llm.name, "input": list(texts), "dimensions": self._dimensions}
        parse = partial(self._parse, len(texts))
        answer = await self._client.send(json.dumps(drop_none(body)), parse, stats)
        return answer.vectors

    def _parse(self, count: int, body: bytes) -> "_Embeddings":
        """Return the vectors in a response, all of one length. Raises RequestError."""
        parse = parse_ollama if self._llm.protocol == "ollama" else parse_openai
        vectors, tokens = parse_embeddings(body, parse, count)
        lengths = {len(vector) for vector in vectors}
        if len(lengths) != 1 or self._dimensions not in {None, *lengths}:
            shown = " and ".join(map(str, sorted(lengths)))
            wanted = "one length" if self._dimensions is None else f"length {self._dimensions}"
            raise malformed_response(f"has vectors of length {shown} instead of {wanted}", body)
        return _Embeddings(vectors, TokenUsage.of(tokens, 0))


@dataclass(frozen=True)
class _Embeddings:
    vectors: list[Vector]
    usage: TokenUsage


def _embeddings_endpoint(llm: LLMProvider, proxy_for: ProxyFor | None) -> Endpoint:
    """Return where the embeddings of a model are requested. Raises ConfigError."""
    chat = Endpoint.of(llm, proxy_for)
    before, _, after = chat.server.url.rpartition("/chat/completions")
    if llm.protocol == "ollama":
        url = f"{before.removesuffix('/v1')}/api/embed"
    else:
        url = f"{before}/embeddings{after}"
    return replace(chat, server=Server(url, chat.server.proxy))


def split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the texts in batches for one request each."""
    start = size = 0
    for index, text in enumerate(texts):
        length = len(text.encode(errors="replace"))
        is_full = index - start == TEXTS_PER_REQUEST or size + length > BYTES_PER_REQUEST
        if is_full and index > start:
            yield texts[start:index]
            start, size = index, 0
        size += length
    if start < len(texts):
        yield texts[start:]


Parse = Callable[[Mapping[str, Any]], tuple[Any, Any]]
"""Returns the vectors and the number of tokens in the JSON of a response."""


def parse_openai(document: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a response of OpenAI or Azure holds. Raises KeyError, TypeError."""
    data = sorted(document["data"], key=lambda entry: entry["index"])
    return [entry["embedding"] for entry in data], (document.get("usage") or {}).get(
        "prompt_tokens"
    )


def parse_ollama(document: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a response of Ollama holds. Raises KeyError."""
    return document["embeddings"], document.get("prompt_eval_count")


def parse_embeddings(body: bytes, parse: Parse, count: int) -> tuple[list[Vector], int]:
    """Return vectors and tokens in the body of a response; 0 if the tokens are unknown.

    Raises RequestError if there are not exactly `count` vectors of finite numbers.
    """
    try:
        vectors, tokens = parse(json.loads(body))
        numbers = [[float(number) for number in vector] for vector in vectors]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise malformed_response("does not contain embeddings", body) from error
    if len(numbers) != count:
        raise malformed_response(f"has {len(numbers)} embeddings for {count} texts", body)
    if not all(vector and math.isfinite(math.fsum(vector)) for vector in numbers):
        raise malformed_response("has embeddings that are empty or not finite", body)
    return list(numbers), tokens if isinstance(tokens, int) and tokens > 0 else 0


class LocalEmbedder:
    """An embedding model in this process.

    Args:
        label: The name of the model.
        load: Returns the model; may block and download it.
        timeout: Seconds for the vectors of a few texts; None for no limit.
    """

    def __init__(
        self, label: str, load: "Callable[[], EmbeddingModel]", timeout: float | None = None
    ) -> None:
        self.model = self.name = f"local/{label}"
        self._load = load
        self._timeout = timeout
        self._loaded: EmbeddingModel | None = None

    async def embed(self, texts: Sequence[str], stats: RequestStats) -> list[Vector]:  # noqa: ARG002 - no requests
        """Return the vector of each text.

        Raises ModelStoreError, MissingExtra, EvaluationError and BackendTimeoutError.
        """
        if self._loaded is None:
            self._loaded = await run_in_thread(self._load, "holodeck-embeddings")
        vectors: list[Vector] = []
        for start in range(0, len(texts), _LOCAL_BATCH):
            batch = partial(self._loaded.embed, texts[start : start + _LOCAL_BATCH])
            limit = time_limit(self._timeout)
            try:
                async with limit:
                    vectors += await run_in_thread(batch, "holodeck-embeddings")
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise BackendTimeoutError(no_answer_within(self._timeout)) from error
        return vectors

    async def close(self) -> None:
        """Do nothing: the process shares the model."""


class NoEmbedder:
    """Stands in where only keywords are searched: every text has the same vector."""

    model = name = "none"

    async def embed(self, texts: Sequence[str], stats: RequestStats) -> list[Vector]:  # noqa: ARG002 - no requests
        """Return a vector of one number for each text."""
        return [(1.0,) for _ in texts]

    async def close(self) -> None:
        """Do nothing."""


LOCAL_MODEL = "all-minilm-l6-v2"
DEFAULT_MODELS = {
    ProviderEnum.OPENAI: "text-embedding-3-small",
    ProviderEnum.AZURE_OPENAI: "text-embedding-3-small",
    ProviderEnum.OLLAMA: "nomic-embed-text:latest",
    ProviderEnum.GEMINI: "gemini-embedding-001",
    ProviderEnum.MISTRAL: "mistral-embed",
}
"""The embedding model for agents of these providers; for Azure the name of the deployment."""
_WITHOUT_EMBEDDINGS = frozenset({"anthropic", "local", "scripted", "litellm"})
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
        is_offline = bool(execution and execution.offline)
        load = partial(embedding_model, is_offline=is_offline)
        return LocalEmbedder(LOCAL_MODEL, load, limits.timeout)
    limiters = build_limiters(execution)
    try:
        return HttpEmbedder(llm, dimensions, limits, limiters, proxy_for)
    except ConfigError as error:
        raise ConfigError(location, f"embeddings with {llm.name}: {error}") from error
