"""Names of spans, events and attributes.

Those that begin with `gen_ai` follow OpenTelemetry's conventions for generative AI. These are still
changing, and no stable package has their constants.
"""

from typing import Any

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
TRACER = "holodeck"
SCENARIO_TRACER = "holodeck.scenario"
"""Of the spans that surround turns and calls of participants."""

# spans; the functions below build those that end with a name
RUN = "holodeck.run"
CASE = "holodeck.case"
TURN = "holodeck.turn"
JUDGE = "holodeck.judge"

# operations
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

# test runs
SUITE_NAME = "test.suite.name"
SUITE_STATUS = "test.suite.run.status"
CASE_NAME = "test.case.name"
CASE_STATUS = "test.case.result.status"
CASE_OUTCOME = "holodeck.case.outcome"
TURN_INDEX = "holodeck.turn.index"

# agents and models
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - no password
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

# tools
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# checks
EVALUATION_RESULT = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
JUDGE_MODEL = "holodeck.judge.model"
CHECK_KIND = "holodeck.check.kind"
CHECK_THRESHOLD = "holodeck.check.threshold"
CHECK_GROUND_TRUTH = "holodeck.check.ground_truth"
CHECK_CONTEXT = "holodeck.check.retrieval_context"

# metrics
OPERATION_DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - no password
AGENT_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
CASE_OUTCOMES = "holodeck.case.outcomes"
CASE_DURATION = "holodeck.case.duration"

# any span
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"

ELSEWHERE = "holodeck_elsewhere"
"""The attribute of log records that another process has sent to OpenTelemetry."""


_PROVIDERS = {
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Providers whose name differs in the conventions."""


def provider(endpoint: str) -> str | None:
    """Return the provider in the key of an endpoint, whose first word it is; None if empty."""
    name = endpoint.partition(" ")[0]
    return _PROVIDERS.get(name, name) or None


def message(role: str, text: str) -> list[dict[str, Any]]:
    """Return a message as `gen_ai.input.messages` and `gen_ai.output.messages` have it."""
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def invoke_agent(agent: str) -> str:
    """Return the name of the span of an agent call."""
    return f"{INVOKE_AGENT} {agent}"


def chat(model: str) -> str:
    """Return the name of the span of a request to a model."""
    return f"{CHAT} {model}"


def execute_tool(tool: str) -> str:
    """Return the name of the span of a tool call."""
    return f"{EXECUTE_TOOL} {tool}"


def check(metric: str) -> str:
    """Return the name of the span of a check of a case."""
    return f"holodeck.check {metric}"
