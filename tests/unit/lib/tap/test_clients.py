"""What the tap reads of the requests of real clients, which notice nothing of it."""

import json

import openai
import pytest

from fakes import Reply, ToolCall
from holodeck.models.token_usage import TokenUsage

LOOKUP = ToolCall("lookup_order", {"id": 7, "note": "größer"}, id="call_7")
TOOLS = [{"type": "function", "function": {"name": "lookup_order", "parameters": {}}}]
ASKED = [{"role": "user", "content": "Where is order 7?"}]


def called(facts):
    """Name, arguments and result of each call."""
    assert facts.problem is None
    return [
        (call.name, json.loads(call.arguments), None if result is None else result.result)
        for call, result in facts.calls
    ]


def tokens(facts):
    return [one.token_usage and one.token_usage.total_tokens for one in facts.requests]


def with_result(content):
    """The messages with the call and what came of it."""
    function = {"name": LOOKUP.name, "arguments": LOOKUP.raw_arguments}
    call = {"id": LOOKUP.id, "type": "function", "function": function}
    return [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": LOOKUP.id, "content": content},
    ]


async def test_a_client_that_blocks_the_event_loop_gets_through(tapped):
    tapped.server.reply(tool_calls=[LOOKUP], usage=(20, 5)).reply("It is on its way.")

    client = openai.OpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")
    with client, tapped.channel.turn() as turn:
        ask = client.chat.completions.create
        first = ask(model="gpt-x", messages=ASKED, tools=TOOLS)
        second = ask(model="gpt-x", messages=with_result("shipped"), tools=TOOLS)

    assert first.choices[0].message.tool_calls[0].function.name == "lookup_order"
    assert second.choices[0].message.content == "It is on its way."
    assert called(turn) == [("lookup_order", LOOKUP.arguments, "shipped")]
    assert tokens(turn) == [25, 15]
    assert [one.model for one in turn.requests] == ["openai/gpt-x"] * 2


@pytest.mark.parametrize("has_usage", [True, False], ids=["usage", "no usage"])
async def test_the_pieces_of_a_stream_become_calls_and_usage_only_if_it_was_sent(tapped, has_usage):
    tapped.server.reply("Let me see.", tool_calls=[LOOKUP, ("other", {})], usage=(20, 5))
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    client = openai.AsyncOpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")

    with tapped.channel.turn() as turn:
        async with client:
            asked = client.chat.completions.create(
                model="gpt-x", messages=ASKED, stream=True, **options
            )
            pieces = [piece async for piece in await asked]

    assert len(pieces) > 5
    assert called(turn) == [("lookup_order", LOOKUP.arguments, None), ("other", {}, None)]
    assert tokens(turn) == [25 if has_usage else None]


async def test_calls_are_known_although_the_agent_stops_reading_at_the_finish_reason(tapped):
    tapped.server.reply(tool_calls=[LOOKUP])
    client = openai.AsyncOpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")

    with tapped.channel.turn() as turn:
        async with client:
            stream = await client.chat.completions.create(
                model="gpt-x", messages=ASKED, stream=True
            )
            async for piece in stream:
                if piece.choices[0].finish_reason is not None:
                    break
            await stream.close()

    assert called(turn) == [("lookup_order", LOOKUP.arguments, None)]


async def test_azure_is_read_and_its_deployment_is_the_model(tapped):
    tapped.server.reply(tool_calls=[LOOKUP])
    client = openai.AsyncAzureOpenAI(
        azure_endpoint=tapped.variables["AZURE_OPENAI_ENDPOINT"],
        azure_deployment="my-gpt",
        api_version="2024-10-21",
        api_key="key",
    )

    with tapped.channel.turn() as turn:
        async with client:
            await client.chat.completions.create(model="my-gpt", messages=ASKED)

    assert called(turn) == [("lookup_order", LOOKUP.arguments, None)]
    assert turn.requests[0].model == "azure_openai/my-gpt"
    [request] = tapped.server.requests
    assert request.path == "/openai/deployments/my-gpt/chat/completions"
    assert request.query == {"api-version": "2024-10-21"}


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "status": "completed",
    "model": "gpt-x",
    "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_7",
            "name": "lookup_order",
            "arguments": '{"id": 7}',
            "status": "completed",
        },
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 30,
        "output_tokens": 4,
        "total_tokens": 34,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}


