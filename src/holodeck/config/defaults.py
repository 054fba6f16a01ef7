"""The default settings of a run."""

from holodeck.models.config import setting_fields

DEFAULT_EXECUTION_CONFIG = {name: field.setting.default for name, field in setting_fields().items()}
"""Field → default, read off the fields' own declarations."""
