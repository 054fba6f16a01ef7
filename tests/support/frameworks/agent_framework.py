"""Agents and orchestrations of Microsoft Agent Framework."""

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI

CACHES = frozenset(
    {"_cached_agent_middleware_pipeline", "_cached_chat_middleware_pipeline"}
    | {"_cached_function_middleware_pipeline"}
)
"""Of the middleware of the last run, in the client of the model, too."""


def agent_framework_agent(server: FakeOpenAI) -> Subject:
    import agent_framework

    noticed: list[str] = []

    @agent_framework.function_middleware
    async def notice(context, call_next):
        noticed.append(context.function.name)
        await call_next()

    agent, client = _agent(server, middleware=[notice])
    return Subject(
        agent,
        server,
        noticed=lambda: noticed,
        parts=lambda: [agent, agent.client],
        caches=CACHES,
        close=client.close,
    )


def agent_framework_agent_with_approvals(server: FakeOpenAI) -> Subject:
    import agent_framework

    tool = agent_framework.tool(lookup_order, approval_mode="always_require")
    agent, client = _agent(server, tools=[tool])
    return Subject(agent, server, close=client.close)


def agent_framework_workflow_with_approvals(server: FakeOpenAI) -> Subject:
    builder = agent_framework_builder_with_approvals(server)
    return Subject(builder.agent.build(), server, close=builder.close)


def agent_framework_builder_with_approvals(server: FakeOpenAI) -> Subject:
    from agent_framework_orchestrations import SequentialBuilder

    subject = agent_framework_agent_with_approvals(server)
    return Subject(SequentialBuilder(participants=[subject.agent]), server, close=subject.close)


def agent_framework_responses_agent(server: FakeOpenAI) -> Subject:
    """The framework's default client, with the conversation kept here instead of by the service."""
    from agent_framework import Agent
    from agent_framework_openai import OpenAIChatClient
    from openai import AsyncOpenAI

    connection = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    client = OpenAIChatClient(model="fake", async_client=connection)
    options = {"store": False}
    agent = Agent(client, INSTRUCTIONS, name=AGENT, tools=[lookup_order], default_options=options)
    return Subject(
        agent, server, parts=lambda: [agent, client], caches=CACHES, close=connection.close
    )


def agent_framework_builder(server: FakeOpenAI) -> Subject:
    from agent_framework_orchestrations import SequentialBuilder

    agent, client = _agent(server)
    return Subject(SequentialBuilder(participants=[agent]), server, close=client.close)


def agent_framework_workflow(server: FakeOpenAI) -> Subject:
    from agent_framework_orchestrations import SequentialBuilder

    agent, client = _agent(server)
    workflow = SequentialBuilder(participants=[agent]).build()
    # A workflow keeps its state in itself, which its runs change.
    return Subject(
        workflow, server, parts=lambda: [agent.client], caches=CACHES, close=client.close
    )


def _agent(server, tools=(lookup_order,), **options):
    from agent_framework import Agent
    from agent_framework_openai import OpenAIChatCompletionClient
    from openai import AsyncOpenAI

    connection = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    client = OpenAIChatCompletionClient(model="fake", async_client=connection)
    return Agent(client, INSTRUCTIONS, name=AGENT, tools=list(tools), **options), connection


ROWS = [
    agent_framework_agent,
    agent_framework_responses_agent,
    agent_framework_builder,
    agent_framework_workflow,
]
APPROVAL_ROWS = [
    agent_framework_agent_with_approvals,
    agent_framework_workflow_with_approvals,
    agent_framework_builder_with_approvals,
]
