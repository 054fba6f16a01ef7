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
from holodeck.models.cases.messages import Message

ChatCompletionMessageParamWithTrace = Message
"""A message of any role."""
ChatCompletionUserMessageParamWithTrace = Message

__all__ = [
    "AgentInput",
    "AgentReturnTypes",
    "AgentRole",
    "ChatCompletionMessageParamWithTrace",
    "ChatCompletionUserMessageParamWithTrace",
    "CriterionResult",
    "CriterionStatus",
    "EndConversation",
    "JudgmentRequest",
    "ScenarioResult",
    "ScriptStep",
]
