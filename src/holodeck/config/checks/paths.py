"""Find paths that a run would write outside of the agent's folder."""

from typing import Any

from holodeck.config.checks.findings import CheckContext
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import written_path
from holodeck.models.agent import Agent
from holodeck.models.base import PathUse, paths_used
from holodeck.models.tools.database import DatabaseConfig

_CHECKED_ELSEWHERE = ("execution", "test_cases")
"""`resolve_settings` checks the settings; a case names no such path, and there may be many."""


def check_written_paths(context: CheckContext) -> None:
    """Find them in every key of an agent."""
    agent = context.agent
    others = {key: value for key, value in vars(agent).items() if key not in _CHECKED_ELSEWHERE}
    for keys, path in paths_used(others, PathUse.WRITTEN):
        if _is_users_store(agent, keys):
            continue
        folder = agent.own_dir if keys[0] == "tools" else agent.base_dir
        try:
            written_path(path, folder, "")
        except ConfigError as error:
            context.config_error(keys, error)


def _is_users_store(agent: Agent, keys: KeyPath) -> bool:
    """Whether the path belongs to a vector store in the `config.yaml` of the user."""
    owner: Any = agent
    for key in keys[:-1]:
        is_item = isinstance(key, int) or isinstance(owner, dict)
        owner = owner[key] if is_item else getattr(owner, str(key))
    return isinstance(owner, DatabaseConfig) and owner.is_users
