"""Agents of the OpenAI Agents SDK, one for each of OpenAI's two APIs."""

from functools import partial
from typing import Any

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI


def openai_agent(server: FakeOpenAI) -> Subject:
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    return _subject(server, OpenAIChatCompletionsModel)


def openai_responses_agent(server: FakeOpenAI) -> Subject:
    from agents.models.openai_responses import OpenAIResponsesModel

    return _subject(server, OpenAIResponsesModel)


def openai_agent_with_approvals(server: FakeOpenAI) -> Subject:
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    return _subject(server, OpenAIChatCompletionsModel, needs_approval=True)


def _subject(server: FakeOpenAI, model: Any, **options: Any) -> Subject:
    from agents import Agent, RunConfig, RunHooks, Runner, function_tool
    from openai import AsyncOpenAI

    noticed: list[str] = []

    class Hooks(RunHooks):
        async def on_tool_start(self, context, agent, tool):
            noticed.append(tool.name)

    client = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    agent = Agent(
        name=AGENT,
        instructions=INSTRUCTIONS,
        model=model("fake", client),
        tools=[function_tool(lookup_order, **options)],
    )
    config = RunConfig(tool_error_formatter=lambda failure: f"{failure.error}")
    return Subject(
        partial(Runner.run, agent, hooks=Hooks(), run_config=config),
        server,
        noticed=lambda: noticed,
        parts=lambda: [agent, agent.tools[0], config],
        caches=frozenset({"_function_approval_identity"}),
        close=client.close,
    )


ROWS = [openai_agent, openai_responses_agent]
APPROVAL_ROWS = [openai_agent_with_approvals]
