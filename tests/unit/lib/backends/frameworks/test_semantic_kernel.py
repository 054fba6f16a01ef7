"""What is particular to agents and orchestrations of Semantic Kernel."""

import json
from functools import partial

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.test_runner.observe import BLOCKED, pair_tool_calls
from support.frameworks import lookup_order, results_of_turn, script
from support.frameworks.semantic_kernel import chat_completion_agent
from support.server import PATIENT_S


@pytest.fixture
async def members():
    """Two agents, whose model answers `OK: <message>`, and the server."""
    from openai import AsyncOpenAI
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

    with FakeOpenAI(script) as server:
        client = AsyncOpenAI(base_url=server.url, api_key="not-a-real-key", timeout=PATIENT_S)
        service = OpenAIChatCompletion("fake", async_client=client)
        yield [
            ChatCompletionAgent(service=service, name=name, description=name)
            for name in ("writer", "reviewer")
        ]
        await client.close()


async def test_agents_in_sequence_speak_one_after_the_other(members):
    from semantic_kernel.agents import SequentialOrchestration

    result = await CallableBackend(SequentialOrchestration(members=members)).invoke_once("hello")

    assert result.agents == ["writer", "reviewer"]
    assert result.response.startswith("OK: ")
    assert result.token_usage.total_tokens == 2 * 15


async def test_concurrent_agents_all_answer(members):
    from semantic_kernel.agents import ConcurrentOrchestration

    result = await CallableBackend(ConcurrentOrchestration(members=members)).invoke_once("hello")

    assert result.response == "OK: hello\n\nOK: hello"
    assert sorted(result.agents) == ["reviewer", "writer"]


async def test_the_manager_of_a_group_chat_begins_anew_for_each_turn(members):
    from semantic_kernel.agents import GroupChatOrchestration, RoundRobinGroupChatManager

    manager = RoundRobinGroupChatManager(max_rounds=2)
    backend = CallableBackend(GroupChatOrchestration(members=members, manager=manager))
    session = await backend.create_session()

    results = [await session.send(message) for message in ("one", "two")]

    assert [result.agents for result in results] == [["writer", "reviewer"]] * 2
    assert (manager.current_round, manager.current_index) == (0, 0)
    await session.close()


def magentic(members):
    """An orchestration whose manager asks the writer once, and then tells the outcome."""
    from semantic_kernel.agents import MagenticManagerBase, MagenticOrchestration, ProgressLedger
    from semantic_kernel.contents import ChatMessageContent

    def ledger(*, is_done):
        def item(answer):
            return {"reason": "as told", "answer": answer}

        return ProgressLedger.model_validate(
            {
                "is_request_satisfied": item(is_done),
                "is_in_loop": item(False),
                "is_progress_being_made": item(True),
                "next_speaker": item("writer"),
                "instruction_or_question": item("write it"),
            }
        )

    class Manager(MagenticManagerBase):
        async def plan(self, magentic_context):
            return ChatMessageContent(role="assistant", content="the plan")

        async def replan(self, magentic_context):
            return await self.plan(magentic_context)

        async def create_progress_ledger(self, magentic_context):
            return ledger(is_done=magentic_context.round_count > 1)

        async def prepare_final_answer(self, magentic_context):
            last = magentic_context.chat_history.messages[-1]
            return ChatMessageContent(role="assistant", content=f"done: {last.content}")

    return MagenticOrchestration(members=members, manager=Manager())


async def test_a_magentic_orchestration_answers_but_its_managers_tokens_are_unknown(members):
    result = await CallableBackend(magentic(members)).invoke_once("hello")

    assert result.response.startswith("done: OK:")
    assert result.agents == ["writer"]
    assert result.tool_calls == []
    assert result.token_usage is None


