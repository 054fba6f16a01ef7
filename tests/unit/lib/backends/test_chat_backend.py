"""The direct backend against a real server on loopback."""

import asyncio
import random
import subprocess
import sys

import pytest

from fakes import Reply, clean_environment
from holodeck.errors import BackendError, BackendTimeoutError, ConfigError
from holodeck.lib.test_runner.agent_factory import chat_backend
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

WEATHER = '''
def get_weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise LookupError("it has sunk")
    return f"3 degrees in {city}"
'''
WITH_TOOL = [
    {"type": "function", "name": "get_weather", "file": "tools.py", "function": "get_weather"}
]
PARIS = ("get_weather", {"city": "Paris"})


@pytest.fixture
async def build(tmp_path, fake_openai):
    """Builds a backend whose agent talks to the fake server; lets go of it in the end."""
    (tmp_path / "tools.py").write_text(WEATHER)
    built = []

    def build(model=None, execution=None, **fields):
        raw = {
            "name": "weather man",
            "backend": "chat",
            "model": {"provider": "openai", "name": "fake", "endpoint": fake_openai.url}
            | (model or {}),
            "instructions": {"inline": "Be helpful."},
        } | fields
        limits = ExecutionConfig(**({"llm_timeout": 60, "retry_delay": 0.01} | (execution or {})))
        built.append(chat_backend(Agent.model_validate(raw).with_base_dir(tmp_path), limits))
        return built[-1]

    yield build
    for backend in built:
        await backend.teardown()


async def test_instructions_are_sent_word_for_word(build, fake_openai):
    text = "Use {{braces}} and {{$variables}} & <tags>, as they stand."

    await build(instructions={"inline": text}).invoke_once("hi")

    assert fake_openai.requests[0].messages == [
        {"role": "system", "content": text},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize(
    ("model", "path", "header"),
    [
        ({"api_key": "k-1"}, "/v1/chat/completions", ("authorization", "Bearer k-1")),
        ({}, "/v1/chat/completions", ("authorization", None)),
        (
            {"provider": "azure_openai", "name": "my gpt", "api_key": "k-2"},
            "/v1/openai/deployments/my%20gpt/chat/completions",
            ("api-key", "k-2"),
        ),
    ],
    ids=["openai", "no key", "azure"],
)
async def test_each_kind_of_server_is_asked_its_own_way(build, fake_openai, model, path, header):
    await build(model).invoke_once("hi")

    [request] = fake_openai.requests
    assert request.path in {path, path.replace("%20", " ")}
    assert request.headers.get(header[0]) == header[1]
    assert request.query == ({"api-version": "2024-10-21"} if "azure" in str(model) else {})
    limit = "max_completion_tokens" if "azure" in str(model) else "max_tokens"
    assert request.body[limit] == 1000


async def test_tool_calls_results_and_tokens_are_collected(build, fake_openai):
    fake_openai.reply(tool_calls=[PARIS, ("get_weather", {"city": "Rome"})], usage=(10, 5))
    fake_openai.reply("It is 3 degrees.", usage=(20, 7))

    result = await build(tools=WITH_TOOL).invoke_once("weather?")

    assert result.response == "It is 3 degrees."
    assert [call["arguments"] for call in result.tool_calls] == [
        {"city": "Paris"},
        {"city": "Rome"},
    ]
    assert [one["result"] for one in result.tool_results] == [
        "3 degrees in Paris",
        "3 degrees in Rome",
    ]
    assert (result.token_usage.prompt_tokens, result.token_usage.completion_tokens) == (30, 12)
    assert fake_openai.requests[0].tools == ["get_weather"]
    assert fake_openai.requests[1].tool_results == ["3 degrees in Paris", "3 degrees in Rome"]


async def test_a_tool_that_raises_is_an_error_and_the_agent_goes_on(build, fake_openai):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Atlantis"})])
    fake_openai.reply("I cannot say.")

    [failed] = (await build(tools=WITH_TOOL).invoke_once("weather?")).tool_results

    assert failed["is_error"]
    assert "it has sunk" in failed["result"]
    assert not failed.get("refused")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("erase_disk", {}), "not part of the provided tools; there are: get_weather"),
        (("get_weather", '{"city":'), "malformed"),
        (("get_weather", '{"city": NaN}'), "NaN is not JSON"),
        (("get_weather", '{"city": ' + "9" * 100_000 + "}"), "malformed"),
        (("get_weather", "[1]"), "not a JSON object"),
        (("get_weather", '{"city": ' + "[" * 100_000), "more than 100 levels"),
        (("get_weather", '{"city": ' + "[" * 200 + "]" * 200 + "}"), "more than 100 levels"),
        (("get_weather", {"town": "Paris"}), "city"),
    ],
    ids=["unknown", "cut", "NaN", "huge", "list", "endless", "deep", "wrong arguments"],
)
async def test_a_call_that_no_tool_can_take_is_refused_and_the_model_told(
    build, fake_openai, call, reason
):
    fake_openai.reply(tool_calls=[call])
    fake_openai.reply("Sorry.")

    [refused] = (await build(tools=WITH_TOOL).invoke_once("weather?")).tool_results

    assert refused["refused"]
    assert reason in refused["result"]
    assert fake_openai.requests[1].tool_results == [refused["result"]]


