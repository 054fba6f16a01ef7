"""The default settings of a run."""

from holodeck.config.settings import setting_fields

DEFAULT_EXECUTION_CONFIG = {field: one.setting.default for field, one in setting_fields().items()}
"""Field → default, read off the fields' own declarations."""
