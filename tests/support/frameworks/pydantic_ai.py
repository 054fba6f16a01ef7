"""Agents of PydanticAI."""

from typing import Any

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI


def pydantic_ai_agent(server: FakeOpenAI) -> Subject:
    return _subject(server)


def pydantic_ai_agent_with_approvals(server: FakeOpenAI) -> Subject:
    from pydantic_ai import DeferredToolRequests

    return _subject(server, needs_approval=True, output_type=[str, DeferredToolRequests])


def _subject(server: FakeOpenAI, needs_approval: bool = False, **options: Any) -> Subject:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.capabilities import Hooks
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    noticed: list[str] = []
    hooks = Hooks()

    @hooks.on.before_tool_execute
    async def notice(context, *, call, tool_def, args):
        noticed.append(call.tool_name)
        return args

    client = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, name=AGENT, instructions=INSTRUCTIONS, capabilities=[hooks], **options)

    @agent.tool_plain(name="lookup_order", requires_approval=needs_approval)
    def lookup(order_id: str) -> str:
        try:
            return lookup_order(order_id)
        except ValueError as error:
            raise ModelRetry(str(error)) from error

    return Subject(agent, server, noticed=lambda: noticed, close=client.close)


ROWS = [pydantic_ai_agent]
APPROVAL_ROWS = [pydantic_ai_agent_with_approvals]
