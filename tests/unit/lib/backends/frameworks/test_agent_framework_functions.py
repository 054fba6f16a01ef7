"""Functions with `@workflow` of Microsoft Agent Framework."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from agent_framework import Message, RunContext, workflow

from fakes import FakeOpenAI
from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.python.backend import CallableBackend
from support.frameworks import script
from support.frameworks.agent_framework import ROWS

pytestmark = pytest.mark.filterwarnings("ignore:.FUNCTIONAL_WORKFLOWS")  # are experimental
agent_framework_agent = ROWS[0]


@asynccontextmanager
async def backend_of(agent):
    backend = CallableBackend(agent)
    await backend.initialize()
    yield backend
    await backend.teardown()


async def test_of_a_function_that_is_a_workflow_only_the_tokens_are_known():
    with FakeOpenAI(script) as server:
        support = agent_framework_agent(server)

        @workflow
        async def shop(message: str) -> str:
            return (await support.agent.run(message)).text

        async with backend_of(shop) as backend:
            result = await backend.invoke_once("Where is order 7?")
        await support.close()

    assert result.response == "OK: order 7 is shipped"
    assert (result.tool_calls, result.agents) == (None, None)
    assert (result.token_usage.prompt_tokens, result.token_usage.completion_tokens) == (20, 10)


async def test_a_function_that_takes_messages_gets_those_of_its_conversation():
    @workflow
    async def repeat(ctx: RunContext, messages: list[Message]) -> str:
        return ", ".join(f"{one.role} {one.text}" for one in messages)

    async def converse(i):
        session = await backend.create_session([{"role": "user", "content": f"context {i}"}])
        await session.send(f"first {i}")
        return (await session.send("second")).response

    async with backend_of(repeat) as backend:
        answers = await asyncio.gather(*map(converse, range(3)))

    for i, answer in enumerate(answers):
        told = f"user context {i}, user first {i}"
        assert answer == f"{told}, assistant {told}, user second"


async def test_a_function_that_takes_text_gets_no_earlier_messages():
    @workflow
    async def shout(message: str) -> str:
        return message.upper()

    async with backend_of(shout) as backend:
        assert (await backend.invoke_once("hello")).response == "HELLO"
        with pytest.raises(BackendError, match="'shout' takes one message, and no earlier ones"):
            await backend.invoke_once("hello", [{"role": "user", "content": "hi"}])


async def test_a_function_that_waits_for_a_person_is_an_error():
    @workflow
    async def ask(message: str, ctx: RunContext) -> str:
        return await ctx.request_info("May I?", response_type=str)

    async with backend_of(ask) as backend:
        with pytest.raises(BackendError, match="waits for input of a person"):
            await backend.invoke_once("hello")


@pytest.mark.parametrize("as_agent", [False, True], ids=["workflow", "agent"])
async def test_a_workflow_that_was_built_from_a_function_is_refused(as_agent):
    @workflow
    async def shout(message: str) -> str:
        return message.upper()

    built = shout.build()

    with pytest.raises(BackendInitError, match="name the function with @workflow"):
        await CallableBackend(built.as_agent() if as_agent else built).initialize()
