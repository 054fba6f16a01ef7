"""What steps of a script see of a running conversation."""

from holodeck.lib.conversation.state import ScenarioState

__all__ = ["ScenarioState"]
