"""Static checks of tools that search documents, which import what reads documents."""

from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.programs import require_target
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError, HoloDeckError, MissingExtra
from holodeck.lib.evaluators.build import is_installed
from holodeck.lib.knowledge.collect import suffixes_of
from holodeck.lib.knowledge.documents import find_files, is_remote, remote_input
from holodeck.lib.knowledge.embeddings import embedding_llm
from holodeck.lib.knowledge.objects import EXTRAS, is_object_source, object_source
from holodeck.models.tools.knowledge import (
    REPLACED,
    DatabaseConfig,
    HierarchicalDocumentTool,
    KnowledgeTool,
    VectorStoreProvider,
)

_LIBRARIES = {
    "azure-ai-search": ("azure-ai-search", "azure.search.documents"),
    "azure-blob": ("azure-blob", "adlfs"),
    "azure-cosmos-mongo": ("azure-cosmos", "pymongo"),
    "azure-cosmos-nosql": ("azure-cosmos", "azure.cosmos"),
    "chromadb": ("chroma", "chromadb"),
    "opensearch": ("opensearch", "opensearchpy"),
    "pinecone": ("pinecone", "pinecone"),
    "postgres": ("postgres", "psycopg"),
    "qdrant": ("qdrant", "qdrant_client"),
    "s3": ("s3", "s3fs"),
    "sql-server": ("sql-server", "pyodbc"),
    "weaviate": ("weaviate", "weaviate"),
}
"""Product → the extra that it needs, and the module that is there with it."""


def check_knowledge_tool(context: CheckContext, tool: KnowledgeTool, path: KeyPath) -> Tools:
    """Check that the source has files, and that there is an embedding model for them."""
    try:
        if is_remote(tool.source):
            remote_input(tool.source, suffixes_of(tool))
        elif is_object_source(tool.source):
            place = object_source(tool.source, suffixes_of(tool))
            _check_library(context, EXTRAS[place.scheme], (*path, "source"))
        else:
            find_files(tool.source, context.agent.own_dir, suffixes_of(tool))
    except HoloDeckError as error:
        context.error((*path, "source"), str(error))
    try:
        embedding_llm(tool, context.agent)
    except ConfigError as error:
        key = error.field.rpartition(".")[2]
        is_shared = error.field.startswith("embedding_provider")
        context.error(("embedding_provider",) if is_shared else (*path, key), error.message)
    if isinstance(tool.database, DatabaseConfig):
        _check_store(context, tool.database, (*path, "database", "provider"))
    if isinstance(tool, HierarchicalDocumentTool) and tool.keyword_index is not None:
        _check_library(context, tool.keyword_index.provider, (*path, "keyword_index", "provider"))
    return {tool.name: ["query"]}


def _check_store(context: CheckContext, store: DatabaseConfig, path: KeyPath) -> None:
    """Check that a class is there, and say what is used for a product of existing files."""
    if store.named_class is None:
        used = REPLACED.get(VectorStoreProvider(store.provider))
        if used is not None:
            context.warning(path, f"{str(store.provider)!r} is not used any more, but {used}")
        _check_library(context, str(store.provider), path)
        return
    with context.reporting(path):
        require_target(store.named_class, context.agent.own_code_folders, "")


def _check_library(context: CheckContext, product: str, path: KeyPath) -> None:
    """Report the extra that a product needs, if it is not installed."""
    extra, module = _LIBRARIES.get(product, (None, ""))
    if extra is not None and not is_installed(module):
        context.config_error(path, MissingExtra(extra, product))