async def test_calls_with_the_same_id_keep_their_own_results(build, fake_openai):
    cities = ["Paris", "Rome", "Oslo"]
    ids = ["x", "x", ""]
    fake_openai.reply(
        tool_calls=[("get_weather", {"city": c}, i) for c, i in zip(cities, ids, strict=True)]
    )
    fake_openai.reply("Done.")

    result = await build(tools=WITH_TOOL).invoke_once("weather?")

    found = {one["call_id"]: one["result"] for one in result.tool_results}
    assert list(found.values()) == [f"3 degrees in {city}" for city in cities]
    assert [call["call_id"] for call in result.tool_calls] == list(found)


async def test_a_thousand_calls_at_once_are_all_answered(build, fake_openai):
    fake_openai.reply(tool_calls=[PARIS] * 1000)
    fake_openai.reply("Done.")

    result = await build(tools=WITH_TOOL).invoke_once("weather?")

    assert len(result.tool_results) == 1000


async def test_an_agent_that_never_stops_calling_tools_is_stopped(build, fake_openai):
    fake_openai.otherwise(tool_calls=[PARIS])

    result = await build(tools=WITH_TOOL).invoke_once("weather?")

    assert result.is_error
    assert "20 rounds" in result.error_reason
    assert len(result.tool_calls) == len(fake_openai.requests) == 20


async def test_a_request_that_fails_after_a_tool_ran_does_not_run_the_tool_again(
    build, fake_openai
):
    fake_openai.reply(tool_calls=[PARIS])
    fake_openai.reply(status=503)
    fake_openai.reply("3 degrees")

    result = await build(tools=WITH_TOOL).invoke_once("weather?")

    assert (result.response, len(result.tool_calls)) == ("3 degrees", 1)
    assert len(fake_openai.requests) == 3


async def test_tries_end_and_the_error_counts_them(build, fake_openai):
    fake_openai.otherwise(status=503)

    with pytest.raises(BackendError, match=r"503.*after 3 attempts") as raised:
        await build(execution={"max_retries": 2}).invoke_once("hi")

    assert [tried.number for tried in raised.value.attempts] == [1, 2, 3]
    assert len(fake_openai.requests) == 3


@pytest.mark.parametrize(("status", "permanent"), [(400, False), (401, True), (403, True)])
async def test_what_no_other_call_will_survive_is_marked(build, fake_openai, status, permanent):
    fake_openai.otherwise(status=status)

    with pytest.raises(BackendError, match=str(status)) as raised:
        await build().invoke_once("hi")

    assert raised.value.permanent is permanent
    assert len(fake_openai.requests) == 1


