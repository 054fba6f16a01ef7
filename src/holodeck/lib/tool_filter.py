"""Tool filtering, under the name that HoloDeck gives it."""

from holodeck.lib.tools.filtering import ToolFilterManager
from holodeck.models.tools.config import ToolFilterConfig

__all__ = ["ToolFilterConfig", "ToolFilterManager"]
