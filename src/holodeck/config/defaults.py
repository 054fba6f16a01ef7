"""The settings of a run that nobody changed."""

from holodeck.config.settings import settings

DEFAULT_EXECUTION_CONFIG = {field: one.setting.default for field, one in settings().items()}
"""Field → default, read off the fields' own declarations."""