async def test_the_wait_that_a_provider_asks_for_is_kept(build, fake_openai):
    fake_openai.reply(status=429, headers={"retry-after-ms": "300"})
    fake_openai.reply("fine")

    result = await build().invoke_once("hi")

    assert 300 <= result.attempts[0].retry_after_ms <= 330


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"body": b"<html>\x1b[2J busy</html>", "headers": {"content-type": "text/html"}},
            r"answer is not a chat completion: it is HTML: '<html>\x1b[2J busy</html>'",
        ),
        ({"body": b""}, "the provider's answer is not a chat completion: it is empty"),
        ({"body": b"{"}, "the provider's answer is not a chat completion: it is not JSON: '{'"),
        ({"json": {"choices": []}}, "is not a chat completion: it has no choices"),
        ({"body": b'{"choices": [], "choices": [{}]}'}, "it has a duplicate key 'choices'"),
    ],
    ids=["html", "nothing", "half", "no choices", "a key twice"],
)
async def test_an_answer_that_is_none_is_shown(build, fake_openai, answer, said):
    fake_openai.reply(**answer)
    fake_openai.reply("fine")

    result = await build().invoke_once("hi")

    assert result.response == "fine"
    assert said in result.attempts[0].error


async def test_reading_stops_at_an_answer_that_is_too_large(build, fake_openai):
    fake_openai.otherwise("x" * 9_000_000)

    with pytest.raises(BackendError, match="the answer is too large: more than 8 MB"):
        await build().invoke_once("hi")

    assert len(fake_openai.requests) == 1


async def test_a_redirect_is_not_followed(build, fake_openai):
    fake_openai.otherwise(status=307, headers={"location": "http://169.254.169.254/"})

    with pytest.raises(BackendError, match="HTTP 307: the endpoint redirects"):
        await build().invoke_once("hi")


async def test_the_whole_call_is_limited_and_what_was_seen_is_kept(build, fake_openai):
    fake_openai.reply(tool_calls=[PARIS])
    fake_openai.otherwise(fault="hang")
    backend = build(tools=WITH_TOOL, execution={"llm_timeout": 2})

    with pytest.raises(BackendTimeoutError, match=r"no answer within 2 s") as raised:
        await backend.invoke_once("weather?")

    assert [call["name"] for call in raised.value.seen.tool_calls] == ["get_weather"]


async def test_an_attempt_that_hangs_is_tried_again(build, fake_openai):
    fake_openai.reply(fault="hang").otherwise("fine")
    limits = {"attempt_timeout": 1, "max_retries": 20, "retry_delay": 0}

    result = await build(execution=limits).invoke_once("hi")

    assert result.response == "fine"
    assert result.attempts[0].error == "no answer in time"


