"""The Semantic Kernel agent against a real server on loopback."""

import asyncio

import pytest

from fakes import Reply
from holodeck.errors import AgentFactoryError, ConfigError
from holodeck.lib.backends.base import AgentBackend, AgentSession
from holodeck.lib.test_runner.agent_factory import AgentFactory, AgentThreadRun
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

WEATHER = '''
def get_weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise LookupError("it has sunk")
    return f"3 degrees in {city}"
'''


@pytest.fixture
def build(tmp_path, fake_openai):
    """Builds a factory whose agent talks to the fake server."""
    (tmp_path / "tools.py").write_text(WEATHER)

    def build(model=None, execution=None, **fields):
        raw = {
            "name": "weather man",
            "model": {
                "provider": "openai",
                "name": "fake",
                "endpoint": fake_openai.url,
                "api_key": "not-a-real-key",
            }
            | (model or {}),
            "instructions": {"inline": "Be helpful."},
        } | fields
        limits = ExecutionConfig(**({"llm_timeout": 60, "retry_delay": 0.01} | (execution or {})))
        agent = Agent.model_validate(raw).with_base_dir(tmp_path)
        return AgentFactory(agent, execution_config=limits)

    return build


WITH_TOOL = [
    {"type": "function", "name": "get_weather", "file": "tools.py", "function": "get_weather"}
]


async def test_the_factory_and_its_runs_keep_the_protocols(build):
    factory = build()

    assert isinstance(factory, AgentBackend)
    assert isinstance(await factory.create_session(), AgentSession)


async def test_instructions_are_sent_word_for_word(build, fake_openai):
    text = "Use {{braces}} and {{$variables}} & <tags>, as they stand."
    factory = build(instructions={"inline": text})

    await factory.invoke_once("hi")
    await factory.shutdown()

    assert fake_openai.requests[0].body["messages"][0]["content"] == text


async def test_each_run_starts_from_an_empty_history(build, fake_openai):
    factory = build()

    await factory.invoke_once("first secret")
    await factory.invoke_once("second")
    await factory.shutdown()

    assert "first secret" not in str(fake_openai.requests[1].body)


async def test_a_session_remembers(build, fake_openai):
    factory = build()
    session = await factory.create_session()

    await session.send("my name is Ada")
    await session.send("who am I?")
    await factory.shutdown()

    said = [message["content"] for message in fake_openai.requests[1].body["messages"]]
    assert said[1] == "my name is Ada"
    assert said[-1] == "who am I?"


async def test_earlier_messages_come_before_the_input(build, fake_openai):
    factory = build()
    context = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    await factory.invoke_once("c", context)
    await factory.shutdown()

    said = [message["content"] for message in fake_openai.requests[0].body["messages"]]
    assert said[1:] == ["a", "b", "c"]


async def test_tool_calls_results_and_tokens_are_collected(build, fake_openai):
    fake_openai.reply(
        tool_calls=[("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})],
        usage=(10, 5),
    )
    fake_openai.reply("It is 3 degrees.", usage=(20, 7))
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert result.response == "It is 3 degrees."
    assert [call["arguments"] for call in result.tool_calls] == [
        {"city": "Paris"},
        {"city": "Rome"},
    ]
    assert [one["result"] for one in result.tool_results] == [
        "3 degrees in Paris",
        "3 degrees in Rome",
    ]
    assert result.token_usage.prompt_tokens == 30
    assert result.token_usage.completion_tokens == 12


async def test_the_model_sees_the_tool_under_its_plain_name(build, fake_openai):
    factory = build(tools=WITH_TOOL)

    await factory.invoke_once("hi")
    await factory.shutdown()

    [tool] = fake_openai.requests[0].body["tools"]
    assert tool["function"]["name"] == "get_weather"
    assert tool["function"]["parameters"]["properties"]["city"]["type"] == "string"


async def test_a_tool_that_raises_is_an_error_and_the_agent_goes_on(build, fake_openai):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Atlantis"})])
    fake_openai.reply("I cannot say.")
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    [failed] = result.tool_results
    assert failed["is_error"]
    assert "it has sunk" in failed["result"]
    assert not failed.get("refused")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("erase_disk", {}), "not part of the provided tools"),
        (("get_weather", '{"city":'), "malformed"),
        (("get_weather", {"town": "Paris"}), "city is missing"),
    ],
    ids=["unknown tool", "malformed", "wrong arguments"],
)
async def test_a_call_that_no_tool_can_take_is_refused(build, fake_openai, call, reason):
    fake_openai.reply(tool_calls=[call])
    fake_openai.reply("Sorry.")
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    [refused] = result.tool_results
    assert refused["refused"]
    assert reason in refused["result"]


