"""Builds a Semantic Kernel agent: its kernel, the provider's chat service and the tools."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.contents.function_call_content import FunctionCallContent
from semantic_kernel.contents.function_result_content import FunctionResultContent
from semantic_kernel.filters.filter_types import FilterTypes
from semantic_kernel.functions import (
    FunctionResult,
    KernelArguments,
    KernelFunctionFromMethod,
    kernel_function,
)
from semantic_kernel.functions.kernel_parameter_metadata import KernelParameterMetadata

from holodeck.errors import ConfigError
from holodeck.lib.backends.parsing import parse_arguments
from holodeck.lib.backends.semantic_kernel.chat_service import SCHEMA, ResilientChat, client_options
from holodeck.lib.backends.semantic_kernel.invocation import MAX_TOOL_ROUNDS, PLUGIN, current_turn
from holodeck.lib.llm.endpoint import (
    AZURE_VERSION,
    base_url,
    drop_none,
    endpoint_key,
    missing_api_key,
    sampling,
)
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import CallLimits
from holodeck.lib.tools.base import Tool, run_tool
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.filters.auto_function_invocation.auto_function_invocation_context import (
        AutoFunctionInvocationContext,
    )

    from holodeck.lib.backends.semantic_kernel.local import LocalWeights

NO_KEY = "none"
"""For servers without keys, as the client libraries insist on some text."""


class ToolKernel(Kernel):
    """A kernel that calls the tools of MCP servers itself.

    Semantic Kernel takes the first part of a name with a hyphen for a plugin, `settings` for its
    own argument, and refuses arguments that the schema of a server allows.
    """

    _tools: dict[str, Tool] = PrivateAttr(default_factory=dict)

    def use_servers(self, tools: Sequence[Tool]) -> None:
        """Call these tools, as far as they are of MCP servers."""
        self._tools = {tool.name: tool for tool in tools if tool.source == "mcp"}

    async def invoke_function_call(
        self, function_call: FunctionCallContent, chat_history: "ChatHistory", **options: Any
    ) -> "AutoFunctionInvocationContext | None":
        tool = self._tools.get(function_call.name or "")
        if tool is None:
            return await super().invoke_function_call(function_call, chat_history, **options)
        result = FunctionResultContent(
            id=function_call.id or "unknown",
            name=tool.name,
            function_name=tool.name,
            result=await _run_called(tool, function_call),
        )
        chat_history.add_message(result.to_chat_message_content())
        return None


class VerbatimAgent(ChatCompletionAgent):
    """An agent whose instructions are sent unchanged.

    Semantic Kernel treats instructions as a template: `{{x}}` raises, `{{$x}}` vanishes.
    """

    _verbatim: str = PrivateAttr(default="")

    @classmethod
    def create(cls, verbatim: str, **fields: Any) -> "VerbatimAgent":
        agent = cls(**fields)
        agent._verbatim = verbatim
        return agent

    async def format_instructions(
        self,
        kernel: Kernel,  # noqa: ARG002 - the signature is Semantic Kernel's
        arguments: KernelArguments | None = None,  # noqa: ARG002
    ) -> str | None:
        return self._verbatim


def build_kernel(
    llm: LLMProvider, limits: CallLimits, weights: "LocalWeights", limiters: Limiters
) -> Kernel:
    """Return a kernel with the model's service and no tools."""
    kernel = ToolKernel()
    factory = partial(build_service, llm, limits, weights)
    images = llm.protocol != "local"
    chat = ResilientChat.wrap(factory, limiters, endpoint_key(llm), takes_images=images)
    kernel.add_service(chat)
    return kernel


def build_agent(kernel: Kernel, name: str, instructions: str) -> ChatCompletionAgent:
    """Return the agent, whose instructions are sent unchanged.

    Characters that Semantic Kernel forbids in its name become `_`.
    """
    return VerbatimAgent.create(instructions, **_fields_of_agent(kernel, name))


def build_templated_agent(kernel: Kernel, name: str, instructions: str) -> ChatCompletionAgent:
    """Return the agent, whose instructions Semantic Kernel renders as its template."""
    return ChatCompletionAgent(instructions=instructions, **_fields_of_agent(kernel, name))


