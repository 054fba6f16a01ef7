"""Tool filtering, under the name that HoloDeck gives it."""

from holodeck.lib.tools.toolbox import ToolFilterManager
from holodeck.models.tools.config import ToolFilterConfig

__all__ = ["ToolFilterConfig", "ToolFilterManager"]
