"""The state of a conversation that script steps and participants get."""

from holodeck.lib.conversation.state import ScenarioState

__all__ = ["ScenarioState"]
