"""Compiled graphs of LangGraph, whose models are a server on loopback."""

import asyncio
import threading
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from openai import AsyncOpenAI
from pydantic import BaseModel

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.support.approvals import ApprovalDecisions
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


@tool
def lookup_order(order_id: str) -> str:
    """Look an order up."""
    if order_id == "lost":
        raise ValueError("no such order")
    return f"order {order_id} is late"


CALL = [("lookup_order", {"order_id": "7"}, "c1")]


class Structured(MessagesState):
    structured_response: Any


def graph(*nodes, state=MessagesState, **compiled):
    """Return a compiled graph of nodes that follow each other."""
    builder = StateGraph(state)
    previous = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder.compile(**compiled)


def asking(model):
    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    return ask


async def test_the_nodes_of_a_graph_are_its_agents_and_subgraphs_are_read(server, model):
    billing = create_agent(model, [lookup_order])
    server.reply("Billing will help.").reply(tool_calls=CALL).reply("It is late.")
    backend = CallableBackend(graph(("triage", asking(model)), ("billing", billing)))

    result = await backend.invoke_once("Where is 7?")

    assert result.response == "It is late."
    assert result.agents == ["triage", "billing"]
    assert result.tool_calls == [
        {
            "name": "lookup_order",
            "arguments": {"order_id": "7"},
            "call_id": "c1",
            "agent": "billing",
        }
    ]
    assert [one["result"] for one in result.tool_results] == ["order 7 is late"]
    assert (result.token_usage.prompt_tokens, result.token_usage.completion_tokens) == (30, 15)
    assert result.tools is None


SAME_ID = [
    [("lookup_order", {"order_id": "7"}, "call_0")],
    [("delete", {"order_id": "7"}, "call_0")],
]


@tool
def delete(order_id: str) -> str:
    """Delete an order."""
    return f"order {order_id} is deleted"


async def test_a_call_whose_id_an_earlier_call_has_is_a_call_of_its_own(server, model):
    for calls in SAME_ID:
        server.reply(tool_calls=calls)
    server.reply("Done.")

    result = await CallableBackend(create_agent(model, [lookup_order, delete])).invoke_once("7")

    assert [call["name"] for call in result.tool_calls] == ["lookup_order", "delete"]
    assert [one["result"] for one in result.tool_results] == [
        "order 7 is late",
        "order 7 is deleted",
    ]


async def test_a_call_whose_id_a_call_of_an_earlier_turn_has_belongs_to_its_turn(server, model):
    for calls in SAME_ID:
        server.reply(tool_calls=calls).reply("Done.")
    session = await CallableBackend(create_agent(model, [lookup_order, delete])).create_session()

    turns = [await session.send("7") for _ in SAME_ID]
    await session.close()

    assert [[call["name"] for call in turn.tool_calls] for turn in turns] == [
        ["lookup_order"],
        ["delete"],
    ]


async def test_a_nested_agent_may_use_the_id_of_a_call_around_it(server, model):
    expert = create_agent(model, [lookup_order], name="expert")

    @tool
    async def ask(question: str) -> str:
        """Ask the expert."""
        return (await expert.ainvoke({"messages": [("user", question)]}))["messages"][-1].text

    server.reply(tool_calls=[("ask", {"question": "7"}, "call_0")])
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"}, "call_0")])
    server.reply("It is late.").reply("Late.")

    result = await CallableBackend(create_agent(model, [ask])).invoke_once("Where is 7?")

    assert [call["name"] for call in result.tool_calls] == ["ask", "lookup_order"]


