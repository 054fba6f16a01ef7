"""Checks of prompts: those of tools, and the instructions."""

from holodeck.config.agent_files import read_tool_prompt
from holodeck.config.check import check_model, warn_of_front_matter
from holodeck.config.findings import CheckContext, Tools
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.tools.prompt import PromptTemplate
from holodeck.models.tools.prompt import PromptTool


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
