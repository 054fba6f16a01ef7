"""Runnables of LangChain, whose model is a server on loopback."""

import pytest
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.frameworks import adapt
from holodeck.lib.backends.python.backend import CallableBackend
from support.server import PATIENT_S


@pytest.fixture
def server():
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def model(server):
    client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENT_S)
    yield ChatOpenAI(
        model="fake",
        api_key="none",
        async_client=client.chat.completions,
        root_async_client=client,
    )
    await client.close()


PROMPTS = {
    "messages": [("system", "Be brief."), ("placeholder", "{messages}")],
    "required messages": [("system", "Be brief."), MessagesPlaceholder("messages")],
    "text and history": [
        ("system", "Be brief."),
        MessagesPlaceholder("chat_history", optional=True),
        ("user", "{question}"),
    ],
    "text and required history": [
        ("system", "Be brief."),
        MessagesPlaceholder("chat_history"),
        ("user", "{question}"),
    ],
}


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_a_prompt_gets_the_message_and_those_before_it(server, model, prompt):
    chain = ChatPromptTemplate.from_messages(PROMPTS[prompt]) | model | StrOutputParser()
    server.reply("OK: one").reply("OK: two")
    session = await CallableBackend(chain).create_session()

    await session.send("one")
    result = await session.send("two")

    assert result.response == "OK: two"
    assert (result.tool_calls, result.token_usage.prompt_tokens) == ([], 10)
    said = [m["content"] for m in server.requests[-1].messages]
    assert said == ["Be brief.", "one", "OK: one", "two"]


async def test_a_model_is_an_agent(server, model):
    @tool
    def lookup_order(order_id: str) -> str:
        """Look an order up."""
        return "late"

    server.reply(tool_calls=[("lookup_order", {"order_id": "7"}, "c1")])

    result = await CallableBackend(model.bind_tools([lookup_order])).invoke_once("Where is 7?")

    assert (result.response, result.agents, result.tools) == ("", None, None)
    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]
    assert result.tool_results == []


async def test_a_prompt_without_a_place_for_earlier_messages_has_no_second_turn(server, model):
    chain = ChatPromptTemplate.from_template("Answer: {question}") | model
    server.reply("OK: one")
    session = await CallableBackend(chain).create_session()
    assert (await session.send("one")).response == "OK: one"

    with pytest.raises(BackendSessionError, match="takes no earlier messages"):
        await session.send("two")

    assert len(server.requests) == 1


async def test_a_function_of_text_is_called_with_it():
    def answer(question: str) -> str:
        return f"OK: {question}"

    result = await CallableBackend(RunnableLambda(answer)).invoke_once("hello")

    assert (result.response, result.tool_calls, result.token_usage) == ("OK: hello", None, None)


async def test_a_structured_output_is_the_response(server, model):
    chain = ChatPromptTemplate.from_messages(PROMPTS["messages"]) | model | JsonOutputParser()
    server.reply('{"late": true}')

    result = await CallableBackend(chain).invoke_once("Where is 7?")

    assert result.structured_output == {"late": True}


async def test_text_streams_in_pieces(server, model):
    chain = ChatPromptTemplate.from_messages(PROMPTS["messages"]) | model
    server.reply("It is late.")
    session = await CallableBackend(chain).create_session()

    pieces = [piece async for piece in session.send_streaming("Where is 7?")]

    assert pieces == ["It", " is", " late."]


@pytest.mark.parametrize(
    ("runnable", "found"),
    [
        (RunnableLambda(lambda anything: anything), "anything"),
        (ChatPromptTemplate.from_template("{a} {b}") | RunnableLambda(str), "the keys a, b"),
    ],
    ids=["unknown", "two texts"],
)
async def test_an_input_that_no_test_case_has_is_refused(runnable, found):
    with pytest.raises(BackendInitError, match=f"takes {found}, where a test case has one message"):
        await CallableBackend(runnable).initialize()


def test_parts_of_agents_are_no_agents():
    @tool
    def lookup_order(order_id: str) -> str:
        """Look an order up."""
        return "late"

    parts = [lookup_order, ChatPromptTemplate.from_template("{a}"), StrOutputParser()]

    assert [adapt(part) for part in parts] == [None, None, None]
    assert adapt(AIMessage("hello")) is None
