"""The types of `holodeck.scenario`."""

from holodeck.lib.conversation.messages import AgentRole, Message
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
