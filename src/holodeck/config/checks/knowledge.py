"""Static checks of tools that search documents, which import what reads documents."""

from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.programs import require_target
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.knowledge.collect import suffixes_of
from holodeck.lib.knowledge.documents import find_files, is_remote, remote_input
from holodeck.lib.knowledge.embeddings import embedding_llm
from holodeck.lib.knowledge.objects import is_object_source, object_source
from holodeck.models.tools.database import REPLACED, DatabaseConfig, VectorStoreProvider
from holodeck.models.tools.knowledge import KnowledgeTool


def check_knowledge_tool(context: CheckContext, tool: KnowledgeTool, path: KeyPath) -> Tools:
    """Check that the source has files, and that there is an embedding model for them."""
    try:
        if is_remote(tool.source):
            remote_input(tool.source, suffixes_of(tool))
        elif is_object_source(tool.source):
            object_source(tool.source, suffixes_of(tool))
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
    return {tool.name: ["query"]}


def _check_store(context: CheckContext, store: DatabaseConfig, path: KeyPath) -> None:
    """Check that a class is there, and say what is used for a product of existing files."""
    if store.named_class is None:
        used = REPLACED.get(VectorStoreProvider(store.provider))
        if used is not None:
            context.warning(path, f"{str(store.provider)!r} is not used any more, but {used}")
        return
    try:
        folders = context.agent.own_code_folders
        require_target(store.named_class, folders, context.agent.location(*path))
    except ConfigError as error:
        context.error(path, error.message)