async def test_calls_with_the_same_id_keep_their_own_results(build, fake_openai):
    fake_openai.reply(
        tool_calls=[("get_weather", {"city": "Paris"}, "x"), ("get_weather", {"city": "Rome"}, "x")]
    )
    fake_openai.reply("Done.")
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    found = {one["call_id"]: one["result"] for one in result.tool_results}
    assert sorted(found.values()) == ["3 degrees in Paris", "3 degrees in Rome"]


async def test_an_agent_that_never_stops_calling_tools_is_stopped(build, fake_openai):
    fake_openai.otherwise(
        lambda request: (
            Reply(tool_calls=[("get_weather", {"city": "Paris"})])
            if request.body.get("tools")
            else Reply("enough")
        )
    )
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert result.is_error
    assert "20 rounds" in result.error_reason
    assert len(result.tool_calls) == 20


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_transient_status_is_tried_again(build, fake_openai, status):
    fake_openai.reply(status=status)
    fake_openai.reply("fine")
    factory = build()

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.response == "fine"
    assert [tried.number for tried in result.attempts] == [1]
    assert str(status) in result.attempts[0].error


@pytest.mark.parametrize("fault", ["reset", "close", "truncate"])
async def test_a_broken_connection_is_tried_again(build, fake_openai, fault):
    fake_openai.reply(fault=fault)
    fake_openai.reply("fine")
    factory = build()

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.response == "fine"


@pytest.mark.parametrize(
    "broken",
    [
        {"body": b"<html>busy</html>", "headers": {"content-type": "text/html"}},
        {"body": b'{"choices": ['},
        {"body": b""},
        {
            "json": {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [],
            }
        },
    ],
    ids=["html", "half a body", "nothing", "no choices"],
)
async def test_an_answer_that_is_none_is_tried_again(build, fake_openai, broken):
    fake_openai.reply(**broken)
    fake_openai.reply("fine")
    factory = build()

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.response == "fine"
    assert len(result.attempts) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_permanent_status_is_not_tried_again(build, fake_openai, status):
    fake_openai.otherwise(status=status)
    factory = build()

    with pytest.raises(AgentFactoryError, match=str(status)) as raised:
        await factory.invoke_once("hi")
    await factory.shutdown()

    assert len(fake_openai.requests) == 1
    assert len(raised.value.attempts) == 1


async def test_tries_end_and_the_error_counts_them(build, fake_openai):
    fake_openai.otherwise(status=503)
    factory = build(execution={"max_retries": 2})

    with pytest.raises(AgentFactoryError, match=r"503.*after 3 attempts"):
        await factory.invoke_once("hi")
    await factory.shutdown()

    assert len(fake_openai.requests) == 3


async def test_the_wait_that_a_provider_asks_for_is_kept(build, fake_openai):
    fake_openai.reply(status=429, headers={"retry-after-ms": "300"})
    fake_openai.reply("fine")
    factory = build()

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert 300 <= result.attempts[0].retry_after_ms <= 330


async def test_a_wait_that_is_too_long_ends_the_call(build, fake_openai):
    fake_openai.reply(status=429, headers={"retry-after": "86400"})
    factory = build()

    with pytest.raises(AgentFactoryError, match="asks to wait 86400 s"):
        await factory.invoke_once("hi")
    await factory.shutdown()