async def test_a_session_keeps_what_tools_said_and_forgets_what_failed(build, fake_openai):
    fake_openai.reply(tool_calls=[PARIS])
    fake_openai.reply("3 degrees")
    fake_openai.reply(status=400)
    fake_openai.reply("fine")
    session = await build(tools=WITH_TOOL).create_session()

    await session.send("weather?")
    with pytest.raises(BackendError):
        await session.send("lost")
    await session.send("kept")

    roles = [message["role"] for message in fake_openai.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "lost" not in str(fake_openai.requests[-1].body)


async def test_a_schema_for_the_answer_is_sent_and_the_answer_parsed(build, fake_openai):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fake_openai.reply('{"n": 3}')

    result = await build(response_format=schema).invoke_once("hi")

    assert result.structured_output == {"n": 3}
    assert fake_openai.requests[0].body["response_format"]["json_schema"]["schema"] == schema


async def test_connections_are_used_again(build, fake_openai):
    backend = build()

    for _ in range(3):
        await backend.invoke_once("hi")

    # The server closes this one while nobody looks; the next request opens another.
    fake_openai.reply("bye", headers={"connection": "close"})
    await backend.invoke_once("hi")
    fake_openai.reply("again")
    assert (await backend.invoke_once("hi")).attempts == []


async def test_calls_share_the_slots_of_their_endpoint_and_waiting_costs_no_time(
    build, fake_openai
):
    fake_openai.otherwise("fine", latency_s=0.1)
    backend = build(execution={"parallel_test_cases": 2, "llm_timeout": 1})

    results = await asyncio.gather(*[backend.invoke_once(f"{n}") for n in range(24)])

    assert fake_openai.peak_in_flight == 2
    assert max(result.waited_ms for result in results) > 1000


async def test_a_provider_that_allows_ten_at_once_is_not_overrun(build, fake_openai):
    def answer(request):
        if request.in_flight > 10:
            return Reply(status=429, headers={"retry-after-ms": "100"})
        return Reply("fine", latency_s=0.02)

    fake_openai.otherwise(answer)
    backend = build(execution={"parallel_test_cases": 100})

    results = await asyncio.gather(*[backend.invoke_once(f"{n}") for n in range(100)])

    assert {result.response for result in results} == {"fine"}
    assert len(fake_openai.requests) <= 160


async def test_two_hundred_cases_at_once_see_nothing_of_each_other(build, fake_openai):
    """Half of them call a tool first; answers take from no time to 20 ms."""
    rng = random.Random(7)

    def answer(request):
        wants_tool = int(request.prompt[-3:]) % 2 and not request.tool_results
        calls = [("get_weather", {"city": request.prompt})] if wants_tool else ()
        content = None if wants_tool else f"OK: {request.prompt} {request.tool_results}"
        return Reply(content, tool_calls=calls, latency_s=rng.uniform(0, 0.02))

    fake_openai.otherwise(answer)
    backend = build(tools=WITH_TOOL, execution={"parallel_test_cases": 100})
    prompts = [f"case-{n:03}" for n in range(200)]

    results = await asyncio.gather(*map(backend.invoke_once, prompts))

    assert [result.response for result in results] == [
        f"OK: {one} {[f'3 degrees in {one}'] if int(one[-3:]) % 2 else []}" for one in prompts
    ]
    bleed = [r for r in fake_openai.requests if r.raw.count(b"case-") > 3]
    assert bleed == []


async def test_cancelling_leaves_nothing_behind(build, fake_openai):
    fake_openai.otherwise(fault="hang")
    backend = build()
    before = asyncio.all_tasks()
    calls = [asyncio.create_task(backend.invoke_once(f"{n}")) for n in range(20)]
    await fake_openai.saw(20)

    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    assert all(call.cancelled() for call in calls)
    assert asyncio.all_tasks() == before
    await asyncio.to_thread(fake_openai.wait_until_idle)
    assert fake_openai.abandoned == 20


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"endpoint": None}, "OPENAI_API_KEY"),
        (
            {"provider": "azure_openai", "endpoint": "https://other.example"},
            "AZURE_OPENAI_API_KEY",
        ),
        ({"api_key": "a\r\nX: y"}, "holds characters that no key has"),
        ({"endpoint": "ftp://host"}, "is not a URL such as"),
        ({"endpoint": "http://ho st/v1"}, "is not a URL such as"),
        ({"endpoint": "http://host:99999/v1"}, "is not a URL such as"),
    ],
)
async def test_what_makes_no_sense_is_said_before_anything_is_sent(build, model, said):
    with pytest.raises(ConfigError, match=said):
        build(model)


@pytest.mark.parametrize("provider", ["anthropic", "ollama", "local"])
def test_other_providers_are_refused_with_what_to_write(provider):
    with pytest.raises(ValueError, match="leave 'backend' out"):
        Agent(
            name="a",
            backend="chat",
            model={"provider": provider, "name": "x"},
            instructions={"inline": "x"},
        )


def test_a_run_imports_neither_semantic_kernel_nor_what_else_is_heavy(tmp_path, fake_openai):
    (tmp_path / "agent.yaml").write_text(
        "name: a\nbackend: chat\ninstructions: {inline: Be brief.}\n"
        f"model: {{provider: openai, name: fake, endpoint: '{fake_openai.url}'}}\n"
        "test_cases: [{input: hi, evaluations: [{metric: contains, value: OK}]}]\n"
    )
    program = (
        "import sys, click\nfrom holodeck.cli.main import cli\n"
        "code = cli.main(['test', 'agent.yaml'], standalone_mode=False)\n"
        "heavy = ('semantic_kernel', 'openai', 'numpy', 'aiohttp', 'httpx', 'httpx2')\n"
        "print(code, [name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True,
        timeout=180, check=False,
    )  # fmt: skip

    assert ran.stderr.splitlines()[-1].endswith("[]"), ran.stderr
    assert len(fake_openai.requests) == 1