async def test_a_message_that_hands_back_to_a_supervisor_is_no_tool_call_of_a_model(server, model):
    marked = {"__is_handoff_back": True}  # as langgraph-supervisor writes it
    expert = create_agent(model, [], name="expert")

    async def hand_back(state):
        call = {"name": "transfer_back_to_supervisor", "args": {}, "id": "b1"}
        return {
            "messages": [
                AIMessage("", tool_calls=[call], name="expert", response_metadata=marked),
                ToolMessage("Back.", tool_call_id="b1", response_metadata=marked),
            ]
        }

    supervisor = create_agent(model, [], name="supervisor")
    server.reply("Ask the expert.").reply("It is late.").reply("Late.")
    nodes = (("a", supervisor), ("b", expert), ("c", hand_back), ("d", supervisor))

    result = await CallableBackend(graph(*nodes)).invoke_once("Where is 7?")

    assert result.agents == ["supervisor", "expert", "supervisor"]
    assert result.tool_calls == []


async def test_agents_that_have_names_are_known_by_them(server, model):
    agents = [create_agent(model, [], name=name) for name in ("triage", "billing")]
    server.reply("Billing will help.").reply("It is late.")
    backend = CallableBackend(graph(("one", agents[0]), ("two", agents[1])))

    assert (await backend.invoke_once("Where is 7?")).agents == ["triage", "billing"]


async def test_an_agent_inside_a_tool_is_read_too(server, model):
    expert = create_agent(model, [lookup_order], name="expert")

    @tool
    async def ask_expert(question: str) -> str:
        """Ask an expert."""
        state = await expert.ainvoke({"messages": [{"role": "user", "content": question}]})
        return state["messages"][-1].text

    server.reply(tool_calls=[("ask_expert", {"question": "7?"}, "c0")])
    server.reply(tool_calls=CALL).reply("Late.").reply("It is late.")
    backend = CallableBackend(create_agent(model, [ask_expert], name="support"))

    result = await backend.invoke_once("Where is 7?")

    assert result.response == "It is late."
    assert [call["name"] for call in result.tool_calls] == ["ask_expert", "lookup_order"]
    assert {one["call_id"]: one["result"] for one in result.tool_results} == {
        "c1": "order 7 is late",
        "c0": "Late.",
    }
    assert result.token_usage.prompt_tokens == 40
    assert result.tools == ["ask_expert"]


async def test_results_of_a_node_that_runs_tools_itself_are_read(server, model):
    def run_tools(state):
        calls = state["messages"][-1].tool_calls
        found = [(call["id"], lookup_order.invoke(call["args"])) for call in calls]
        return {"messages": [ToolMessage(text, tool_call_id=call_id) for call_id, text in found]}

    server.reply(tool_calls=[*CALL, ("lookup_order", {"order_id": "8"}, "c2")]).reply("Late.")
    model_with_tools = model.bind_tools([lookup_order])
    backend = CallableBackend(
        graph(
            ("ask", asking(model_with_tools)),
            ("tools", run_tools),
            ("say", asking(model_with_tools)),
        )
    )

    result = await backend.invoke_once("Where are 7 and 8?")

    assert {one["call_id"]: one["result"] for one in result.tool_results} == {
        "c1": "order 7 is late",
        "c2": "order 8 is late",
    }
    assert len(result.tool_calls) == 2


async def test_a_tool_that_code_calls_is_a_tool_call(server, model):
    def look(state):
        return {"messages": [AIMessage(lookup_order.invoke({"order_id": "7"}))]}

    result = await CallableBackend(graph(("look", look))).invoke_once("Where is 7?")

    assert [(c["name"], c["arguments"]) for c in result.tool_calls] == [
        ("lookup_order", {"order_id": "7"})
    ]
    assert [one["result"] for one in result.tool_results] == ["order 7 is late"]


@pytest.mark.parametrize("handles", [True, False], ids=["handled", "raised"])
async def test_the_failure_of_a_tool_is_an_error(server, model, handles):
    server.reply(tool_calls=[("lookup_order", {"order_id": "lost"}, "c1")]).reply("It is lost.")
    bound = model.bind_tools([lookup_order])
    node = ToolNode([lookup_order], handle_tool_errors=handles)
    backend = CallableBackend(
        graph(("ask", asking(bound)), ("tools", node), ("say", asking(bound)))
    )

    if handles:
        result = await backend.invoke_once("Where is it?")
    else:
        with pytest.raises(BackendSessionError, match="no such order") as caught:
            await backend.invoke_once("Where is it?")
        result = caught.value.seen

    [failed] = result.tool_results
    assert (failed["call_id"], failed["is_error"]) == ("c1", True)
    assert "no such order" in failed["result"]


