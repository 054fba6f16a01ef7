"""The direct backend for an agent.yaml."""

from holodeck.config.environment import proxy_for
from holodeck.config.instructions import instructions_text
from holodeck.config.response_format import response_schema
from holodeck.errors import ConfigError
from holodeck.lib.backends.chat.backend import ChatBackend
from holodeck.lib.tools.function import load_function_tool
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig


def chat_backend(agent: Agent, execution: ExecutionConfig | None = None) -> ChatBackend:
    """The backend with the agent's model, instructions, tools and format. Raises ConfigError."""
    if agent.model is None:
        raise ConfigError("model", "is missing, and 'backend: chat' needs one")
    return ChatBackend(
        agent.model,
        instructions_text(agent),
        [load_function_tool(tool, agent.base_dir) for tool in agent.tools or []],
        response_schema(agent),
        execution,
        proxy_for,
    )
