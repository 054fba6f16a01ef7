"""A Semantic Kernel agent for a configuration."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.functions import KernelArguments

from holodeck.lib.backends.semantic_kernel.calls import MOST_TOOL_ROUNDS
from holodeck.lib.backends.semantic_kernel.functions import add_tools
from holodeck.lib.backends.semantic_kernel.resilient import ResilientChat
from holodeck.lib.backends.semantic_kernel.services import request_settings, service_maker
from holodeck.lib.chat.limits import CallLimits
from holodeck.lib.chat.settings import endpoint_key
from holodeck.lib.limiter import Limiters
from holodeck.lib.tools.base import Tool
from holodeck.models.llm import LLMProvider

if TYPE_CHECKING:
    from holodeck.lib.backends.semantic_kernel.local import LocalWeights


class VerbatimAgent(ChatCompletionAgent):
    """An agent whose instructions are sent as they stand.

    Semantic Kernel takes instructions for a template: `{{x}}` raises, `{{$x}}` vanishes.
    """

    _verbatim: str = PrivateAttr(default="")

    @classmethod
    def told(cls, instructions: str, **rest: Any) -> "VerbatimAgent":
        """An agent with these instructions."""
        agent = cls(**rest)
        agent._verbatim = instructions
        return agent

    async def format_instructions(
        self,
        kernel: Kernel,  # noqa: ARG002 - the signature is Semantic Kernel's
        arguments: KernelArguments | None = None,  # noqa: ARG002
    ) -> str | None:
        """The instructions, untouched."""
        return self._verbatim


def build_kernel(
    llm: LLMProvider,
    tools: Sequence[Tool],
    limits: CallLimits,
    weights: "LocalWeights",
    limiters: Limiters,
) -> Kernel:
    """A kernel with the model's service and the tools."""
    kernel = Kernel()
    maker = service_maker(llm, limits, weights)
    kernel.add_service(ResilientChat.wrap(maker, limiters, endpoint_key(llm)))
    add_tools(kernel, tools)
    return kernel


def build_agent(kernel: Kernel, name: str, instructions: str) -> ChatCompletionAgent:
    """The agent; its name is made of the characters that Semantic Kernel allows."""
    return VerbatimAgent.told(
        instructions,
        kernel=kernel,
        name=re.sub(r"[^0-9A-Za-z_-]+", "_", name),
        function_choice_behavior=FunctionChoiceBehavior.Auto(
            maximum_auto_invoke_attempts=MOST_TOOL_ROUNDS
        ),
    )


def build_arguments(
    kernel: Kernel, llm: LLMProvider, schema: dict[str, Any] | None
) -> KernelArguments:
    """The request settings of every invocation."""
    service = kernel.get_service(type=ResilientChat)
    settings = service.get_prompt_execution_settings_class()(
        service_id=service.service_id, **request_settings(llm, schema)
    )
    return KernelArguments(settings=settings)


def resilient(kernel: Kernel) -> Kernel:
    """The kernel itself if its services keep their nerve, else a copy whose services do."""
    chats = [one for one in kernel.services.values() if isinstance(one, ChatCompletionClientBase)]
    plain = [chat for chat in chats if not isinstance(chat, ResilientChat)]
    if not plain:
        return kernel
    copy = kernel.clone()
    for chat in plain:
        copy.add_service(ResilientChat.wrap_existing(chat), overwrite=True)
    return copy
