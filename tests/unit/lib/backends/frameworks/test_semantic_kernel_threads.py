"""Threads of Semantic Kernel that a user hands over together with an agent."""

import asyncio
from functools import partial

import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, ConfigError
from holodeck.lib.backends.python.backend import CallableBackend
from support.frameworks import script
from support.frameworks.semantic_kernel import chat_completion_agent, responses_agent

SAID = ["my name is Ada", "Hello Ada"]


@pytest.fixture
def server():
    with FakeOpenAI(script) as server:
        yield server


async def chat_thread(agent):
    from semantic_kernel.agents import ChatHistoryAgentThread
    from semantic_kernel.contents import ChatHistory

    history = ChatHistory()
    history.add_user_message(SAID[0])
    history.add_assistant_message(SAID[1])
    return ChatHistoryAgentThread(history)


async def responses_thread(agent):
    from semantic_kernel.agents import ResponsesAgentThread

    thread = ResponsesAgentThread(agent.client)
    async for _ in agent.invoke(SAID[0], thread=thread):
        pass
    return thread


KINDS = {
    "chat": (chat_completion_agent, chat_thread),
    "responses": (responses_agent, responses_thread),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
async def subject(request, server):
    row, make_thread = request.param
    subject = row(server)
    subject.thread = await make_thread(subject.agent)
    yield subject
    await subject.close()


async def said(thread):
    return [message.content async for message in thread.get_messages()]


async def test_every_conversation_begins_with_the_messages_of_the_thread(subject, server):
    before = dict(vars(subject.thread))
    backend = CallableBackend((subject.agent, subject.thread))

    first, second = await asyncio.gather(*(backend.invoke_once(one) for one in ("hello", "bye")))

    assert (first.response, second.response) == ("OK: hello", "OK: bye")
    for request in server.requests[-2:]:
        assert SAID[0] in str(request.messages)
        assert ("hello" in str(request.messages)) is not ("bye" in str(request.messages))
    assert vars(subject.thread) == before


async def test_a_session_continues_the_messages_of_the_thread(subject, server):
    session = await CallableBackend((subject.agent, subject.thread)).create_session()

    await session.send("Where is order 7?")
    result = await session.send("hello")
    await session.close()

    assert result.response == "OK: hello"
    assert SAID[0] in str(server.requests[-1].messages)
    assert "order 7 is shipped" in str(server.requests[-1].messages)


@pytest.mark.parametrize("method", ["invoke", "get_response", "invoke_stream"])
async def test_the_thread_can_be_an_argument_of_the_agents_methods(server, method):
    subject = chat_completion_agent(server)
    run = partial(getattr(subject.agent, method), thread=await chat_thread(subject.agent))

    result = await CallableBackend(run).invoke_once("hello")
    await subject.close()

    assert result.response == "OK: hello"
    assert SAID[1] in str(server.requests[-1].messages)


async def test_a_function_can_make_agent_and_thread_for_each_case(server):
    subjects = []

    async def make():
        subjects.append(chat_completion_agent(server))
        return subjects[-1].agent, await chat_thread(subjects[-1].agent)

    backend = CallableBackend(make)
    for message in ("hello", "bye"):
        await backend.invoke_once(message)

    assert len(subjects) == 2
    assert SAID[0] in str(server.requests[-1].messages)
    assert "hello" not in str(server.requests[-1].messages)
    for subject in subjects:
        await subject.close()


async def test_the_messages_of_a_case_come_after_those_of_the_thread(server):
    subject = chat_completion_agent(server)
    backend = CallableBackend((subject.agent, await chat_thread(subject.agent)))

    await backend.invoke_once("bye", [{"role": "user", "content": "hello"}])
    await subject.close()

    users = [one["content"] for one in server.requests[0].messages if one["role"] == "user"]
    assert users == [SAID[0], "hello", "bye"]


async def test_arguments_of_invoke_can_be_chosen(server):
    from semantic_kernel.functions import KernelArguments

    subject = chat_completion_agent(server)
    noticed = []

    async def notice(message):
        noticed.append(message.role.value)

    chosen = {"arguments": KernelArguments(tone="long"), "on_intermediate_message": notice}
    subject.agent.instructions = "Be {{$tone}}."

    await CallableBackend(partial(subject.agent.invoke, **chosen)).invoke_once("Where is order 7?")
    await subject.close()

    assert (server.requests[0].system, noticed) == ("Be long.", ["assistant", "tool"])


async def test_a_thread_of_another_kind_is_refused(server):
    subject, other = chat_completion_agent(server), responses_agent(server)
    backend = CallableBackend((subject.agent, await responses_thread(other.agent)))

    with pytest.raises(
        BackendInitError,
        match="a ChatCompletionAgent takes a ChatHistoryAgentThread, not a ResponsesAgentThread",
    ):
        await backend.initialize()
    await subject.close()
    await other.close()


async def test_a_deleted_thread_is_refused(server):
    subject = chat_completion_agent(server)
    thread = await chat_thread(subject.agent)
    await thread.delete()

    with pytest.raises(BackendInitError, match="ChatHistoryAgentThread was deleted"):
        await CallableBackend((subject.agent, thread)).initialize()
    await subject.close()


async def test_messages_cannot_be_chosen(server):
    subject = chat_completion_agent(server)

    with pytest.raises(BackendInitError, match="'messages' cannot be chosen"):
        await CallableBackend(partial(subject.agent.invoke, messages="hi")).initialize()
    await subject.close()


async def test_a_kernel_takes_no_thread(server):
    subject = chat_completion_agent(server)
    thread = await chat_thread(subject.agent)

    with pytest.raises(BackendInitError, match="cannot be chosen for a Kernel"):
        await CallableBackend((subject.agent.kernel, thread)).initialize()
    await subject.close()


async def test_a_thread_alone_is_no_agent(server):
    subject = chat_completion_agent(server)

    with pytest.raises(ConfigError, match=r"\(agent, AgentThread\), .* are taken"):
        await CallableBackend(await chat_thread(subject.agent)).initialize()
    await subject.close()