def streamed_response():
    """The response as the events of a stream."""
    begun = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}]
    events += [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(RESPONSE["output"])
    ]
    events.append({"type": "response.completed", "response": RESPONSE})
    body = "".join(
        f"event: {one['type']}\r\ndata: {json.dumps({**one, 'sequence_number': number})}\r\n\r\n"
        for number, one in enumerate(events)
    )
    return Reply(body=body.encode(), headers={"content-type": "text/event-stream; charset=utf-8"})


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_the_responses_api_is_read_with_the_tools_of_the_provider(tapped, stream):
    tapped.server.reply(streamed_response() if stream else Reply(json=RESPONSE))
    tapped.server.reply(json={**RESPONSE, "output": []})
    result = {"type": "function_call_output", "call_id": "call_7", "output": "shipped"}
    client = openai.AsyncOpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")

    with tapped.channel.turn() as turn:
        async with client:
            first = await client.responses.create(model="gpt-x", input="Where?", stream=stream)
            if stream:
                assert [event.type async for event in first][-1] == "response.completed"
            await client.responses.create(
                model="gpt-x", input=[result], previous_response_id="resp_1"
            )

    assert called(turn) == [
        ("web_search", {"action": {"query": "x"}}, None),
        ("lookup_order", {"id": 7}, "shipped"),
    ]
    assert tokens(turn) == [34, 34]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_anthropic_messages_are_read(tapped, stream):
    import anthropic  # not above: it takes every process of the tests half a second

    tapped.server.reply("Let me see.", tool_calls=[LOOKUP], usage=(20, 5)).reply("There.")
    url = tapped.variables["ANTHROPIC_BASE_URL"]
    result = {"type": "tool_result", "tool_use_id": "call_7", "content": "gone", "is_error": True}
    use = {"type": "tool_use", "id": "call_7", "name": "lookup_order", "input": {}}
    told = [
        *ASKED,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]

    with anthropic.Anthropic(base_url=url, api_key="key") as client, tapped.channel.turn() as turn:
        for messages in (ASKED, told):
            asked = {"model": "claude-x", "max_tokens": 50, "messages": messages}
            if stream:
                with client.messages.stream(**asked) as events:
                    events.get_final_message()
            else:
                client.messages.create(**asked)

    [(call, answer)] = turn.calls
    assert json.loads(call.arguments) == LOOKUP.arguments
    assert (answer.result, answer.is_error) == ("gone", True)
    assert turn.requests[0].token_usage == TokenUsage.of(20, 5)
    assert turn.requests[0].model == "anthropic/claude-x"


async def test_anthropic_tokens_of_the_cache_are_prompt_tokens(tapped):
    import anthropic

    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "output_tokens": 7,
    }
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    tapped.server.reply(json=message)
    client = anthropic.AsyncAnthropic(
        base_url=tapped.variables["ANTHROPIC_BASE_URL"], api_key="key"
    )

    with tapped.channel.turn() as turn:
        async with client:
            await client.messages.create(model="claude-x", max_tokens=9, messages=ASKED)

    assert turn.requests[0].token_usage == TokenUsage.of(1105, 7)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_ollama_is_read(tapped, stream):
    import ollama

    tapped.server.reply("Let me see.", tool_calls=[LOOKUP], usage=(20, 5)).reply("There.")
    client = ollama.Client(host=tapped.variables["OLLAMA_HOST"])
    function = {"name": "lookup_order", "arguments": LOOKUP.arguments}
    told = [
        *ASKED,
        {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
        {"role": "tool", "tool_name": "lookup_order", "content": "shipped"},
    ]

    with tapped.channel.turn() as turn:
        for messages in (ASKED, told):
            answer = client.chat(model="llama-x", messages=messages, stream=stream)
            if stream:
                list(answer)
    client._client.close()

    assert called(turn) == [("lookup_order", LOOKUP.arguments, "shipped")]
    assert tokens(turn) == [25, 15]


async def test_embeddings_cost_tokens_but_say_nothing_about_tool_calls(tapped):
    vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    body = {"object": "list", "data": [vector], "model": "e", "usage": usage}
    tapped.server.when(lambda request: request.wants_embeddings, json=body)
    client = openai.AsyncOpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")

    with tapped.channel.turn() as turn:
        async with client:
            await client.embeddings.create(model="e", input="text", encoding_format="float")

    assert tokens(turn) == [8]
    assert "none asked a model for an answer" in turn.problem


async def test_a_server_that_gives_every_call_the_same_id_gets_results_in_order(tapped):
    repeated = ToolCall("lookup_order", {"id": 1}, id="call_0")
    tapped.server.reply(tool_calls=[repeated]).reply(tool_calls=[repeated]).reply("Done.")
    client = openai.AsyncOpenAI(base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key")
    messages = list(ASKED)

    with tapped.channel.turn() as turn:
        async with client:
            for number in (1, 2, 3):
                asked = await client.chat.completions.create(model="gpt-x", messages=messages)
                message = asked.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if message.tool_calls:
                    told = {"role": "tool", "tool_call_id": "call_0", "content": f"result {number}"}
                    messages.append(told)

    assert [result for _, _, result in called(turn)] == ["result 1", "result 2"]


async def test_a_request_that_failed_and_was_sent_again_requests_nothing(tapped):
    tapped.server.reply("overloaded", status=500).reply(tool_calls=[LOOKUP])
    client = openai.AsyncOpenAI(
        base_url=tapped.variables["OPENAI_BASE_URL"], api_key="key", max_retries=1
    )

    with tapped.channel.turn() as turn:
        async with client:
            await client.chat.completions.create(model="gpt-x", messages=ASKED)

    assert called(turn) == [("lookup_order", LOOKUP.arguments, None)]
    assert [one.status for one in turn.requests] == [500, 200]