async def test_the_calls_of_members_are_all_known_beside_the_requests_of_a_manager():
    from semantic_kernel.agents import (
        ChatCompletionAgent,
        MagenticOrchestration,
        StandardMagenticManager,
    )
    from semantic_kernel.functions import kernel_function

    class Orders:
        lookup_order = staticmethod(kernel_function(name="lookup_order")(lookup_order))

    turns = ["writer", "clerk", None]

    def answer(request):
        if request.tools and not results_of_turn(request):
            return Reply(tool_calls=[(request.tools[0], {"order_id": "7"})])
        if not request.body.get("response_format"):
            return Reply("Order 7 is shipped.")
        name = turns.pop(0)
        fields = {"is_request_satisfied": name is None, "next_speaker": name or "writer"}
        fields |= {"is_in_loop": False, "is_progress_being_made": True}
        fields |= {"instruction_or_question": "Where is order 7?"}
        return Reply(json.dumps({key: {"reason": "", "answer": fields[key]} for key in fields}))

    with FakeOpenAI(answer) as server:
        service = chat_service(server)
        members = [
            ChatCompletionAgent(service=service, name=name, description=name, plugins=plugins)
            for name, plugins in (("writer", []), ("clerk", [Orders()]))
        ]
        manager = StandardMagenticManager(chat_completion_service=service)
        backend = CallableBackend(MagenticOrchestration(members=members, manager=manager))
        result = await backend.invoke_once("Where is order 7?")
        await service.client.close()

    assert [call["name"] for call in result.tool_calls] == ["Orders-lookup_order"]
    assert (result.tool_calls_problem, result.agents) == (None, ["writer", "clerk"])
    assert result.token_usage.total_tokens == 15 * len(server.requests)


async def test_a_magentic_orchestration_has_one_turn(members):
    session = await CallableBackend(magentic(members)).create_session()
    await session.send("hello")

    with pytest.raises(BackendError, match="takes one message and no earlier ones"):
        await session.send("again")
    await session.close()


async def test_the_request_that_shapes_the_output_of_an_orchestration_counts(members):
    from pydantic import BaseModel
    from semantic_kernel.agents import ConcurrentOrchestration
    from semantic_kernel.agents.orchestration.tools import structured_outputs_transform

    class Answer(BaseModel):
        text: str

    def answer(request):
        return Reply('{"text": "ok"}') if request.body.get("response_format") else script(request)

    with FakeOpenAI(answer) as server:
        service = chat_service(server)
        shaped = structured_outputs_transform(Answer, service)
        orchestration = ConcurrentOrchestration[str, Answer](
            members=members, output_transform=shaped
        )
        result = await CallableBackend(orchestration).invoke_once("hello")
        await service.client.close()

    assert result.structured_output == {"text": "ok"}
    assert result.token_usage.total_tokens == 3 * 15


def chat_service(server):
    from openai import AsyncOpenAI
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

    client = AsyncOpenAI(base_url=server.url, api_key="not-a-real-key", timeout=PATIENT_S)
    return OpenAIChatCompletion("fake", async_client=client)


async def test_a_prompt_function_that_the_model_calls_runs_and_its_request_counts():
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent

    with FakeOpenAI() as server:
        server.reply(tool_calls=[("texts-sum_up", {"text": "long"})]).reply("short").reply("Done.")
        service = chat_service(server)
        kernel = Kernel()
        kernel.add_service(service)
        kernel.add_function(plugin_name="texts", function_name="sum_up", prompt="Sum up: {{$text}}")
        result = await CallableBackend(ChatCompletionAgent(kernel=kernel)).invoke_once("hello")
        await service.client.close()
        requests = server.requests

    assert result.response == "Done."
    assert [call["name"] for call in result.tool_calls] == ["texts-sum_up"]
    assert (len(requests), result.token_usage.total_tokens) == (3, 3 * 15)


async def test_a_request_of_a_filter_counts():
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    with FakeOpenAI() as server:
        server.reply(tool_calls=[("orders-cancel", {})]).reply("It may.").reply("Done.")
        service = chat_service(server)
        kernel = Kernel()
        kernel.add_service(service)
        cancel = kernel_function(name="cancel")(lambda: "cancelled")
        kernel.add_function(plugin_name="orders", function=cancel)

        @kernel.filter("auto_function_invocation")
        async def ask_first(context, next):  # noqa: A002 - Semantic Kernel's name
            history = ChatHistory()
            history.add_user_message("May it?")
            settings = OpenAIChatPromptExecutionSettings()
            await service.get_chat_message_content(history, settings)
            await next(context)

        result = await CallableBackend(ChatCompletionAgent(kernel=kernel)).invoke_once("hello")
        await service.client.close()
        requests = server.requests

    assert [call["name"] for call in result.tool_calls] == ["orders-cancel"]
    assert (len(requests), result.token_usage.total_tokens) == (3, 3 * 15)


@pytest.mark.parametrize("kind", ["AUTO_FUNCTION_INVOCATION", "FUNCTION_INVOCATION"])
async def test_a_function_that_a_filter_blocks_was_called_but_did_not_run(kind):
    from semantic_kernel.filters import FilterTypes

    with FakeOpenAI(script) as server:
        subject = chat_completion_agent(server)

        @subject.agent.kernel.filter(FilterTypes[kind])
        async def block_order_7(context, next):  # noqa: A002 - Semantic Kernel passes it by this name
            if context.arguments["order_id"] != "7":
                await next(context)

        backend = CallableBackend(subject.agent)
        result = await backend.invoke_once("Where are order 7 and order 8?")
        await subject.close()

    first, second = pair_tool_calls(result.tool_calls, result.tool_results)
    assert (first.name, first.blocked) == ("OrderPlugin-lookup_order", True)
    assert first.error.startswith(BLOCKED)
    assert (second.blocked, second.error, second.result) == (False, None, "order 8 is shipped")