async def test_a_request_that_fails_after_a_tool_ran_does_not_run_the_tool_again(
    build, fake_openai
):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Paris"})])
    fake_openai.reply(status=503)
    fake_openai.reply("3 degrees")
    factory = build(tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert result.response == "3 degrees"
    assert len(result.tool_calls) == 1
    assert len(fake_openai.requests) == 3


async def test_the_whole_call_is_limited_and_what_was_seen_is_kept(build, fake_openai):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Paris"})])
    fake_openai.otherwise(fault="hang")
    factory = build(tools=WITH_TOOL, execution={"llm_timeout": 2})

    with pytest.raises(AgentFactoryError, match=r"timeout after 2s") as raised:
        await factory.invoke_once("weather?")
    await factory.shutdown()

    assert [call["name"] for call in raised.value.seen.tool_calls] == ["get_weather"]


async def test_an_attempt_that_hangs_is_tried_again(build, fake_openai):
    fake_openai.reply(fault="hang").otherwise("fine")
    factory = build(execution={"attempt_timeout": 1, "max_retries": 20, "retry_delay": 0})

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.response == "fine"
    assert result.attempts[0].error == "no answer in time"


async def test_a_failed_message_leaves_no_trace_in_the_session(build, fake_openai):
    fake_openai.reply(status=400)
    fake_openai.reply("fine")
    factory = build()
    session = await factory.create_session()

    with pytest.raises(AgentFactoryError):
        await session.send("lost")
    await session.send("kept")
    await factory.shutdown()

    assert "lost" not in str(fake_openai.requests[1].body)


async def test_an_answer_comes_in_pieces(build, fake_openai):
    fake_openai.reply("one two three")
    factory = build()
    session = await factory.create_session()

    pieces = [piece async for piece in session.send_streaming("hi")]
    await factory.shutdown()

    assert "".join(pieces) == "one two three"


async def test_cancelling_leaves_no_task_behind(build, fake_openai):
    fake_openai.otherwise(fault="hang")
    factory = build()
    task = asyncio.create_task(factory.invoke_once("hi"))
    await fake_openai.saw(1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await factory.shutdown()


def test_one_factory_serves_one_event_loop_after_the_other(build, fake_openai):
    factory = build()

    async def once():
        result = await factory.invoke_once("hi")
        await factory.shutdown()
        return result.response

    assert asyncio.run(once()) == asyncio.run(once())


async def test_a_schema_for_the_answer_is_sent_and_the_answer_parsed(build, fake_openai):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fake_openai.reply('{"n": 3}')
    factory = build(response_format=schema)

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.structured_output == {"n": 3}
    sent = fake_openai.requests[0].body["response_format"]
    assert sent["json_schema"]["strict"] is True


@pytest.mark.parametrize("limit_s", [60, None])
async def test_a_run_made_by_hand_keeps_its_own_limits(build, fake_openai, limit_s):
    fake_openai.otherwise(status=503)
    factory = build()
    run = AgentThreadRun(
        agent=factory.agent,
        kernel=factory.kernel,
        kernel_arguments=factory.kernel_arguments,
        timeout=limit_s,
        max_retries=1,
        retry_delay=0.01,
    )

    with pytest.raises(AgentFactoryError, match="after 2 attempts"):
        await run.invoke("hi")
    await factory.shutdown()


def test_a_key_that_is_missing_is_named(build):
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        build(model={"provider": "anthropic", "api_key": None})


@pytest.mark.parametrize("provider", ["azure_openai", "anthropic", "ollama"])
async def test_every_provider_answers_calls_tools_and_counts(build, fake_openai, provider):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Paris"})], usage=(10, 5))
    fake_openai.reply("3 degrees", usage=(20, 7))
    factory = build(model={"provider": provider, "endpoint": fake_openai.root}, tools=WITH_TOOL)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert result.response == "3 degrees"
    assert result.tool_results[0]["result"] == "3 degrees in Paris"
    assert result.token_usage.total_tokens == 42
    assert fake_openai.requests[0].dialect == ("anthropic" if provider == "anthropic" else "openai")


@pytest.mark.parametrize("provider", ["azure_openai", "anthropic", "ollama"])
async def test_every_provider_tries_again(build, fake_openai, provider):
    fake_openai.reply(status=503)
    fake_openai.reply("fine")
    factory = build(model={"provider": provider, "endpoint": fake_openai.root})

    result = await factory.invoke_once("hi")
    await factory.shutdown()

    assert result.response == "fine"


async def test_calls_share_the_slots_of_their_endpoint_and_waiting_costs_no_time(
    build, fake_openai
):
    fake_openai.otherwise("fine", latency_s=0.1)
    factory = build(execution={"parallel_test_cases": 2, "llm_timeout": 1})

    results = await asyncio.gather(*[factory.invoke_once(f"{n}") for n in range(24)])
    await factory.shutdown()

    assert fake_openai.peak_in_flight == 2
    assert max(result.waited_ms for result in results) > 1000


async def test_a_provider_that_allows_ten_at_once_is_not_overrun(build, fake_openai):
    def answer(request):
        if request.in_flight > 10:
            return Reply(status=429, headers={"retry-after-ms": "100"})
        return Reply("fine", latency_s=0.02)

    fake_openai.otherwise(answer)
    factory = build(execution={"parallel_test_cases": 100})

    results = await asyncio.gather(*[factory.invoke_once(f"{n}") for n in range(100)])
    await factory.shutdown()

    assert {result.response for result in results} == {"fine"}
    assert len(fake_openai.requests) <= 160


def searched(found, *rest, call_id="srvtoolu_1", calls=()):
    """A reply of Anthropic's model, which searched the web before."""
    use = {"type": "server_tool_use", "id": call_id, "name": "web_search"}
    content = [
        {"type": "text", "text": "I look it up."},
        use | {"input": {"query": "weather Paris"}},
        {"type": "web_search_tool_result", "tool_use_id": call_id, "content": found},
        *rest,
        *calls,
    ]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake"}
    usage = {"input_tokens": 10, "output_tokens": 5}
    reason = "tool_use" if calls else "end_turn"
    return Reply(json=head | {"content": content, "stop_reason": reason, "usage": usage})


PAGE = {
    "type": "web_search_result",
    "title": "Paris",
    "url": "https://weather.example/paris",
    "encrypted_content": "x" * 100,
}
FOUND = {"title": "Paris", "url": "https://weather.example/paris"}
ANSWER = [{"type": "text", "text": " It has "}, {"type": "text", "text": "3 degrees."}]


@pytest.fixture
def build_claude(build, fake_openai):
    def build_claude(**settings):
        model = {"provider": "anthropic", "endpoint": fake_openai.root}
        return build(model=model, claude=settings, tools=WITH_TOOL)

    return build_claude


@pytest.mark.parametrize(
    ("found", "result", "is_error"),
    [
        ([PAGE], [FOUND], False),
        (
            {"type": "web_search_tool_result_error", "error_code": "unavailable"},
            "unavailable",
            True,
        ),
    ],
    ids=["found", "failed"],
)
async def test_a_web_search_of_anthropic_is_a_tool_call(
    build_claude, fake_openai, found, result, is_error
):
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris"}}
    fake_openai.reply(searched(found, calls=[call]))
    fake_openai.reply(searched(found, *ANSWER, call_id="srvtoolu_2"))
    factory = build_claude(web_search=True)

    seen = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert seen.response == "I look it up. It has 3 degrees."
    assert [call["name"] for call in seen.tool_calls] == ["web_search", "get_weather", "web_search"]
    assert seen.tool_calls[0]["arguments"] == {"query": "weather Paris"}
    searches = [row for row in seen.tool_results if row["name"] == "web_search"]
    assert [(row["result"], row.get("is_error", False)) for row in searches] == [
        (result, is_error)
    ] * 2
    assert not any(row.get("refused") for row in seen.tool_results)
    assert [tool["name"] for tool in fake_openai.requests[1].body["tools"]] == [
        "get_weather",
        "web_search",
    ]


async def test_a_web_search_that_anthropic_pauses_is_an_error(build_claude, fake_openai):
    reply = searched([PAGE])
    reply.json["stop_reason"] = "pause_turn"
    fake_openai.reply(reply)
    factory = build_claude(web_search=True)

    with pytest.raises(AgentFactoryError, match="Anthropic paused the response"):
        await factory.invoke_once("weather?")
    await factory.shutdown()


async def test_max_turns_of_claude_ends_a_turn(build_claude, fake_openai):
    fake_openai.otherwise(tool_calls=[("get_weather", {"city": "Paris"})])
    factory = build_claude(max_turns=2)

    result = await factory.invoke_once("weather?")
    await factory.shutdown()

    assert (result.is_error, result.error_reason) == (True, "stopped after 2 rounds of tool calls")
    assert len(result.tool_results) == 2
