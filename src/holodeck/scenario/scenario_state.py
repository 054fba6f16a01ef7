"""The state of a conversation that script steps and participants get."""

from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.state_views import ToolCall, ToolCalls, TurnView

__all__ = ["ScenarioState", "ToolCall", "ToolCalls", "TurnView"]
