"""What a tool's settings mean: how its documents are split, and how they are searched."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holodeck.lib.knowledge.chunking import Passage, Section, chunk_sections
from holodeck.lib.knowledge.reranking import candidates_for
from holodeck.lib.knowledge.search import SearchSettings
from holodeck.models.agent import Agent
from holodeck.models.tools.knowledge import HierarchicalDocumentTool, KnowledgeTool, VectorstoreTool


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
        # Imported here because few tools are of this type.
        from holodeck.lib.knowledge.hierarchical import split_document  # noqa: PLC0415

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
    named = None if model is None else f"{model.provider.value}/{model.name}"
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
