"""Find paths that a run would write outside of the agent's folder."""

from holodeck.config.findings import CheckContext
from holodeck.errors import ConfigError
from holodeck.lib.safe_paths import written_path
from holodeck.models.base import written_paths


def check_written_paths(context: CheckContext) -> None:
    """Find them in every key but `execution`, whose settings `resolve_settings` checks."""
    agent = context.agent
    for keys, path in written_paths(agent):
        if keys[0] == "execution":
            continue
        folder = agent.own_dir if keys[0] == "tools" else agent.base_dir
        try:
            written_path(path, folder, "")
        except ConfigError as error:
            context.config_error(keys, error)
