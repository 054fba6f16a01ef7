"""An adapter for a chat model of OpenAI, or of a compatible endpoint, that may call functions."""

import logging
import time
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.parsing import parse_arguments
from holodeck.suite.adapters.base import Context
from holodeck.suite.results import AgentResult, TokenUsage, ToolCall

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageToolCallUnion

logger = logging.getLogger(__name__)


class OpenAIAdapter:
    """Sends each input in a chat of its own; tool calls are reported and not executed.

    Args:
        model: The name of the model.
        tools: Function tools, as the chat completions API takes them.
        system_prompt: The first message of each chat.
        api_key: The environment variable OPENAI_API_KEY by default.
        **kwargs: Further arguments of `chat.completions.create`, such as `temperature`.
    """

    def __init__(
        self,
        model: str = "gpt-4",
        tools: list[dict[str, Any]] | None = None,
        system_prompt: str | None = None,
        api_key: str | None = None,
        **kwargs: Any,
    ) -> None:
        from openai import OpenAI

        self.model = model
        self.tools = tools
        self.system_prompt = system_prompt
        self.client = OpenAI(api_key=api_key)
        self.kwargs = kwargs

    def run(self, input: str, context: Context | None = None) -> AgentResult:  # noqa: A002
        """Return the model's answer. Raises what the client raises, and ValueError for arguments
        of a tool call that are no JSON mapping."""
        if context:
            logger.warning("OpenAIAdapter sends no context to the model; derive a class that does")
        messages = [{"role": "user", "content": input}]
        if self.system_prompt:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        request = {"model": self.model, "messages": messages, **self.kwargs}
        if self.tools:
            request["tools"] = self.tools
        started = time.perf_counter()
        response: ChatCompletion = self.client.chat.completions.create(**request)
        latency_ms = (time.perf_counter() - started) * 1000
        message, usage = response.choices[0].message, response.usage
        return AgentResult(
            output=message.content or "",
            tool_calls=[_tool_call(call) for call in message.tool_calls or ()],
            latency_ms=latency_ms,
            token_usage=usage
            and TokenUsage(
                prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
            ),
            raw_response=response.model_dump(),
        )


def _tool_call(call: "ChatCompletionMessageToolCallUnion") -> ToolCall:
    if call.type != "function":
        return ToolCall(name=call.custom.name, arguments={"input": call.custom.input})
    arguments, problem = parse_arguments(call.function.arguments)
    if problem is not None:
        raise ValueError(f"tool call {call.function.name!r}: {problem}")
    return ToolCall(name=call.function.name, arguments=arguments)