async def test_what_a_filter_answers_instead_of_the_function_is_the_message_of_the_call():
    from semantic_kernel.filters import FilterTypes
    from semantic_kernel.functions import FunctionResult

    with FakeOpenAI(script) as server:
        subject = chat_completion_agent(server)

        @subject.agent.kernel.filter(FilterTypes.AUTO_FUNCTION_INVOCATION)
        async def refuse(context, next):  # noqa: A002 - Semantic Kernel passes it by this name
            context.function_result = FunctionResult(
                function=context.function.metadata, value="against the policy"
            )

        result = await CallableBackend(subject.agent).invoke_once("Where is order 7?")
        await subject.close()

    [call] = pair_tool_calls(result.tool_calls, result.tool_results)
    assert (call.blocked, call.error) == (True, f"{BLOCKED}: against the policy")


async def test_an_agent_whose_service_keeps_its_threads_is_refused(members):
    from semantic_kernel.agents import OpenAIAssistantAgent, SequentialOrchestration

    with FakeOpenAI(script) as server:
        client = chat_service(server).client
        definition = {"id": "a", "created_at": 0, "model": "m", "object": "assistant", "tools": []}
        assistant = OpenAIAssistantAgent.model_construct(
            client=client, definition=definition, name="clerk"
        )
        for agent in (assistant, SequentialOrchestration(members=[assistant, *members])):
            with pytest.raises(BackendError, match="threads of a service"):
                await CallableBackend(agent).initialize()
        await client.close()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "in pieces"])
async def test_the_result_of_a_function_is_the_answer_if_a_filter_ends_the_turn_after_it(streams):
    from semantic_kernel.filters import FilterTypes

    with FakeOpenAI(script) as server:
        subject = chat_completion_agent(server)

        @subject.agent.kernel.filter(FilterTypes.AUTO_FUNCTION_INVOCATION)
        async def end(context, next):  # noqa: A002 - its name in Semantic Kernel
            await next(context)
            context.terminate = True

        run = partial(subject.agent.invoke_stream) if streams else subject.agent
        result = await CallableBackend(run).invoke_once("Where is order 7?")
        await subject.close()

    assert result.response == "order 7 is shipped"
    assert result.ends_with_calls
    assert [call["name"] for call in result.tool_calls] == ["OrderPlugin-lookup_order"]
    assert result.token_usage.total_tokens == 15


@pytest.mark.parametrize("method", ["invoke", "invoke_stream"])
async def test_the_method_that_is_named_decides_whether_requests_are_streamed(method):
    with FakeOpenAI(script) as server:
        subject = chat_completion_agent(server)
        run = partial(getattr(subject.agent, method))

        result = await CallableBackend(run).invoke_once("Where is order 7?")
        await subject.close()

    assert result.response == "OK: order 7 is shipped"
    is_streamed = [bool(request.body.get("stream")) for request in server.requests]
    assert is_streamed == [method == "invoke_stream"] * 2


@pytest.mark.parametrize("kind", ["Auto", "NoneInvoke"])
@pytest.mark.parametrize("method", ["invoke", "invoke_stream"])
async def test_a_function_that_is_not_invoked_is_a_call_without_an_answer(kind, method):
    from semantic_kernel.connectors.ai import FunctionChoiceBehavior

    behaviors = {
        "Auto": FunctionChoiceBehavior.Auto(auto_invoke=False),
        "NoneInvoke": FunctionChoiceBehavior.NoneInvoke(),
    }
    with FakeOpenAI(script) as server:
        subject = chat_completion_agent(server)
        subject.agent.function_choice_behavior = behaviors[kind]
        run = partial(getattr(subject.agent, method))

        result = await CallableBackend(run).invoke_once("Where is order 7?")
        await subject.close()

    assert (result.response, result.tool_results) == ("", [])
    assert result.ends_with_calls == (method == "invoke")
    if method == "invoke_stream":  # the framework drops the call
        assert "does not stream calls that it does not invoke" in result.tool_calls_problem
        return
    assert [call["name"] for call in result.tool_calls] == ["OrderPlugin-lookup_order"]
    assert result.tool_calls_problem is None
