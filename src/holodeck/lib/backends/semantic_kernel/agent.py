"""Builds a Semantic Kernel agent: its kernel, the provider's chat service and the tools."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.contents.function_call_content import FunctionCallContent
from semantic_kernel.contents.function_result_content import FunctionResultContent
from semantic_kernel.functions import (
    KernelArguments,
    KernelFunctionFromMethod,
    kernel_function,
)

from holodeck.errors import ConfigError
from holodeck.lib.backends.parsing import requested_call
from holodeck.lib.backends.semantic_kernel.chat_service import (
    SCHEMA,
    ResilientChat,
    TurnChat,
)
from holodeck.lib.backends.semantic_kernel.invocation import PLUGIN, current_turn
from holodeck.lib.backends.semantic_kernel.model_chat import (
    FindWeights,
    LocalCompletions,
    ModelChat,
)
from holodeck.lib.llm.client import ChatClient
from holodeck.lib.llm.endpoint import Endpoint, ProxyFor, endpoint_key, sampling
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import CallLimits
from holodeck.lib.tools.base import Tool, run_tool
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.filters.auto_function_invocation.auto_function_invocation_context import (
        AutoFunctionInvocationContext,
    )


class ToolKernel(Kernel):
    """A kernel that offers our tools with their own schemas, and calls them itself.

    Semantic Kernel takes the first part of a name with a hyphen for a plugin, `settings` for its
    own argument, and refuses arguments that a schema allows.
    """

    _tools: dict[str, Tool] = PrivateAttr(default_factory=dict)

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Offer these tools, under their plain names, instead of those that it has."""
        self.plugins.pop(PLUGIN, None)
        self._tools = {tool.name: tool for tool in tools}
        for tool in tools:
            self.add_function(plugin_name=PLUGIN, function=_as_function(tool))
            added = self.get_function(PLUGIN, tool.name)
            added.metadata.plugin_name = None  # else the model reads "tools-<name>"

    async def invoke_function_call(
        self, function_call: FunctionCallContent, chat_history: "ChatHistory", **options: Any
    ) -> "AutoFunctionInvocationContext | None":
        tool = self._tools.get(function_call.name or "")
        if tool is None or not self._is_offered(tool, options.get("function_behavior")):
            return await super().invoke_function_call(function_call, chat_history, **options)
        result = FunctionResultContent(
            id=function_call.id or "unknown",
            name=tool.name,
            function_name=tool.name,
            result=await _run_called(tool, function_call),
        )
        chat_history.add_message(result.to_chat_message_content())
        return None

    def _is_offered(self, tool: Tool, choice: FunctionChoiceBehavior | None) -> bool:
        """Whether the model was offered the tool, of which a message may get some only."""
        if choice is None or not choice.filters:
            return True
        offered = self.get_list_of_function_metadata(choice.filters)
        return any(function.fully_qualified_name == tool.name for function in offered)


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
    llm: LLMProvider,
    limits: CallLimits,
    find_weights: FindWeights,
    limiters: Limiters,
    proxy_for: ProxyFor | None = None,
    *,
    searches_web: bool = False,
) -> ToolKernel:
    """Return a kernel with the model's service and no tools. Raises ConfigError.

    Args:
        llm: The model.
        limits: Time limits of its requests.
        find_weights: Finds the weights of a local model.
        limiters: The limiters of the run.
        proxy_for: Returns the proxy for a URL.
        searches_web: Whether Anthropic's model may search the web.
    """
    kernel = ToolKernel()
    match llm.protocol:
        case "anthropic":
            from holodeck.lib.backends.semantic_kernel.anthropic_chat import anthropic_service

            factory = partial(anthropic_service, llm, limits, searches_web=searches_web)
            kernel.add_service(
                ResilientChat.wrap(factory, limiters, endpoint_key(llm), takes_images=True)
            )
        case "local":
            local = LocalCompletions(llm.name, find_weights)
            kernel.add_service(ModelChat.of(llm.name, local, takes_images=False))
        case "litellm":
            raise ConfigError("model.provider", f"{llm.provider.value} needs an 'endpoint'")
        case _:
            client = ChatClient(Endpoint.of(llm, proxy_for), llm.name, limits, limiters)
            kernel.add_service(ModelChat.of(llm.name, client, takes_images=True))
    return kernel


