"""Agents of Semantic Kernel."""

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI

CACHES = frozenset({"plugins", "prompt_template", "t_in", "t_out"})
"""Semantic Kernel sets or removes these itself."""


def chat_completion_agent(server: FakeOpenAI) -> Subject:
    noticed: list[str] = []
    agent, close = _agent(server, noticed)
    return Subject(
        agent,
        server,
        tool="OrderPlugin-lookup_order",
        noticed=lambda: noticed,
        parts=lambda: [agent, agent.kernel],
        caches=CACHES,
        close=close,
    )


def kernel(server: FakeOpenAI) -> Subject:
    noticed: list[str] = []
    agent, close = _agent(server, noticed)
    return Subject(
        agent.kernel,
        server,
        tool="OrderPlugin-lookup_order",
        instructions=None,
        agents=None,
        noticed=lambda: noticed,
        close=close,
    )


def responses_agent(server: FakeOpenAI) -> Subject:
    from openai import AsyncOpenAI
    from semantic_kernel.agents import OpenAIResponsesAgent

    client = AsyncOpenAI(base_url=server.url, api_key="not-a-real-key", timeout=PATIENT_S)
    agent = OpenAIResponsesAgent(
        ai_model_id="fake",
        client=client,
        name=AGENT,
        instructions=INSTRUCTIONS,
        plugins=[orders()],
    )
    return Subject(
        agent,
        server,
        tool="OrderPlugin-lookup_order",
        parts=lambda: [agent, agent.kernel],
        caches=CACHES,
        close=client.close,
    )


def sequential(server: FakeOpenAI) -> Subject:
    from semantic_kernel.agents import SequentialOrchestration

    return _orchestration(server, SequentialOrchestration)


def concurrent(server: FakeOpenAI) -> Subject:
    from semantic_kernel.agents import ConcurrentOrchestration

    return _orchestration(server, ConcurrentOrchestration)


def group_chat(server: FakeOpenAI) -> Subject:
    from semantic_kernel.agents import GroupChatOrchestration, RoundRobinGroupChatManager

    manager = RoundRobinGroupChatManager(max_rounds=1)
    return _orchestration(server, GroupChatOrchestration, manager=manager)


def handoff(server: FakeOpenAI) -> Subject:
    from semantic_kernel.agents import (
        ChatCompletionAgent,
        HandoffOrchestration,
        OrchestrationHandoffs,
    )

    other = ChatCompletionAgent(name="billing", description="Knows invoices.")
    handoffs = OrchestrationHandoffs().add(AGENT, other)
    return _orchestration(server, HandoffOrchestration, other, handoffs=handoffs)


def _orchestration(server, kind, *others, **options):
    noticed: list[str] = []
    agent, close = _agent(server, [])

    async def notice(message):
        noticed.append(message.name)

    options["agent_response_callback"] = notice
    orchestration = kind(members=[agent, *others], **options)
    manager = options.get("manager")
    return Subject(
        orchestration,
        server,
        tool="OrderPlugin-lookup_order",
        noticed=lambda: noticed,
        parts=lambda: [orchestration, agent, agent.kernel, *([manager] if manager else [])],
        caches=CACHES,
        close=close,
    )


def _agent(server, noticed):
    """Return an agent whose filter notes the functions it saw, and how to close its client."""
    from openai import AsyncOpenAI
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

    kernel = Kernel()
    client = AsyncOpenAI(base_url=server.url, api_key="not-a-real-key", timeout=PATIENT_S)
    kernel.add_service(OpenAIChatCompletion("fake", async_client=client))
    notice_functions(kernel, noticed)
    agent = ChatCompletionAgent(
        kernel=kernel,
        name=AGENT,
        description="Knows orders.",
        instructions=INSTRUCTIONS,
        plugins=[orders()],
    )
    return agent, client.close


def notice_functions(kernel, noticed):
    """Note the functions that the kernel invokes."""
    from semantic_kernel.filters import FilterTypes

    @kernel.filter(FilterTypes.FUNCTION_INVOCATION)
    async def notice(context, next):  # noqa: A002 - Semantic Kernel passes it by this name
        noticed.append(context.function.fully_qualified_name)
        await next(context)


def orders():
    from semantic_kernel.functions import kernel_function

    class OrderPlugin:
        @kernel_function(name="lookup_order", description="Where an order is.")
        def lookup_order(self, order_id: str) -> str:
            return lookup_order(order_id)

    return OrderPlugin()


ROWS = [chat_completion_agent, kernel, responses_agent, sequential, concurrent, group_chat, handoff]
