"""The tools `vectorstore` and `hierarchical_document`: documents that an agent can search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, ConfigError, HoloDeckError, MissingExtra
from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.judging.judges import Judges
from holodeck.lib.knowledge.chunking import Links, Passage, Section, chunk_sections, split_document
from holodeck.lib.knowledge.collect import collect_documents, suffixes_of
from holodeck.lib.knowledge.documents import Document, digest_of
from holodeck.lib.knowledge.embeddings import Embedder, NoEmbedder, build_embedder
from holodeck.lib.knowledge.ingestion import ContextWriter, Ingestion, exclusive_ingestion
from holodeck.lib.knowledge.objects import StoredObject, fetch_objects, is_object_source
from holodeck.lib.knowledge.opensearch import OpenSearchIndex
from holodeck.lib.knowledge.search import (
    ChunkIndex,
    Reranker,
    SearchSettings,
    candidates_for,
    format_hits,
    passage_of,
    search,
)
from holodeck.lib.knowledge.stores.base import VectorStore
from holodeck.lib.knowledge.stores.collection import open_store
from holodeck.lib.llm.client import RequestStats
from holodeck.lib.llm.model import ChatModel
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.json_schemas import object_schema
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.tools.base import Tool, ToolArgumentError, ToolReply
from holodeck.lib.tools.toolbox import ToolContext
from holodeck.lib.ui.live import IngestionProgress
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.results.outcome import ModelCost
from holodeck.models.token_usage import UsageMeter
from holodeck.models.tools.knowledge import (
    DatabaseConfig,
    HierarchicalDocumentTool,
    KnowledgeTool,
    VectorstoreTool,
)


@dataclass(frozen=True)
class Plan:
    """How the documents of a tool are split and searched."""

    split: Callable[[list[Section]], list[Passage]]
    """Returns the chunks of a document; may block."""
    settings: Mapping[str, Any]
    """The settings that the chunks depend on, as JSON."""
    search: SearchSettings
    """How chunks are found, before a model reranks them."""


def plan_of(config: KnowledgeTool, agent: Agent) -> Plan:
    """Return the plan of a tool."""
    if isinstance(config, HierarchicalDocumentTool):
        split = partial(split_document, config)
        return Plan(split, _structure_of(config, agent), _ranking_of(config))
    if not isinstance(config, VectorstoreTool):
        raise TypeError(f"{type(config).__name__} is no tool that searches documents")

    def split_text(sections: list[Section]) -> list[Passage]:
        return list(chunk_sections(sections, config.size, config.overlap))

    settings = {"chunk_size": config.size, "chunk_overlap": config.overlap}
    return Plan(split_text, settings, SearchSettings(config.top_k, config.min_similarity_score))


_STRUCTURE = (
    *("chunking_strategy", "max_chunk_tokens", "chunk_overlap", "document_domain"),
    *("max_subsection_depth", "extract_definitions", "extract_cross_references"),
)


def _structure_of(config: HierarchicalDocumentTool, agent: Agent) -> dict[str, Any]:
    settings = {name: getattr(config, name) for name in _STRUCTURE}
    if not config.contextual_embeddings:
        return settings
    model = config.context_model or agent.model
    named = None if model is None else model.label
    return {**settings, "context": [named, config.context_max_tokens]}


def _ranking_of(config: HierarchicalDocumentTool) -> SearchSettings:
    is_reranked = config.enable_reranking
    return SearchSettings(
        top_k=candidates_for(config.top_k) if is_reranked else config.top_k,
        min_score=None if is_reranked else config.min_score,
        mode=config.search_mode,
        semantic_weight=config.semantic_weight,
        keyword_weight=config.keyword_weight,
        exact_weight=config.exact_weight,
        rrf_k=config.rrf_k,
    )


DEFAULT_FILE_TIMEOUT_S = 30.0
_PARAMETERS = object_schema(query={"type": "string", "description": "What to search for."})
_PROBE = "How long are the vectors?"


class KnowledgeSource:
    """The documents of a tool, brought up to date once per run and searched by every case.

    Args:
        config: The tool.
        context: The agent and its settings.

    Raises:
        ConfigError: The embedding model cannot be used. Nothing is sent or read.
    """

    def __init__(self, config: KnowledgeTool, context: ToolContext) -> None:
        self._config = config
        self._context = context
        self._execution = context.execution or ExecutionConfig()
        self._plan = plan_of(config, context.agent)
        self._embedder: Embedder = (
            NoEmbedder()
            if self._plan.search.mode == "keyword"
            else build_embedder(config, context.agent, context.execution, context.proxy_for)
        )
        self._prepared = UsageMeter()
        """What the requests of the last `open` took."""
        self._store: VectorStore | None = None
        self._index: ChunkIndex | None = None
        self._keywords: OpenSearchIndex | None = None
        self._links: Links | None = None
        self._contexts: ContextWriter | None = None
        self._reranker = self._build_reranker()

    async def open(self) -> Sequence[Tool]:
        """Return the tool, once its documents are in the store.

        Raises ConfigError for the source, BackendInitError for the model and the store.
        """
        base_dir, objects = self._context.base_dir, None
        if is_object_source(self._config.source):
            objects = (self._folder / "objects" / digest_of(self._config.source)[:32]).absolute()
        processor = FileProcessor.from_execution_config(
            self._execution, base_dir=objects or base_dir
        )
        try:
            stored = None if objects is None else await self._fetch_objects(objects)
            collect = partial(collect_documents, self._config, base_dir, processor, stored)
            documents = await run_in_thread(collect, "holodeck-documents")
            await self._ingest(documents)
        except (ConfigError, BackendInitError):
            raise
        except HoloDeckError as error:
            raise BackendInitError(f"tools.{self._config.name}: {error}") from error
        finally:
            processor.close()
        tool = Tool(
            name=self._config.name,
            description=self._config.description or f"Searches {self._config.source}.",
            parameters=_PARAMETERS,
            call=self._search,
            check=_query_in,
            source=self._config.type,
        )
        return [tool]

    async def _fetch_objects(self, folder: Path) -> list[StoredObject]:
        """Return the objects of the source, once they are on this machine. Raises ConfigError."""
        limit = self._execution.download_timeout
        fetch = partial(
            fetch_objects,
            self._config.source,
            suffixes_of(self._config),
            folder,
            self._context.read_variables(),
            DEFAULT_FILE_TIMEOUT_S if limit is None else limit,
        )
        try:
            return await run_in_thread(fetch, "holodeck-documents")
        except OSError as error:
            raise ConfigError(str(folder), f"cannot be written: {error.strerror}") from error
        except MissingExtra:
            raise
        except ConfigError as error:
            raise ConfigError(f"tools.{self._config.name}.source", str(error)) from error

    async def close(self) -> None:
        """Close the store and the connections to the model."""
        store, self._store = self._store, None
        contexts, self._contexts = self._contexts, None
        for part in (store, contexts, self._reranker):
            if part is not None:
                await part.close()
        if self._keywords is not None:
            self._keywords.close()
        await self._embedder.close()

    async def _ingest(self, documents: Sequence[Document]) -> None:
        stats = RequestStats()
        self._prepared = stats.meter
        length = self._config.embedding_dimensions
        [probe] = await self._embedder.embed([_PROBE], stats)
        if length is not None and len(probe) != length:
            raise ConfigError(
                f"tools.{self._config.name}.embedding_dimensions",
                f"is {length}, but the vectors of {self._embedder.name} have {len(probe)}",
            )
        collection = self._collection(len(probe))
        folders = self._context.agent.own_code_folders
        store = open_store(self._database(), collection, self._folder, folders)
        self._store = store
        lock = self._folder / "vectorstores" / f"{collection}.ingestion"
        async with exclusive_ingestion(lock, self._config.name):
            is_forced = self._context.force_ingest or bool(self._execution.force_ingest)
            await store.open(len(probe), empty=is_forced)
            await self._ingestion(store, stats).run(documents)
            await self._index_chunks(store, collection)

    async def _index_chunks(self, store: VectorStore, collection: str) -> None:
        """Read all chunks, if keywords or links need them."""
        config = self._config
        if not isinstance(config, HierarchicalDocumentTool):
            return
        has_links = config.extract_definitions or config.extract_cross_references
        chunks = await store.texts() if has_links or config.search_mode != "semantic" else []
        if config.search_mode != "semantic":
            index = config.keyword_index
            if index is not None and index.provider == "opensearch":
                self._keywords = OpenSearchIndex(index, collection)
            keywords = self._keywords
            build = partial(ChunkIndex, chunks, keywords)
            self._index = await run_in_thread(build, "holodeck-documents")
            if keywords is not None:
                await keywords.build(self._index.texts)
        if has_links:
            self._links = Links.of(chunks)

    def _build_reranker(self) -> Reranker | None:
        config = self._config
        if not isinstance(config, HierarchicalDocumentTool) or not config.enable_reranking:
            return None
        model = self._model(config.reranker_model, "reranker")
        if model is None:
            raise ConfigError(
                f"tools.{config.name}.reranker_model",
                "is missing, and the agent has no model; write it, or remove 'enable_reranking'",
            )
        return Reranker(model, config.top_k, config.min_score)

    def _context_writer(self) -> ContextWriter | None:
        config = self._config
        if not isinstance(config, HierarchicalDocumentTool) or not config.contextual_embeddings:
            return None
        model = self._model(config.context_model, "contexts")
        if model is None:
            return None
        return ContextWriter(model, config.context_max_tokens, config.context_concurrency)

    def _model(self, llm: LLMProvider | None, kind: str) -> ChatModel | None:
        """Return a model for one kind of work, by default that of the agent, if it has one."""
        judges = Judges(self._context.execution, self._context.base_dir)
        wanted = llm or self._context.agent.model
        return None if wanted is None else judges.model(wanted, kind, is_agents_own=llm is None)

    def _ingestion(self, store: VectorStore, stats: RequestStats) -> Ingestion:
        timeout, progress = self._execution.file_timeout, IngestionProgress()
        self._contexts = self._context_writer()
        return Ingestion(
            tool=self._config.name,
            store=store,
            embedder=self._embedder,
            split=self._plan.split,
            settings=self._plan.settings,
            timeout=DEFAULT_FILE_TIMEOUT_S if timeout is None else timeout,
            progress=progress,
            report=progress.finish,
            add_context=None if self._contexts is None else self._contexts.add,
            stats=stats,
        )

    @property
    def _folder(self) -> Path:
        """The folder of the embedded store and the locks."""
        base_dir = self._context.base_dir
        return self._context.cache_dir or written_path(".holodeck", base_dir, "tools")

    def _database(self) -> DatabaseConfig | None:
        database = self._config.database
        if isinstance(database, str):  # the loader replaces the names of a file
            raise ConfigError(
                f"tools.{self._config.name}.database",
                f"{database!r} names a vector store of a config.yaml, and none was read",
            )
        return database

    def _collection(self, length: int) -> str:
        """Return the name of the collection: other models and other sources have other ones.

        In the cache of a machine, agents of other folders have other ones, too; in a database that
        machines share, those of the same agent share one.
        """
        agent, config = self._context.agent, self._config
        folder = None if config.database is not None else str(self._context.base_dir.resolve())
        parts = [agent.name, folder, config.source, self._embedder.name, length]
        return f"{config.name[:40]}_{digest_of(parts)[:12]}"

    @property
    def preparation_costs(self) -> Sequence[ModelCost]:
        """What embeddings and contexts of the documents cost when it was opened, by model."""
        meter, own = self._prepared, self._embedder.model
        labels = {own.partition("/")[2]: own}
        costs = [
            ModelCost(model=labels.get(name, name), calls=1, tokens=usage)
            for name, usage in meter.by_model.items()
        ]
        if meter.unmetered:
            costs.append(ModelCost(model=own, calls=1))
        left = meter.requests - len(costs)
        if left > 0:
            costs.append(ModelCost(calls=left, failed=left))  # their tokens are in the others
        return costs

    def _cost(self, meter: UsageMeter) -> ModelCost | None:
        """Return what the models of a search cost; None for one in this process."""
        if not meter.requests:
            return None
        model = self._embedder.model if self._reranker is None else None
        return ModelCost(model=model, calls=meter.requests, failed=meter.failed, tokens=meter.usage)

    async def _search(self, arguments: dict[str, Any]) -> ToolReply:
        query = _query_in(arguments)
        if self._store is None:
            raise BackendInitError(f"tools.{self._config.name}: is closed")
        stats = RequestStats()
        [vector] = await self._embedder.embed([query], stats)
        hits = await search(query, vector, self._store, self._index, self._plan.search)
        if self._reranker is not None:
            try:
                hits = await self._reranker.rerank(query, hits, stats)
            except HoloDeckError as error:
                cost = self._cost(stats.meter)
                return ToolReply(f"reranking: {error}", is_error=True, model_cost=cost)
        links = self._links
        passages = tuple(passage_of(hit, links.notes(hit) if links else ()) for hit in hits)
        return ToolReply(
            text=format_hits(query, hits, passages),
            passages=passages,
            model_cost=self._cost(stats.meter),
        )


def _query_in(arguments: dict[str, Any]) -> str:
    """Return the query of a call. Raises ToolArgumentError."""
    query = arguments.get("query")
    others = sorted(arguments.keys() - {"query"})
    if others:
        raise ToolArgumentError(f"{others[0]} is not an argument; it takes query")
    if not isinstance(query, str) or not query.strip():
        raise ToolArgumentError("query is missing; it is the text to search for")
    return query
