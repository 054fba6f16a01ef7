"""Graphs of LangGraph, with and without a checkpointer."""

from typing import Any

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI


def created_agent(server: FakeOpenAI) -> Subject:
    return _subject(server)


def created_agent_with_checkpointer(server: FakeOpenAI) -> Subject:
    from langgraph.checkpoint.memory import InMemorySaver

    return _subject(server, checkpointer=InMemorySaver())


def created_agent_with_approvals(server: FakeOpenAI) -> Subject:
    return _asking(server, "batched")


def created_agent_with_approvals_one_by_one(server: FakeOpenAI) -> Subject:
    return _asking(server, "per_call")


def _asking(server: FakeOpenAI, mode: str) -> Subject:
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.checkpoint.memory import InMemorySaver

    middleware = [HumanInTheLoopMiddleware({"lookup_order": True}, interrupt_mode=mode)]
    return _subject(server, middleware=middleware, checkpointer=InMemorySaver())


def _subject(server: FakeOpenAI, **options: Any) -> Subject:
    from langchain.agents import create_agent
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from openai import AsyncOpenAI

    noticed: list[str] = []

    class Handler(BaseCallbackHandler):
        def on_tool_start(self, serialized, input_str, **event):
            noticed.append(serialized["name"])

    client = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    model = ChatOpenAI(
        model="fake", async_client=client.chat.completions, root_async_client=client,
        api_key="not-a-real-key", stream_usage=True,
    )  # fmt: skip
    agent = create_agent(
        model, [tool(lookup_order)], system_prompt=INSTRUCTIONS, name=AGENT, **options
    )
    return Subject(
        agent.with_config(callbacks=[Handler()]),
        server,
        noticed=lambda: noticed,
        close=client.close,
        catches_tool_errors=False,
    )


ROWS = [created_agent, created_agent_with_checkpointer]
APPROVAL_ROWS = [created_agent_with_approvals, created_agent_with_approvals_one_by_one]
