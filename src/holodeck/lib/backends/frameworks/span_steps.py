"""Reads the steps of a turn from spans of OpenTelemetry, by its conventions for GenAI."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holodeck.lib.backends.frameworks.turn_trace import (
    Operation,
    Step,
    begin_step,
)

SCOPES: Mapping[str, str] = {
    "semantic_kernel": "Semantic Kernel",
    "agent_framework": "Microsoft Agent Framework",
    "pydantic-ai": "PydanticAI",
    "gcp": "Google ADK",
}
"""Frameworks by the first part of the instrumentation scope of their spans."""
OPERATIONS: Mapping[str, Operation] = {
    "chat": "request",
    "text_completion": "request",
    "text_completions": "request",
    "call_llm": "request",
    "generate_content": "request",
    "execute_tool": "tool",
    "invoke_agent": "agent",
}
"""By the first word of a span's name; frameworks set the attribute that says it only later."""

NO_CALL_ID = frozenset({None, "", "unknown", "<not specified>"})
"""What frameworks write where they do not know the call of a tool."""


class SpanListener:
    """Notes the spans of all frameworks; a span processor."""

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        """The open ones, by the id of their span."""

    def on_start(self, span: Any, parent_context: object = None) -> None:  # noqa: ARG002 - the SDK's name
        """Note a span that begins in the context of a turn."""
        scope = getattr(span.instrumentation_scope, "name", "")
        framework = SCOPES.get(scope.partition(".")[0], "")
        word, _, name = span.name.partition(" ")
        # Google ADK also makes a span for the results of several tools together: `(merged)`.
        is_known = bool(framework) and not name.startswith("(")
        step = Step(framework, OPERATIONS.get(word, "other") if is_known else "other", name)
        key, parent = span.get_span_context().span_id, span.parent
        if begin_step(key, None if parent is None else parent.span_id, step):
            self._steps[key] = step

    def on_end(self, span: Any) -> None:
        """Note what a span tells at its end."""
        step = self._steps.pop(span.get_span_context().span_id, None)
        if step is None:
            return
        step.is_open = False
        if step.operation == "other":
            return
        step.failed = span.status.status_code.name == "ERROR"
        read_attributes(step, span.attributes or {})

    def _on_ending(self, span: Any) -> None:
        """Do nothing; the SDK calls it."""

    def shutdown(self) -> None:
        """Do nothing; the SDK calls it."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the SDK's name
        """Return that there is nothing to send."""
        return True


def read_attributes(step: Step, attributes: Mapping[str, Any]) -> None:
    """Set what the attributes of a span tell about its step."""
    if step.operation == "tool":
        step.name = str(attributes.get("gen_ai.tool.name", step.name))
        call_id = attributes.get("gen_ai.tool.call.id")
        step.call_id = None if call_id in NO_CALL_ID else str(call_id)
        step.arguments = attributes.get("gen_ai.tool.call.arguments")
        step.result = attributes.get("gen_ai.tool.call.result")
    elif step.operation == "agent":
        step.name = str(attributes.get("gen_ai.agent.name", step.name))
    else:
        tokens = (attributes.get(f"gen_ai.usage.{side}_tokens") for side in ("input", "output"))
        prompt, completion = (count if isinstance(count, int) else None for count in tokens)
        known = prompt or completion  # PydanticAI has 0 for unknown
        step.usage = (prompt, completion) if known else (None, None)
        shapes = _json(attributes.get("model_request_parameters")) or {}  # of PydanticAI
        step.left_out = [tool["name"] for tool in shapes.get("output_tools") or ()]
        step.calls = _calls(attributes, step.left_out)


def _calls(attributes: Mapping[str, Any], left_out: list[str]) -> list[dict[str, Any]] | None:
    """Return the tool calls that a model answered with; None if the span does not tell."""
    messages = _json(attributes.get("gen_ai.output.messages"))
    if isinstance(messages, list):
        parts = [part for message in messages for part in message.get("parts") or ()]
        return [
            {"name": part["name"], "arguments": part.get("arguments"), "call_id": part.get("id")}
            for part in parts
            if part.get("type") == "tool_call" and part["name"] not in left_out
        ]
    reason = attributes.get("gen_ai.response.finish_reasons")
    reason = str(attributes.get("gen_ai.response.finish_reason") if reason is None else reason)
    asks_for_tools = reason == "None" or "tool" in reason.lower() or "function" in reason.lower()
    return None if asks_for_tools else []


def _json(text: Any) -> Any:
    """Return what a text of JSON holds; None for anything else."""
    with suppress(ValueError, TypeError):
        return json.loads(text)
    return None