async def test_a_model_that_shapes_its_answer_by_a_tool_call_called_no_tool(server, model):
    class Route(BaseModel):
        to: Literal["billing"]

    router = model.with_structured_output(Route, method="function_calling")

    async def route(state):
        chosen = await router.ainvoke(state["messages"])
        return {"messages": [AIMessage(f"to {chosen.to}")]}

    server.reply(tool_calls=[("Route", {"to": "billing"})])

    result = await CallableBackend(graph(("route", route))).invoke_once("Where is 7?")

    assert (result.response, result.tool_calls) == ("to billing", [])
    assert result.token_usage.prompt_tokens == 10


async def test_a_node_that_does_without_langchain_leaves_tool_calls_and_usage_unknown(server):
    def node(state):
        return {"messages": [{"role": "assistant", "content": "It is late."}]}

    result = await CallableBackend(graph(("support", node))).invoke_once("Where is 7?")

    assert (result.response, result.agents) == ("It is late.", ["support"])
    assert (result.tool_calls, result.token_usage) == (None, None)


async def test_usage_that_the_provider_does_not_report_is_unknown(server, model):
    server.reply("Hello.", usage=None).reply("Hello again.")
    backend = CallableBackend(graph(("one", asking(model)), ("two", asking(model))))

    assert (await backend.invoke_once("Hello")).token_usage is None


async def test_a_structured_response_is_the_response(server, model):
    class Status(BaseModel):
        late: bool

    server.reply(tool_calls=[("Status", {"late": "perhaps"})])
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    server.reply(tool_calls=[("Status", {"late": True})])
    agent = create_agent(model, [lookup_order], response_format=ToolStrategy(Status))
    backend = CallableBackend(agent)

    result = await backend.invoke_once("Where is 7?")

    assert (result.response, result.structured_output) == ('{"late": true}', {"late": True})
    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]
    assert [returned["name"] for returned in result.tool_results] == ["lookup_order"]


async def test_a_call_that_a_node_answers_itself_is_none_of_a_structured_response(server, model):
    def answer(state):
        called = AIMessage("", tool_calls=[{"name": "delete", "args": {"id": 7}, "id": "c"}])
        returned = ToolMessage("deleted", tool_call_id="c")
        return {"messages": [called, returned], "structured_response": {"late": True}}

    backend = CallableBackend(graph(("support", answer), state=Structured))

    result = await backend.invoke_once("Delete 7")

    assert [call["name"] for call in result.tool_calls] == ["delete"]


async def test_a_recursion_limit_is_an_error_with_what_was_seen(server, model):
    server.otherwise(tool_calls=[("lookup_order", {"order_id": "7"})])
    agent = create_agent(model, [lookup_order])
    backend = CallableBackend(partial(agent.ainvoke, config={"recursion_limit": 4}))

    with pytest.raises(BackendSessionError, match="GraphRecursionError") as caught:
        await backend.invoke_once("Where is 7?")

    assert [call["name"] for call in caught.value.seen.tool_calls] == ["lookup_order"] * 2
    assert len(caught.value.seen.tool_results) == 2


def confirm(state):
    is_confirmed = interrupt("Cancel order 7?")
    return {"messages": [AIMessage("cancelled" if is_confirmed else "kept")]}


@pytest.mark.parametrize(("decision", "response"), [(True, "cancelled"), (False, "kept")])
async def test_an_interrupt_waits_for_a_decision(server, model, decision, response):
    checkpointer = InMemorySaver()
    session = await CallableBackend(
        graph(("confirm", confirm), checkpointer=checkpointer)
    ).create_session()

    first = await session.send("Cancel it")
    rest = await session.send(ApprovalDecisions([decision]))
    await session.close()

    assert first.pending_approvals == [
        {"name": "interrupt", "arguments": {"value": "Cancel order 7?"}}
    ]
    assert rest.response == response
    assert checkpointer.storage == {}