def _fields_of_agent(kernel: Kernel, name: str) -> dict[str, Any]:
    choice = FunctionChoiceBehavior.Auto(maximum_auto_invoke_attempts=MAX_TOOL_ROUNDS)
    return {
        "kernel": kernel,
        "name": re.sub(r"[^0-9A-Za-z_-]+", "_", name),
        "function_choice_behavior": choice,
    }


def build_arguments(
    kernel: Kernel, llm: LLMProvider, schema: dict[str, Any] | None
) -> KernelArguments:
    """Return the request settings of every invocation."""
    service = kernel.get_service(type=ResilientChat)
    settings = service.get_prompt_execution_settings_class()(
        service_id=service.service_id, **request_settings(llm, schema)
    )
    return KernelArguments(settings=settings)


def offer_only(
    kernel: Kernel, arguments: KernelArguments | None, tools: Sequence[str]
) -> KernelArguments:
    """Return a copy of the request settings with which the model is offered these tools only."""
    names = [one.fully_qualified_name for one in kernel.get_full_list_of_function_metadata()]
    # Semantic Kernel takes an empty list of included functions for all of them.
    withheld = [name for name in names if name not in tools]
    choice = FunctionChoiceBehavior.Auto(
        maximum_auto_invoke_attempts=MAX_TOOL_ROUNDS, filters={"excluded_functions": withheld}
    )
    given = arguments or KernelArguments()
    settings = {
        name: one.model_copy(update={"function_choice_behavior": choice})
        for name, one in (given.execution_settings or {}).items()
    }
    return KernelArguments(settings=settings, **given)


def calls_in(history: "ChatHistory") -> Counter[str]:
    """Return how often each tool was called in a conversation."""
    items = [item for message in history.messages for item in message.items]
    return Counter(one.name or "" for one in items if isinstance(one, FunctionCallContent))


def with_retries(kernel: Kernel) -> Kernel:
    """Return the kernel, or a copy whose services retry if its own do not."""
    plain = [
        service
        for service in kernel.services.values()
        if isinstance(service, ChatCompletionClientBase) and not isinstance(service, ResilientChat)
    ]
    if not plain:
        return kernel
    copy = kernel.clone()
    for chat in plain:
        copy.add_service(ResilientChat.wrap_existing(chat), overwrite=True)
    return copy


def set_tools(kernel: Kernel, tools: Sequence[Tool]) -> None:
    """Give the kernel these tools, under their plain names, instead of those that it has."""
    kernel.plugins.pop(PLUGIN, None)
    kernel.auto_function_invocation_filters.clear()
    if isinstance(kernel, ToolKernel):
        kernel.use_servers(tools)
    if not tools:
        return
    by_name = {tool.name: tool for tool in tools}
    for tool in tools:
        kernel.add_function(plugin_name=PLUGIN, function=_as_function(tool))
        added = kernel.get_function(PLUGIN, tool.name)
        added.metadata.plugin_name = None  # else the model reads "tools-<name>"

    @kernel.filter(FilterTypes.AUTO_FUNCTION_INVOCATION)
    async def run(
        context: "AutoFunctionInvocationContext",
        next: Callable[[Any], Awaitable[None]],  # noqa: A002, ARG001 - SK passes it by this name
    ) -> None:
        """Run the tool with the arguments as the model wrote them, and keep the run."""
        tool = by_name[context.function.name]
        call = context.function_call_content
        assert call is not None  # noqa: S101 - set whenever a model calls a function
        content = await _run_called(tool, call)
        context.function_result = FunctionResult(function=context.function.metadata, value=content)


async def _run_called(tool: Tool, call: FunctionCallContent) -> str:
    """Run the tool with the arguments as the model wrote them; keep the run, return its result."""
    arguments, error = parse_arguments(call.arguments)
    if error is not None:
        return f"Error: {error}"
    turn = current_turn.get()
    if turn is None or call.id is None:
        return (await run_tool(tool, arguments, call_id=call.id)).result_text
    async with turn.tool_slots:
        run = await turn.tool_work.run(tool, arguments, call.id, turn.meter)
    turn.tool_runs[call.id] = run
    turn.images += run.images
    run.meter(turn.meter)
    return run.result_text