def build_agent(
    kernel: Kernel, name: str, instructions: str, tool_rounds: int
) -> ChatCompletionAgent:
    """Return the agent, whose instructions are sent unchanged.

    Characters that Semantic Kernel forbids in its name become `_`.
    """
    return VerbatimAgent.create(instructions, **_fields_of_agent(kernel, name, tool_rounds))


def build_templated_agent(
    kernel: Kernel, name: str, instructions: str, tool_rounds: int
) -> ChatCompletionAgent:
    """Return the agent, whose instructions Semantic Kernel renders as its template."""
    fields = _fields_of_agent(kernel, name, tool_rounds)
    return ChatCompletionAgent(instructions=instructions, **fields)


def _fields_of_agent(kernel: Kernel, name: str, tool_rounds: int) -> dict[str, Any]:
    choice = FunctionChoiceBehavior.Auto(maximum_auto_invoke_attempts=tool_rounds)
    return {
        "kernel": kernel,
        "name": re.sub(r"[^0-9A-Za-z_-]+", "_", name),
        "function_choice_behavior": choice,
    }


def build_arguments(
    kernel: Kernel, llm: LLMProvider, schema: dict[str, Any] | None
) -> KernelArguments:
    """Return the request settings of every invocation. Raises ConfigError."""
    if llm.protocol == "anthropic" and schema is not None:
        raise ConfigError(
            "response_format",
            "anthropic supports no schema; ask for the format in the instructions",
        )
    service = kernel.get_service(type=TurnChat)
    settings = service.get_prompt_execution_settings_class()(
        service_id=service.service_id, **sampling(llm, schema)
    )
    return KernelArguments(settings=settings)


def offer_only(
    kernel: Kernel, arguments: KernelArguments | None, tools: Sequence[str], tool_rounds: int
) -> KernelArguments:
    """Return a copy of the request settings with which the model is offered these tools only."""
    names = [
        function.fully_qualified_name for function in kernel.get_full_list_of_function_metadata()
    ]
    # Semantic Kernel takes an empty list of included functions for all of them.
    withheld = [name for name in names if name not in tools]
    choice = FunctionChoiceBehavior.Auto(
        maximum_auto_invoke_attempts=tool_rounds, filters={"excluded_functions": withheld}
    )
    given = arguments or KernelArguments()
    settings = {
        name: setting.model_copy(update={"function_choice_behavior": choice})
        for name, setting in (given.execution_settings or {}).items()
    }
    return KernelArguments(settings=settings, **given)


def calls_in(history: "ChatHistory") -> Counter[str]:
    """Return how often each tool was called in a conversation."""
    items = [item for message in history.messages for item in message.items]
    return Counter(item.name or "" for item in items if isinstance(item, FunctionCallContent))


def with_retries(kernel: Kernel) -> Kernel:
    """Return the kernel, or a copy whose services retry if its own do not."""
    plain = [
        service
        for service in kernel.services.values()
        if isinstance(service, ChatCompletionClientBase) and not isinstance(service, TurnChat)
    ]
    if not plain:
        return kernel
    copy = kernel.clone()
    for chat in plain:
        copy.add_service(ResilientChat.wrap_existing(chat), overwrite=True)
    return copy


async def _run_called(tool: Tool, call: FunctionCallContent) -> str:
    """Run the tool with the arguments as the model wrote them; keep the run, return its result."""
    turn = current_turn.get()
    noted = None if turn is None else turn.calls.get(call.id or "")
    written = noted or requested_call(tool.name, call.arguments)
    if "error" in written:
        return f"Error: {written['error']}"
    if turn is None or call.id is None:
        return (await run_tool(tool, written["arguments"], call_id=call.id)).result_text
    async with turn.tool_slots:
        run = await turn.tool_work.run(tool, written["arguments"], call.id, turn.meter)
    turn.tool_runs[call.id] = run
    turn.images += run.images
    return run.result_text


def _as_function(tool: Tool) -> KernelFunctionFromMethod:
    @kernel_function(name=tool.name, description=tool.description)
    async def call(**arguments: Any) -> str:
        return (await run_tool(tool, arguments)).result_text

    return KernelFunctionFromMethod(
        method=call,
        plugin_name=PLUGIN,
        parameters=[],
        additional_metadata={SCHEMA: tool.parameters},
    )
