"""The types of `holodeck.scenario`."""

from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import (
    AgentInput,
    AgentReturnTypes,
    CriterionResult,
    CriterionStatus,
    EndConversation,
    JudgmentRequest,
    ScenarioResult,
    ScriptStep,
)

__all__ = [
    "AgentInput",
    "AgentReturnTypes",
    "AgentRole",
    "CriterionResult",
    "CriterionStatus",
    "EndConversation",
    "JudgmentRequest",
    "ScenarioResult",
    "ScriptStep",
]