@pytest.mark.parametrize(("decision", "response"), [(True, "cancelled"), (False, "kept")])
async def test_a_tool_that_interrupts_begins_anew_after_the_decision(
    server, model, decision, response
):
    def cancel_order(order_id: str) -> str:
        """Cancel an order."""
        return "cancelled" if interrupt({"order": order_id}) else "kept"

    server.reply(tool_calls=[("cancel_order", {"order_id": "7"})]).reply("Done.")
    agent = create_agent(model, [cancel_order], checkpointer=InMemorySaver())
    session = await CallableBackend(agent).create_session()

    first = await session.send("Cancel it")
    turn = first.followed_by(await session.send(ApprovalDecisions([decision])))

    assert first.pending_approvals == [{"name": "cancel_order", "arguments": {"order_id": "7"}}]
    [call], [result] = turn.tool_calls, turn.tool_results
    assert (call["name"], result["result"]) == ("cancel_order", response)
    assert not {"is_error", "blocked"} & result.keys()
    assert turn.response == "Done."


async def test_an_interrupt_without_a_checkpointer_is_an_error(server, model):
    backend = CallableBackend(graph(("confirm", confirm)))

    with pytest.raises(BackendSessionError, match=r"interrupt 'Cancel order 7\?'.*checkpointer"):
        await backend.invoke_once("Cancel it")


async def test_with_a_checkpointer_each_conversation_has_a_thread_and_sends_new_messages(
    server, model
):
    checkpointer = InMemorySaver()
    lengths = []

    async def count(state):
        lengths.append(len(state["messages"]))
        return await asking(model)(state)

    compiled = graph(("ask", count), checkpointer=checkpointer)
    backend = CallableBackend(compiled.with_config(configurable={"thread_id": "the user's"}))
    sessions = [await backend.create_session() for _ in range(2)]
    for session in sessions:
        await session.send("one")
        session.remember([{"role": "user", "content": "aside"}])
        await session.send("two")

    threads = set(checkpointer.storage)
    for session in sessions:
        await session.close()

    assert lengths == [1, 4, 1, 4]
    assert (len(threads), "the user's" in threads) == (2, False)
    assert checkpointer.storage == {}


@pytest.mark.parametrize("first", [True, False], ids=["first turn", "later turn"])
async def test_a_failed_turn_leaves_nothing_in_the_thread(server, model, first):
    compiled = graph(("note", lambda _: {"messages": []}), ("ask", asking(model)),
                     checkpointer=InMemorySaver())  # fmt: skip
    server.when("fail", status=400, content="as told").otherwise("OK")
    session = await CallableBackend(compiled).create_session()
    if not first:
        await session.send("one")

    for _ in range(2):
        with pytest.raises(BackendSessionError, match="as told"):
            await session.send("fail")
    await session.send("two")
    await session.send("three")

    said = [m["content"] for m in server.requests[-1].messages if m["role"] == "user"]
    assert said == (["two", "three"] if first else ["one", "two", "three"])
    await session.close()


async def test_earlier_tool_calls_and_their_results_reach_the_model(server, model):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 9}'}}
    context = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        {"role": "assistant", "content": "OK: one"},
    ]

    result = await CallableBackend(graph(("ask", asking(model)))).invoke_once("two", context)

    [one, calls, found, answer, two] = server.requests[0].messages
    assert (one["content"], answer["content"], two["content"]) == ("one", "OK: one", "two")
    assert calls["tool_calls"][0]["function"]["name"] == "find"
    assert (found["tool_call_id"], found["content"]) == ("c1", "shipped")
    assert (result.tool_calls, result.tool_results) == ([], [])


