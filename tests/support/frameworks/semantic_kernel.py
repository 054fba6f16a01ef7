"""Agents of Semantic Kernel."""

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import FakeOpenAI


def chat_completion_agent(server: FakeOpenAI) -> Subject:
    from openai import AsyncOpenAI
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.filters import FilterTypes

    noticed: list[str] = []
    kernel = Kernel()
    client = AsyncOpenAI(base_url=server.url, api_key="not-a-real-key")
    kernel.add_service(OpenAIChatCompletion("fake", async_client=client))

    @kernel.filter(FilterTypes.FUNCTION_INVOCATION)
    async def notice(context, next):  # noqa: A002 - Semantic Kernel passes it by this name
        noticed.append(context.function.fully_qualified_name)
        await next(context)

    agent = ChatCompletionAgent(
        kernel=kernel, name=AGENT, instructions=INSTRUCTIONS, plugins=[_orders()]
    )
    return Subject(
        agent,
        server,
        tool="OrderPlugin-lookup_order",
        noticed=lambda: noticed,
        parts=lambda: [agent, kernel],
        caches=frozenset({"prompt_template"}),
        close=client.close,
    )


def _orders():
    from semantic_kernel.functions import kernel_function

    class OrderPlugin:
        @kernel_function(name="lookup_order", description="Where an order is.")
        def lookup_order(self, order_id: str) -> str:
            return lookup_order(order_id)

    return OrderPlugin()


ROWS = [chat_completion_agent]
