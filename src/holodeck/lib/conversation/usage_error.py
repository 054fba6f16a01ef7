"""What somebody wrote that makes no sense, told with the case and the step."""

from holodeck.errors import ConfigError


class ScenarioUsageError(ConfigError, ValueError):
    """A case, a script or an adapter is written wrong."""