async def test_it_streams_what_models_write(server, model):
    server.reply("It is late.").reply("Yes.")
    session = await CallableBackend(graph(("ask", asking(model)))).create_session()

    pieces = [piece async for piece in session.send_streaming("Where is 7?")]
    await session.send("Really?")

    assert pieces == ["It", " is", " late."]
    roles = [message["role"] for message in server.requests[-1].messages]
    assert roles == ["user", "assistant", "user"]


async def test_a_graph_without_models_answers_in_one_piece():
    def node(state):
        return {"messages": [AIMessage("It is late.")]}

    session = await CallableBackend(graph(("node", node))).create_session()

    pieces = [piece async for piece in session.send_streaming("Where is 7?")]

    assert pieces == ["It is late."]


async def test_a_cancelled_stream_leaves_no_task(server, model):
    session = await CallableBackend(graph(("ask", asking(model)))).create_session()
    before = asyncio.all_tasks()

    with server.held():
        stream = session.send_streaming("hang")
        task = asyncio.create_task(anext(stream))
        await server.saw(1)
        task.cancel()
        await asyncio.wait([task])
        await stream.aclose()

    assert asyncio.all_tasks() == before


async def test_synchronous_nodes_run_beside_each_other():
    meeting = threading.Barrier(3)

    def node(state):
        meeting.wait(60)
        return {"messages": [AIMessage(f"OK: {state['messages'][-1].content}")]}

    backend = CallableBackend(graph(("node", node)))

    results = await asyncio.gather(*(backend.invoke_once(str(i)) for i in range(3)))

    assert [result.response for result in results] == ["OK: 0", "OK: 1", "OK: 2"]


async def test_callbacks_and_context_of_the_user_are_used(server, model):
    @dataclass
    class Customer:
        orders: list[str]

    seen, noticed = [], []

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, serialized, messages, **event):
            noticed.append(event["metadata"]["case"])

    async def node(state, runtime: Runtime[Customer]):
        seen.append(runtime.context)
        return await asking(model)(state)

    builder = StateGraph(MessagesState, context_schema=Customer)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    run = partial(
        builder.compile().ainvoke,
        config={"callbacks": [Handler()], "metadata": {"case": "mine"}},
        context=lambda: Customer(["7"]),
    )
    backend = CallableBackend(run)

    for _ in range(2):
        await backend.invoke_once("Hello")

    assert noticed == ["mine", "mine"]
    assert seen[0] == Customer(["7"])
    assert seen[0] is not seen[1]


class Question(TypedDict):
    question: str
    answer: str


def uncompiled():
    return StateGraph(MessagesState)


def without_messages():
    builder = StateGraph(Question)
    builder.add_node("answer", lambda _: {"answer": "42"})
    builder.add_edge(START, "answer")
    return builder.compile()


def with_other_input():
    class State(Question):
        messages: Annotated[list[Any], add_messages]

    builder = StateGraph(State, input_schema=Question)
    builder.add_node("answer", lambda _: {"answer": "42"})
    builder.add_edge(START, "answer")
    return builder.compile()


def functional():
    @entrypoint()
    def workflow(question):
        return "42"

    return workflow


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (uncompiled, "the graph is not compiled; name what graph.compile"),
        (without_messages, "no key 'messages', only question, answer; write a function around it"),
        (with_other_input, "no key 'messages', only question, answer; write a function around it"),
        (functional, "'question' of the entrypoint 'workflow' has no type that says what it takes"),
        (
            lambda: partial(graph(("a", lambda _: {})).ainvoke, stream_mode="values"),
            "'stream_mode' cannot be chosen for graph.ainvoke; write config or context",
        ),
    ],
)
async def test_what_cannot_be_tested_says_what_to_write(make, message):
    with pytest.raises(BackendInitError, match=message):
        await CallableBackend(make()).initialize()


async def call_and_answer(messages, model):
    """Ask the model, run the tools that it asks for, and ask it again."""
    said = [await model.bind_tools([lookup_order]).ainvoke(messages)]
    said += [await lookup_order.ainvoke(call) for call in said[0].tool_calls]
    return [*said, await model.ainvoke([*messages, *said])]


