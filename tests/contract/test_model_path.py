"""Our chat service for Semantic Kernel beside Semantic Kernel's own connector of OpenAI.

Both serve the same agent in front of the same server; the requests, the results and what the agent
reports are compared.
"""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.contents import ChatHistory, ImageContent, TextContent
from semantic_kernel.exceptions import ServiceException
from semantic_kernel.functions import KernelArguments, kernel_function

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError
from holodeck.lib.backends.semantic_kernel.model_chat import ModelChat
from holodeck.lib.llm.client import ChatClient
from holodeck.lib.llm.endpoint import Endpoint
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import CallLimits
from holodeck.lib.support.environment import proxy_for
from holodeck.models.llm import LLMProvider
from support.server import PATIENT_S
from support.tunnels import forwarding, listening, proxying, tls, write_certificate

LIMITS = CallLimits(
    timeout=PATIENT_S, attempt_timeout=PATIENT_S, retries=0, retry_delay=0.01, answer_bytes=10**6
)
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
}
NOT_SENT = {"stream"}
"""Keys that only Semantic Kernel's connector sends, with their default value."""


class Shop:
    """A plugin, whose first answer comes last."""

    @kernel_function(description="Look an order up.")
    async def lookup(self, order_id: str) -> str:
        await asyncio.sleep(0.05 if order_id == "7" else 0)
        return f"{order_id} is late"


@asynccontextmanager
async def service_of(whose, url):
    """Give our service, or that of Semantic Kernel, for a server."""
    if whose == "ours":
        llm = LLMProvider(provider="openai", name="fake", endpoint=url, api_key="not-a-real-key")
        client = ChatClient(Endpoint.of(llm, proxy_for), llm.name, LIMITS, Limiters())
        service = ModelChat.of("fake", client, takes_images=True)
    else:
        client = AsyncOpenAI(
            base_url=url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
    yield service
    await client.close()


def agent_of(service, choice=None, **settings):
    """Return an agent with the plugin; `choice` is none for no tools."""
    kernel = Kernel()
    kernel.add_service(service)
    if choice is not None:
        kernel.add_plugin(Shop(), "shop")
    values = service.get_prompt_execution_settings_class()(**settings)
    values.function_choice_behavior = choice
    return ChatCompletionAgent(
        kernel=kernel,
        name="support",
        instructions="Be brief.",
        arguments=KernelArguments(settings=values),
    )


async def conversation(whose, script, choice, message, settings):
    """Return what one of the services answers and reports, and the bodies that it sent."""
    with FakeOpenAI(script) as server:
        async with service_of(whose, server.url) as service:
            agent = agent_of(service, choice and choice(), **settings)
            response = await agent.get_response(messages=message)
        bodies = [request.body for request in server.requests]
    answer = response.message
    usage = answer.metadata["usage"]
    counts = usage if isinstance(usage, dict) or usage is None else usage.model_dump()
    facts = {
        "text": str(answer),
        "finish_reason": answer.finish_reason,
        "usage": counts and (counts["prompt_tokens"], counts["completion_tokens"]),
    }
    return facts, [normalized(body) for body in bodies]


def normalized(body):
    """Return a body whose results of parallel calls stand in the order of the calls."""
    body = {key: value for key, value in body.items() if key not in NOT_SENT}
    messages, results, order = [], [], []
    for message in body["messages"]:
        if message["role"] == "tool":
            results.append(message)
            continue
        messages += sorted(results, key=lambda result: order.index(result["tool_call_id"]))
        results = []
        calls = message.get("tool_calls", ())
        order = [call["id"] for call in calls] or order
        if calls:  # their connector leaves out the key, which OpenAI takes either way
            message.setdefault("content", None)
        messages.append(message)
    messages += sorted(results, key=lambda result: order.index(result["tool_call_id"]))
    return {**body, "messages": messages}


CALLS = Reply(
    None, tool_calls=[("shop-lookup", {"order_id": "7"}), ("shop-lookup", {"order_id": "8"})]
)
LOOKUP = [CALLS, Reply("Both are late.")]


def in_turn(replies):
    """Return a script that gives these replies one after the other."""
    return lambda request: replies[len(request.tool_results) // 2]


def picture(text):
    """Return a message with an image."""
    from semantic_kernel.contents import ChatMessageContent
    from semantic_kernel.contents.utils.author_role import AuthorRole

    image = ImageContent(data="aGk=", data_format="base64", mime_type="image/png")
    return ChatMessageContent(role=AuthorRole.USER, items=[TextContent(text=text), image])


ROWS = {
    "text": ([Reply("Hello.")], None, "hi", {}),
    "temperature, top_p, max_tokens": (
        [Reply("Hello.")],
        None,
        "hi",
        {"temperature": 0.25, "top_p": 0.5, "max_tokens": 7},
    ),
    "max_completion_tokens": ([Reply("Hello.")], None, "hi", {"max_completion_tokens": 7}),
    "reasoning effort": ([Reply("Hello.")], None, "hi", {"reasoning_effort": "low"}),
    "schema": ([Reply("{}")], None, "hi", {"response_format": SCHEMA}),
    "image": ([Reply("A cat.")], None, picture("What is it?"), {}),
    "two tools at once": (LOOKUP, FunctionChoiceBehavior.Auto, "Where are 7 and 8?", {}),
    "required tools": (LOOKUP, FunctionChoiceBehavior.Required, "Where are 7 and 8?", {}),
    "no tools": ([Reply("Hello.")], FunctionChoiceBehavior.NoneInvoke, "hi", {}),
    "answer at the limit of tokens": ([Reply("Hel", finish_reason="length")], None, "hi", {}),
    "content filter": ([Reply("", finish_reason="content_filter")], None, "hi", {}),
    "no usage": ([Reply("Hello.", usage=None)], None, "hi", {}),
    "refusal": (
        [
            Reply(
                json={
                    "id": "1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "fake",
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": "stop",
                            "message": {
                                "role": "assistant",
                                "content": None,
                                "refusal": "I won't.",
                            },
                        }
                    ],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
                }
            )
        ],
        None,
        "hi",
        {},
    ),
}


