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
"""A message; the names of the single roles are those of the original as well."""
ChatCompletionDeveloperMessageParamWithTrace = Message
ChatCompletionSystemMessageParamWithTrace = Message
ChatCompletionUserMessageParamWithTrace = Message
ChatCompletionAssistantMessageParamWithTrace = Message
ChatCompletionToolMessageParamWithTrace = Message
ChatCompletionFunctionMessageParamWithTrace = Message

__all__ = [
    "AgentInput",
    "AgentReturnTypes",
    "AgentRole",
    "ChatCompletionAssistantMessageParamWithTrace",
    "ChatCompletionDeveloperMessageParamWithTrace",
    "ChatCompletionFunctionMessageParamWithTrace",
    "ChatCompletionMessageParamWithTrace",
    "ChatCompletionSystemMessageParamWithTrace",
    "ChatCompletionToolMessageParamWithTrace",
    "ChatCompletionUserMessageParamWithTrace",
    "CriterionResult",
    "CriterionStatus",
    "EndConversation",
    "JudgmentRequest",
    "ScenarioResult",
    "ScriptStep",
]