def _as_function(tool: Tool) -> KernelFunctionFromMethod:
    @kernel_function(name=tool.name, description=tool.description)
    async def call(**arguments: Any) -> str:
        return (await run_tool(tool, arguments)).result_text

    if tool.source == "mcp":
        schema = {SCHEMA: tool.parameters}
        return KernelFunctionFromMethod(
            method=call, plugin_name=PLUGIN, parameters=[], additional_metadata=schema
        )
    properties = tool.parameters.get("properties", {})
    if "settings" in properties:  # Semantic Kernel uses this argument name itself
        raise ConfigError(f"tool {tool.name}", "rename the parameter 'settings', say to 'options'")
    required = set(tool.parameters.get("required", []))
    parameters = [
        KernelParameterMetadata(name=name, schema_data=schema, is_required=name in required)
        for name, schema in properties.items()
    ]
    return KernelFunctionFromMethod(method=call, plugin_name=PLUGIN, parameters=parameters)


def build_service(
    llm: LLMProvider, limits: CallLimits, weights: "LocalWeights"
) -> ChatCompletionClientBase:
    """Return a new service of the model's provider, with its own client. Raises ConfigError."""
    match llm.protocol:
        case "openai" | "azure":
            return _openai_service(llm, limits)
        case "anthropic":
            return _anthropic_service(llm, limits)
        case "ollama":
            return _ollama_service(llm, limits)
        case "local":
            from holodeck.lib.backends.semantic_kernel.local import LocalChatCompletion

            return LocalChatCompletion.of(llm.name, weights)
        case "litellm":
            raise ConfigError("model.provider", f"{llm.provider.value} needs an 'endpoint'")


def _openai_service(llm: LLMProvider, limits: CallLimits) -> ChatCompletionClientBase:
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAioHttpClient
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

    options = _client_arguments(llm, limits, DefaultAioHttpClient)
    if llm.protocol == "openai":
        client = AsyncOpenAI(base_url=base_url(llm), **options)
    else:
        client = AsyncAzureOpenAI(
            azure_endpoint=llm.endpoint or "",
            azure_deployment=llm.name,
            api_version=llm.api_version or AZURE_VERSION,
            **options,
        )
    # Semantic Kernel's own service for Azure refuses servers without TLS, and reads variables.
    return OpenAIChatCompletion(ai_model_id=llm.name, async_client=client)


def _anthropic_service(llm: LLMProvider, limits: CallLimits) -> ChatCompletionClientBase:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    from holodeck.lib.backends.semantic_kernel.anthropic_chat import AnthropicChat

    options = _client_arguments(llm, limits, DefaultAsyncHttpxClient)
    client = AsyncAnthropic(base_url=llm.endpoint, **options)
    return AnthropicChat(ai_model_id=llm.name, api_key=options["api_key"], async_client=client)


def _ollama_service(llm: LLMProvider, limits: CallLimits) -> ChatCompletionClientBase:
    from semantic_kernel.connectors.ai.ollama import OllamaChatCompletion

    from holodeck.lib.backends.semantic_kernel.ollama_client import OllamaClient

    options = client_options(limits.answer_bytes)
    client = OllamaClient(host=llm.endpoint, timeout=limits.attempt_timeout, **options)
    return OllamaChatCompletion(ai_model_id=llm.name, client=client)


def _client_arguments(
    llm: LLMProvider, limits: CallLimits, http_client: Callable[..., Any]
) -> dict[str, Any]:
    """Return the arguments that the clients of OpenAI and Anthropic have in common."""
    if llm.api_key is not None:
        key = llm.api_key.get_secret_value()
    elif llm.endpoint is not None and llm.protocol == "openai":
        key = NO_KEY
    else:
        raise missing_api_key(llm)
    timeout = limits.attempt_timeout
    return {
        "api_key": key,
        "max_retries": 0,
        "timeout": timeout,
        "http_client": http_client(timeout=timeout, **client_options(limits.answer_bytes)),
    }


def request_settings(llm: LLMProvider, schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings of each request, in the provider's own names."""
    if llm.protocol == "ollama":
        options = {
            "temperature": llm.temperature,
            "top_p": llm.top_p,
            "num_predict": llm.max_tokens,
        }
        return drop_none({"options": drop_none(options), "format": schema})
    if llm.protocol == "anthropic" and schema is not None:
        raise ConfigError(
            "response_format",
            "anthropic supports no schema; ask for the format in the instructions",
        )
    return sampling(llm, schema)
