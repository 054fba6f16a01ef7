"""Workflows and orchestrations of Microsoft Agent Framework; the contract suite has the rest."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import pytest
from agent_framework import (
    Agent,
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    function_middleware,
    handler,
    tool,
)
from agent_framework_openai import OpenAIChatCompletionClient
from agent_framework_orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
)
from openai import AsyncOpenAI

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.support.approvals import ApprovalDecisions
from support.frameworks import lookup_order, results_of_turn
from support.server import PATIENT_S


def script(request):
    """Every agent says its name, and looks up the orders in the message of the user."""
    if "triage" in request.system and not results_of_turn(request):
        return Reply(tool_calls=[("handoff_to_billing", {})])
    if results := results_of_turn(request):
        return Reply(f"{request.system}: {results[-1]}")
    if "order" in request.prompt and request.tools:
        return Reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    return Reply(f"{request.system}: {request.prompt}")


@pytest.fixture
async def agents():
    """A function that makes agents on a fake server."""
    with FakeOpenAI(script) as server:
        connection = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        client = OpenAIChatCompletionClient(model="fake", async_client=connection)

        def make(name, *tools, **options):
            return Agent(client, name, name=name, tools=list(tools), **options)

        make.server = server
        yield make
        await connection.close()


@asynccontextmanager
async def backend_of(agent):
    backend = CallableBackend(agent)
    await backend.initialize()
    yield backend
    await backend.teardown()


HAND_OFF = {"require_per_service_call_history_persistence": True}
"""What the framework wants of agents that hand over."""


def handoff(make):
    members = [make(name, lookup_order, **HAND_OFF) for name in ("triage", "billing")]
    return HandoffBuilder(participants=members).with_start_agent(members[0])


@pytest.mark.parametrize("is_built", [False, True], ids=["builder", "workflow"])
async def test_agents_that_hand_over_are_named_in_order(agents, is_built):
    builder = handoff(agents)

    async with backend_of(builder.build() if is_built else builder) as backend:
        result = await backend.invoke_once("Where is order 7?")

    assert result.agents == ["triage", "billing"]
    assert result.response == "billing: order 7 is shipped"


async def test_a_transfer_that_middleware_of_the_user_refused_is_no_call_that_ran(agents):
    @function_middleware
    async def refuse(context, call_next):
        context.result = "no handoff_to anybody"

    members = [
        agents(name, lookup_order, middleware=[refuse], **HAND_OFF)
        for name in ("triage", "billing")
    ]
    async with backend_of(HandoffBuilder(participants=members).with_start_agent(members[0])) as one:
        result = await one.invoke_once("Where is order 7?")

    assert [call["blocked"] for call in result.tool_results] == [True]


@pytest.mark.parametrize("is_built", [False, True], ids=["builder", "workflow"])
async def test_conversations_with_a_hand_off_orchestration_do_not_see_each_other(agents, is_built):
    builder = handoff(agents)

    async with backend_of(builder.build() if is_built else builder) as backend:
        ada, bob = await backend.create_session(), await backend.create_session()
        await asyncio.gather(ada.send("I am Ada"), bob.send("I am Bob"))
        again = await ada.send("thanks")

    assert again.agents == ["billing"]
    for request in agents.server.requests:
        told = json.dumps(request.messages)
        assert ("Ada" in told) != ("Bob" in told)
    assert "I am Ada" in told


async def test_a_hand_off_continues_without_a_warning_of_the_framework(agents, caplog):
    async with backend_of(handoff(agents).build()) as backend:
        ada, bob = await backend.create_session(), await backend.create_session()
        await ada.send("I am Ada")
        await bob.send("I am Bob")
        await ada.send("thanks")

    assert "still pending" not in caplog.text


async def test_all_answers_of_concurrent_agents_are_the_answer(agents):
    builder = ConcurrentBuilder(participants=[agents("one"), agents("two")])

    async with backend_of(builder) as backend:
        result = await backend.invoke_once("hello")

    assert result.response == "one: hello\n\ntwo: hello"
    assert set(result.agents) == {"one", "two"}
    assert result.token_usage.prompt_tokens == 20


async def test_the_members_of_a_group_chat_are_named_in_order(agents):
    builder = GroupChatBuilder(
        participants=[agents("one"), agents("two")],
        selection_func=lambda state: ["one", "two"][state.current_round % 2],
        max_rounds=3,
    )

    async with backend_of(builder) as backend:
        result = await backend.invoke_once("hello")

    assert result.agents == ["one", "two", "one"]
    assert result.tool_calls == []
    assert result.token_usage.prompt_tokens == 30


def magentic(request):
    """The manager lets the member speak once, and is content then."""
    if "is_request_satisfied" in request.prompt:
        done = "order 7 is shipped" in json.dumps(request.messages)
        said = {
            "is_request_satisfied": done,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "clerk",
            "instruction_or_question": "Where is order 7?",
        }
        return Reply(
            json.dumps({key: {"answer": value, "reason": ""} for key, value in said.items()})
        )
    return script(request) if request.tools else Reply("a plan")


@pytest.mark.parametrize("has_tools", [False, True])
async def test_the_calls_of_magentic_are_known_unless_its_manager_has_tools(agents, has_tools):
    agents.server.otherwise(magentic)
    manager = agents("manager", *([lookup_order] if has_tools else []))
    builder = MagenticBuilder(
        participants=[agents("clerk", lookup_order)], manager_agent=manager, max_round_count=3
    )

    async with backend_of(builder) as backend:
        result = await backend.invoke_once("Where?")

    if has_tools:
        assert result.tool_calls is None
        return
    [call] = result.tool_calls
    assert (call["name"], call["agent"]) == ("lookup_order", "clerk")
    assert result.agents == ["clerk"]
    requests = len(agents.server.requests)
    assert result.token_usage.prompt_tokens == 10 * requests  # those of the manager, too


async def test_what_an_executor_of_the_user_does_is_unknown(agents):
    @executor(id="shout")
    async def shout(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text.upper())

    async with backend_of(WorkflowBuilder(start_executor=shout).build()) as backend:
        result = await backend.invoke_once("hello")

    assert result.response == "HELLO"
    assert (result.tool_calls, result.token_usage, result.agents) == (None, None, None)


class Counter(Executor):
    """Keeps state that no checkpoint has."""

    def __init__(self):
        super().__init__(id="counter")
        self.count = 0

    @handler
    async def add(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        self.count += 1
        await ctx.yield_output(str(self.count))


async def test_an_executor_that_keeps_state_from_case_to_case_is_told_once(caplog):
    caplog.set_level(logging.WARNING)

    async with backend_of(WorkflowBuilder(start_executor=Counter()).build()) as backend:
        answers = [(await backend.invoke_once("hello")).response for _ in range(3)]

    assert answers == ["1", "2", "3"]
    [warning] = caplog.messages
    assert warning.startswith("the executor 'counter' keeps count = 1 from an earlier case;")


class Saver(Counter):
    """Keeps state that a checkpoint has."""

    async def on_checkpoint_save(self):
        return {"count": self.count}

    async def on_checkpoint_restore(self, state):
        self.count = state["count"]


async def test_a_builder_whose_workflows_share_executors_is_used_in_turn():
    backend = CallableBackend(WorkflowBuilder(start_executor=Saver()))
    await backend.initialize()
    ada, bob = await backend.create_session(), await backend.create_session()

    answers = [(await one.send("hello")).response for one in (ada, ada, bob, ada, bob)]

    assert answers == ["1", "2", "1", "3", "2"]
    assert backend.capabilities.concurrency == 1
    await backend.teardown()


async def test_a_workflow_whose_state_cannot_be_copied_says_what_to_do():
    class Stubborn(Counter):
        async def on_checkpoint_save(self):
            raise ValueError("not today")

    async with backend_of(WorkflowBuilder(start_executor=Stubborn()).build()) as backend:
        with pytest.raises(BackendError, match=r"cannot be copied.*name a function"):
            await backend.invoke_once("hello")


class Question(Executor):
    """Asks a person."""

    def __init__(self):
        super().__init__(id="question")

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(text, str)


async def test_a_workflow_that_waits_for_a_person_is_an_error():
    async with backend_of(WorkflowBuilder(start_executor=Question()).build()) as backend:
        with pytest.raises(BackendError, match="'question' asks for a str, and a test has none"):
            await backend.invoke_once("hello")


async def test_a_workflow_that_takes_no_text_is_an_error():
    class Numbers(Executor):
        @handler
        async def take(self, number: int, ctx: WorkflowContext[None, int]) -> None:
            await ctx.yield_output(number)

    workflow = WorkflowBuilder(start_executor=Numbers(id="numbers")).build()

    async with backend_of(workflow) as backend:
        with pytest.raises(BackendError, match="begins with 'numbers', which takes int; holodeck"):
            await backend.invoke_once("hello")


async def test_a_workflow_as_an_agent_is_the_workflow(agents):
    workflow = SequentialBuilder(participants=[agents("one", lookup_order)]).build()

    async with backend_of(workflow.as_agent("pair")) as backend:
        result = await backend.invoke_once("order 7")

    assert (result.agents, result.response) == (["one"], "one: order 7 is shipped")
    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]


async def test_a_workflow_as_an_agent_with_a_memory_of_all_cases_is_refused(agents):
    from agent_framework import InMemoryHistoryProvider

    workflow = SequentialBuilder(participants=[agents("one")]).build()
    agent = workflow.as_agent("pair", context_providers=[InMemoryHistoryProvider()])

    with pytest.raises(BackendInitError, match="name the workflow itself"):
        await CallableBackend(agent).initialize()


def refund(order_id: str) -> str:
    """Refund an order."""
    return f"order {order_id} is refunded"


def refunding(request):
    """The triage hands over to billing, which looks an order up before it refunds it."""
    results = results_of_turn(request)
    if "handoff_to_billing" in request.tools and not results:
        return Reply(tool_calls=[("handoff_to_billing", {})])
    if not request.tools:
        return Reply("hello")
    for name, word in (("lookup_order", "shipped"), ("refund", "refunded")):
        if not any(word in result for result in results):
            return Reply(tool_calls=[(name, {"order_id": "7"})])
    return Reply(results[-1])


@pytest.mark.parametrize("kind", [SequentialBuilder, ConcurrentBuilder, HandoffBuilder])
async def test_what_an_agent_did_before_it_asks_for_an_approval_is_known(agents, kind):
    agents.server.otherwise(refunding)
    options = HAND_OFF if kind is HandoffBuilder else {}
    asking = tool(refund, approval_mode="always_require")
    members = [agents("triage", **options), agents("billing", lookup_order, asking, **options)]
    builder = kind(participants=members)
    if kind is HandoffBuilder:
        builder = builder.with_start_agent(members[0])

    async with backend_of(builder) as backend:
        session = await backend.create_session()
        first = await session.send("Refund order 7")
        turn = first.followed_by(await session.send(ApprovalDecisions([True])))
        await session.close()

    handed_over = ["handoff_to_billing"] * (kind is HandoffBuilder)
    assert [call["name"] for call in first.pending_approvals] == ["refund"]
    assert [call["name"] for call in turn.tool_calls] == [*handed_over, "lookup_order", "refund"]
    results = [result["result"] for result in turn.tool_results]
    assert results[-2:] == ["order 7 is shipped", "order 7 is refunded"]
    assert (turn.tool_calls_problem, turn.agents) == (None, ["triage", "billing"])
    assert turn.token_usage.total_tokens == 15 * len(agents.server.requests)