@pytest.mark.parametrize("returned", ["all messages", "new messages", "state", "text"])
async def test_an_entrypoint_is_read_like_a_graph(server, model, returned):
    server.reply(tool_calls=CALL).reply("it is late").reply("no").reply("welcome")

    @entrypoint()
    async def support(messages: list[BaseMessage]):
        said = await call_and_answer(messages, model)
        return {
            "all messages": [*messages, *said],
            "new messages": said,
            "state": {"messages": [*messages, *said]},
            "text": said[-1].text,
        }[returned]

    session = await CallableBackend(support).create_session()
    first, second = await session.send("Where is order 7?"), await session.send("Thanks")

    assert (first.response, second.response) == ("it is late", "welcome")
    [call] = first.tool_calls
    assert (call["name"], call["arguments"], call["agent"]) == (
        "lookup_order",
        {"order_id": "7"},
        "support",
    )
    assert [one["result"] for one in first.tool_results] == ["order 7 is late"]
    assert (second.tool_calls, first.agents) == ([], ["support"])
    assert (first.token_usage.prompt_tokens, first.tools) == (20, None)
    told = str(server.requests[-1].messages)
    assert "Where is order 7?" in told
    assert "it is late" in told


async def test_an_entrypoint_with_a_checkpointer_gets_what_it_saved(server, model):
    @entrypoint(checkpointer=InMemorySaver())
    async def support(messages: list[BaseMessage], *, previous=None):
        everything = [*(previous or []), *messages]
        answer = await model.ainvoke(everything)
        return entrypoint.final(value=answer, save=[*everything, answer])

    backend = CallableBackend(support)
    one, other = [await backend.create_session() for _ in range(2)]
    for session, message in ((one, "I am Ada"), (other, "I am Bob"), (one, "who am I")):
        result = await session.send(message)

    assert result.response == "OK: who am I"
    told = [message["content"] for message in server.requests[-1].messages]
    assert told == ["I am Ada", "OK: I am Ada", "who am I"]


async def test_an_entrypoint_takes_text_and_what_it_does_without_langchain_is_unknown():
    @task
    def shout(text):
        return text.upper()

    @entrypoint()
    def support(text: str) -> str:
        return shout(text).result()

    backend = CallableBackend(support)
    result = await backend.invoke_once("hello")

    assert (result.response, result.tool_calls, result.token_usage) == ("HELLO", None, None)
    with pytest.raises(BackendSessionError, match="takes one message as text, and no earlier ones"):
        await backend.invoke_once("hello", [{"role": "user", "content": "hi"}])


async def test_a_graph_that_says_nothing_is_an_error():
    backend = CallableBackend(graph(("silent", lambda _: {"messages": []})))

    with pytest.raises(BackendSessionError, match="without an answer: its last message is one of"):
        await backend.invoke_once("Hello")


async def test_nothing_is_sent_to_langsmith(server, model, monkeypatch):
    with FakeOpenAI() as langsmith:
        monkeypatch.setenv("LANGSMITH_ENDPOINT", langsmith.root)
        monkeypatch.setenv("LANGSMITH_API_KEY", "none")
        agent = create_agent(model, [lookup_order])
        server.reply(tool_calls=CALL).reply("Late.")

        await CallableBackend(agent).invoke_once("Where is 7?")

        assert langsmith.requests == []


async def test_the_tools_of_a_graph_are_known_only_of_an_agent(server, model):
    builder = StateGraph(MessagesState)
    builder.add_node("ask", asking(model))
    builder.add_node("tools", ToolNode([lookup_order]))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", tools_condition)
    server.otherwise("Hello.")

    custom = await CallableBackend(builder.compile()).invoke_once("Hello")
    created = await CallableBackend(create_agent(model, [lookup_order])).invoke_once("Hello")

    assert (custom.tools, created.tools) == (None, ["lookup_order"])