@pytest.mark.parametrize("row", ROWS)
async def test_our_service_does_what_semantic_kernels_connector_does(row):
    replies, choice, message, settings = ROWS[row]

    ours = await conversation("ours", in_turn(replies), choice, message, settings)
    theirs = await conversation("theirs", in_turn(replies), choice, message, settings)

    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]


async def test_results_of_parallel_calls_are_sent_in_the_order_of_the_calls():
    with FakeOpenAI(in_turn(LOOKUP)) as server:
        async with service_of("ours", server.url) as service:
            agent = agent_of(service, FunctionChoiceBehavior.Auto())
            await agent.get_response(messages="Where are 7 and 8?")
        messages = server.requests[1].body["messages"]

    results = [message for message in messages if message["role"] == "tool"]
    assert [result["content"] for result in results] == ["7 is late", "8 is late"]


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_stream_comes_in_pieces_with_its_calls_and_usage(whose):
    with FakeOpenAI(in_turn(LOOKUP)) as server:
        async with service_of(whose, server.url) as service:
            agent = agent_of(service, FunctionChoiceBehavior.Auto())
            stream = agent.invoke_stream("Where are 7 and 8?")
            pieces = [str(piece.message) async for piece in stream]
        bodies = [request.body for request in server.requests]

    assert "".join(pieces) == "Both are late."
    assert len([piece for piece in pieces if piece]) > 1
    assert [body["stream_options"] for body in bodies] == [{"include_usage": True}] * 2
    called = [call["function"]["name"] for call in bodies[1]["messages"][2]["tool_calls"]]
    assert called == ["shop-lookup", "shop-lookup"]
    arguments = [call["function"]["arguments"] for call in bodies[1]["messages"][2]["tool_calls"]]
    assert [json.loads(text) for text in arguments] == [{"order_id": "7"}, {"order_id": "8"}]


async def test_a_conversation_of_several_messages_is_sent_whole():
    bodies = []
    history = ChatHistory()
    history.add_system_message("Be brief.")
    history.add_user_message("hi")
    history.add_assistant_message("Hello.", name="support")
    history.add_user_message("again")
    for whose in ("ours", "theirs"):
        with FakeOpenAI(lambda _: Reply("Hello.")) as server:
            async with service_of(whose, server.url) as service:
                settings = service.get_prompt_execution_settings_class()()
                await service.get_chat_message_contents(history, settings)
            bodies.append(normalized(server.requests[0].body))

    assert bodies[0] == bodies[1]


async def answer_through(whose, certificate, *, is_secure, has_proxy, monkeypatch):
    """Return what a service answers from a server behind TLS or a proxy, or both, and what the
    proxy saw."""
    heads = []
    with FakeOpenAI(lambda _: Reply("Hello.")) as server:
        async with AsyncExitStack() as stack:
            url = server.url
            if is_secure:
                talk = forwarding(urlsplit(server.url).port)
                port = await stack.enter_async_context(listening(talk, ssl=tls(certificate)))
                url = f"https://127.0.0.1:{port}/v1"
            if has_proxy:
                port = await stack.enter_async_context(listening(proxying(heads)))
                for name in ("HTTP_PROXY", "HTTPS_PROXY"):
                    monkeypatch.setenv(name, f"http://me:p%40ss@127.0.0.1:{port}")
            service = await stack.enter_async_context(service_of(whose, url))
            answer = await agent_of(service).get_response(messages="hi")
        bodies = [normalized(request.body) for request in server.requests]
    wanted = ("connect ", "post ", "proxy-authorization")
    lines = [line for head in heads for line in head.lower().splitlines()]
    seen = [line.replace(url.split("/")[2], "SERVER") for line in lines if line.startswith(wanted)]
    return str(answer.message), bodies, sorted(seen)


@pytest.mark.parametrize(
    ("is_secure", "has_proxy", "first_line"),
    [
        (True, False, None),
        (False, True, "post http://server/v1/chat/completions http/1.1"),
        (True, True, "connect server http/1.1"),
    ],
    ids=["own certificate", "proxy", "own certificate behind a proxy"],
)
async def test_the_way_to_the_server_is_that_of_the_environment(
    tmp_path, monkeypatch, is_secure, has_proxy, first_line
):
    certificate = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    way = {"is_secure": is_secure, "has_proxy": has_proxy, "monkeypatch": monkeypatch}

    ours = await answer_through("ours", certificate, **way)
    theirs = await answer_through("theirs", certificate, **way)

    assert ours == theirs
    assert ours[0] == "Hello."
    lines = [line.lower() for line in ours[2]]
    credentials = "proxy-authorization: basic bwu6cebzcw=="
    assert lines == ([first_line, credentials] if has_proxy else [])


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_certificate_that_nobody_trusts_is_an_error(tmp_path, monkeypatch, whose):
    certificate = write_certificate(tmp_path)
    way = {"is_secure": True, "has_proxy": False, "monkeypatch": monkeypatch}

    with pytest.raises((BackendError, ServiceException)):
        await answer_through(whose, certificate, **way)
