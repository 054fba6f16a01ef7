"""Static checks of tools with a prompt and of tools that search documents."""

from holodeck.config.agent_files import read_tool_prompt
from holodeck.config.checks.agent import check_model, warn_of_front_matter
from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.python_files import require_target
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.knowledge.collect import suffixes_of
from holodeck.lib.knowledge.documents import find_files, is_remote, remote_input
from holodeck.lib.knowledge.embeddings import embedding_llm
from holodeck.lib.knowledge.objects import is_object_source, object_source
from holodeck.lib.tools.prompt import PromptTemplate
from holodeck.models.tool import PromptTool
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
        require_target(store.named_class, context.agent.own_dir, context.agent.location(*path))
    except ConfigError as error:
        context.error(path, error.message)


def check_prompt_tool(context: CheckContext, tool: PromptTool, path: KeyPath) -> Tools:
    """Check the prompt and the model; return the names of the parameters."""
    key = "template" if tool.file is None else "file"
    try:
        prompt = read_tool_prompt(context.agent, tool)
        PromptTemplate.of(prompt.text, tool.parameters, "")
        warn_of_front_matter(context, prompt, (*path, key))
    except ConfigError as error:
        context.config_error((*path, key), error)
    if tool.model is not None:
        check_model(context, tool.model, (*path, "model"))
    return {tool.name: list(tool.parameters)}
