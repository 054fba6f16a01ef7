"""Models of judges and simulated users: their arguments, providers and refusals."""

# ruff: noqa: A002 - `input` is what adapters call it

import json
import logging
import socket
from contextlib import closing

import pytest
from openai import AsyncOpenAI, OpenAI

from holodeck import scenario
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.scenario import config as config_module
from support.participants import a_user, an_agent

VERDICT = json.dumps({"c1": {"reasoning": "it did", "status": "passed"}})
MESSAGE = json.dumps({"message": "hello", "done": False})


@pytest.fixture(autouse=True)
def unconfigured():
    before = scenario.ScenarioConfig.default_config
    scenario.ScenarioConfig.default_config = None
    yield
    scenario.ScenarioConfig.default_config = before


@pytest.fixture
def server(fake_openai):
    """A server that plays the judge and the user."""
    return fake_openai.when("# Criteria", VERDICT).otherwise(MESSAGE)


async def judged(judge):
    steps = [scenario.user("hi"), scenario.agent(), scenario.judge()]
    return await scenario.run("case", "", [a_user(), an_agent(), judge], script=steps)


async def asked(user):
    steps = [scenario.user(), scenario.succeed()]
    return await scenario.run(
        "case", "", [user, an_agent()], script=[*steps[:1], scenario.agent(), *steps[1:]]
    )


def a_judge(server, **arguments):
    given = {"model": "openai/m", "api_base": server.url, "api_key": "k"} | arguments
    return scenario.JudgeAgent(criteria=["It greets"], **given)


async def test_a_judge_reads_the_additional_context_of_a_step(server):
    steps = [
        scenario.user("hi"),
        scenario.agent(),
        scenario.judge(criteria=["It installs"], additional_context="npm install exited with 0"),
        scenario.judge(additional_context="the folder is clean"),
    ]
    agents = [a_user(), an_agent(), a_judge(server)]

    assert (await scenario.run("case", "", agents, script=steps)).success

    first, last = [one.prompt for one in server.requests]
    assert "c1: It installs" in first
    assert "npm install exited with 0" in first
    assert "c1: It greets" in last
    assert "the folder is clean" in last


@pytest.mark.parametrize("context", [None, ""])
async def test_without_additional_context_the_prompt_has_no_part_for_it(context, server):
    steps = [scenario.user("hi"), scenario.agent(), scenario.judge(additional_context=context)]

    await scenario.run("case", "", [a_user(), an_agent(), a_judge(server)], script=steps)

    assert "Additional context" not in server.requests[0].prompt


async def test_a_judge_of_ones_own_gets_the_additional_context():
    seen = []

    class Own(scenario.AgentAdapter):
        role = scenario.AgentRole.JUDGE

        async def call(self, input):
            seen.append(input.judgment_request.additional_context)
            return scenario.ScenarioResult(success=True, messages=input.messages, reasoning="ok")

    steps = [scenario.user("hi"), scenario.agent(), scenario.judge(None, "exit code 0")]
    await scenario.run("case", "", [a_user(), an_agent(), Own()], script=steps)

    assert seen == ["exit code 0"]


SENT = {
    "top_p": 0.5,
    "seed": 7,
    "stop": ["END"],
    "frequency_penalty": 0.1,
    "reasoning_effort": "low",
    "user": "tests",
}


async def test_arguments_of_the_model_are_sent(server):
    headers = {"headers": {"X-Team": "a"}, "extra_headers": {"authorization": "Basic b"}}
    judge = a_judge(
        server, **SENT, **headers, extra_body={"guided": True}, max_completion_tokens=90,
        additional_drop_params=["response_format"], organization="org",
    )  # fmt: skip

    assert (await judged(judge)).success

    [request] = server.requests
    assert {key: request.body[key] for key in SENT} == SENT
    assert request.body["guided"] is True
    assert request.body["max_tokens"] == 90
    assert "response_format" not in request.body
    names = {name.lower(): value for name, value in request.headers.items()}
    assert names["x-team"] == "a"
    assert names["authorization"] == "Basic b"
    assert names["openai-organization"] == "org"


async def test_num_retries_is_the_number_of_further_requests(fake_openai):
    fake_openai.otherwise(status=503, headers={"retry-after": "0"})

    with pytest.raises(HoloDeckError, match="HTTP 503"):
        await judged(a_judge(fake_openai, num_retries=1))

    assert len(fake_openai.requests) == 2


async def test_timeout_is_the_limit_of_each_request(fake_openai):
    fake_openai.otherwise(fault="hang")

    with pytest.raises(HoloDeckError, match="no answer in time"):
        await judged(a_judge(fake_openai, timeout=0.2, num_retries=0))

    assert len(fake_openai.requests) == 1


async def arun_judged(judge):
    steps = [scenario.user("hi"), scenario.agent(), scenario.judge()]
    return await scenario.arun("case", "", [a_user(), an_agent(), judge], script=steps)


async def test_an_async_client_of_the_user_sends_the_requests(server):
    async with AsyncOpenAI(base_url=server.url, api_key="own") as client:
        judge = scenario.JudgeAgent(criteria=["It greets"], model="openai/m", client=client)

        assert (await arun_judged(judge)).success

    [request] = server.requests
    assert request.headers["authorization"] == "Bearer own"


async def test_a_client_of_the_user_sends_the_requests(server):
    client = OpenAI(base_url=server.url, api_key="own", default_headers={"X-Own": "yes"})
    judge = scenario.JudgeAgent(
        criteria=["It greets"],
        model="openai/m",
        client=client,
        seed=7,
        top_k=3,
        headers={"X-A": "a"},
    )

    with client:
        assert (await judged(judge)).success

    [request] = server.requests
    names = {name.lower(): value for name, value in request.headers.items()}
    assert (names["x-own"], names["x-a"]) == ("yes", "a")
    assert names["authorization"] == "Bearer own"
    assert (request.body["seed"], request.body["top_k"]) == (7, 3)


async def test_a_refusal_to_the_users_client_says_what_to_check(fake_openai):
    fake_openai.otherwise(status=401, content="bad key")
    client = OpenAI(base_url=fake_openai.url, api_key="own")
    judge = scenario.JudgeAgent(criteria=["x"], model="openai/m", client=client)

    with client, pytest.raises(HoloDeckError, match=r"401.*check OPENAI_API_KEY"):
        await judged(judge)

    assert len(fake_openai.requests) == 1


def test_a_client_of_another_kind_is_refused():
    judge = scenario.JudgeAgent(
        criteria=["x"], model="openai/m", client=object(), api_base="http://x"
    )

    with pytest.raises(ConfigError, match=r"an object has no chat.completions.create\(\)"):
        judge._client.get()


WRONG = {
    "timeuot": (1, "timeuot is an unknown argument; did you mean 'timeout'?"),
    "colour": ("red", "colour is an unknown argument"),
    "tools": ([], "tools is what holodeck decides for each request; leave it out"),
    "timeout": ("soon", "timeout Input should be a valid number"),
    "num_retries": (-1, "num_retries Input should be greater than or equal to 0"),
    "aws_region_name": ("x", "is for models that LiteLLM calls"),
    "voice": ("openai/nova", "holodeck has no voice; leave it out"),
}


@pytest.mark.parametrize(("name", "value", "message"), [(k, *v) for k, v in WRONG.items()])
@pytest.mark.parametrize("agent", [scenario.JudgeAgent, scenario.UserSimulatorAgent])
def test_an_argument_that_no_model_takes_is_refused(agent, name, value, message):
    with pytest.raises(ConfigError) as raised:
        agent(model="openai/m", **{name: value})

    assert message in str(raised.value)


def test_an_unknown_argument_of_a_model_config_is_refused():
    with pytest.raises(ValueError, match="did you mean 'top_p'"):
        scenario.ModelConfig(model="openai/m", top_pp=0.1)


def test_settings_are_attributes(monkeypatch):
    judge = scenario.JudgeAgent(criteria=["x"], model="openai/m", temperature=0.5, max_tokens=9)
    user = scenario.UserSimulatorAgent(model="openai/m", persona="in a hurry", system_prompt="p")

    assert (judge.model, judge.temperature, judge.max_tokens) == ("openai/m", 0.5, 9)
    assert (judge.criteria, judge.api_base, judge.api_key) == (["x"], None, None)
    assert (user.temperature, user.persona, user.system_prompt) == (0.0, "in a hurry", "p")
    assert scenario.ModelConfig(model="openai/m").temperature == 0.0
    assert scenario.ModelConfig(model="openai/m", timeout=3).timeout == 3


async def test_attributes_that_change_are_used(server):
    judge = a_judge(server)
    assert (await judged(judge)).success
    judge.model, judge.temperature = "openai/other", 0.7
    assert (await judged(judge)).success

    sent = [(one.body["model"], one.body["temperature"]) for one in server.requests]
    assert sent == [("m", 0), ("other", 0.7)]


class PlainJudge(scenario.JudgeAgent):
    def __init__(self):
        self.asked = 0

    async def call(self, input):
        if not input.judgment_request:
            return []
        self.asked += 1
        return scenario.ScenarioResult(success=True, messages=input.messages, reasoning="fine")


class PlainUser(scenario.UserSimulatorAgent):
    def __init__(self):
        pass

    async def call(self, input):
        return "hello"


async def test_a_subclass_needs_no_constructor_of_ours():
    judge = PlainJudge()
    steps = [scenario.user(), scenario.agent(), scenario.judge()]

    result = await scenario.run("case", "", [PlainUser(), an_agent(), judge], script=steps)

    assert result.success
    assert judge.asked == 1


class Configured(scenario.JudgeAgent):
    criteria = ("It greets",)
    model = "openai/m"
    api_key = "k"

    def __init__(self, url):
        self.api_base = url


async def test_a_subclass_may_set_the_attributes_itself(server):
    assert (await judged(Configured(server.url))).success


SETTINGS = {"api_base": "http://127.0.0.1:1/v1", "api_key": "k", "timeout": 30, "seed": 7}


@pytest.mark.parametrize(
    "default",
    [{"model": "openai/m", **SETTINGS}, scenario.ModelConfig(model="openai/m", **SETTINGS)],
    ids=["dict", "ModelConfig"],
)
def test_arguments_that_are_not_given_are_those_of_the_default_model(default):
    scenario.configure(default_model=default)

    judge = scenario.JudgeAgent(criteria=["x"], timeout=60)
    other_model = scenario.JudgeAgent(criteria=["x"], model="openai/small")
    other_provider = scenario.JudgeAgent(criteria=["x"], model="groq/llama")

    assert (judge.model, judge.api_base) == ("openai/m", SETTINGS["api_base"])
    assert judge._extra_params == {"timeout": 60, "seed": 7}
    assert (other_model.model, other_model.api_key) == ("openai/small", "k")
    assert (other_provider.api_base, other_provider.api_key) == (None, None)


PROVIDERS = {
    "gemini/g": "GEMINI_BASE_URL",
    "groq/g": "GROQ_API_BASE",
    "openrouter/org/m": "OPENROUTER_API_BASE",
    "mistral/m": "MISTRAL_API_BASE",
    "deepseek/d": "DEEPSEEK_API_BASE",
    "together_ai/org/m": "TOGETHER_AI_API_BASE",
    "cohere/c": "COHERE_BASE_URL",
    "xai/grok": "XAI_API_BASE",
    "huggingface/org/m": "HF_BASE_URL",
    "litellm_proxy/any": "LITELLM_PROXY_API_BASE",
    "fireworks_ai/f": "FIREWORKS_API_BASE",
    "perplexity/sonar": "PERPLEXITY_API_BASE",
    "hosted_vllm/org/m": "HOSTED_VLLM_API_BASE",
    "ollama_chat/qwen3": "OLLAMA_API_BASE",
    "openai/m": "OPENAI_API_BASE",
}


@pytest.mark.parametrize(("model", "variable"), PROVIDERS.items(), ids=PROVIDERS)
async def test_a_model_is_named_as_in_litellm(model, variable, server, monkeypatch):
    monkeypatch.setenv(variable, server.url)

    assert (await judged(scenario.JudgeAgent(criteria=["It greets"], model=model))).success

    [request] = server.requests
    assert request.body["model"] == model.partition("/")[2]


async def test_the_service_of_a_hugging_face_model_is_named_for_the_router(server, monkeypatch):
    monkeypatch.setenv("HF_BASE_URL", server.url)
    judge = scenario.JudgeAgent(criteria=["x"], model="huggingface/together/org/m")

    await judged(judge)

    assert server.requests[0].body["model"] == "org/m:together"


REFUSALS = {
    401: "check OPENAI_API_KEY or {}(api_key=…)",
    403: "check OPENAI_API_KEY or {}(api_key=…)",
    402: "check the account of OPENAI_API_KEY",
    404: "check {}(model='openai/m') and api_base",
}


@pytest.mark.parametrize(("status", "hint"), REFUSALS.items())
async def test_a_judge_that_is_refused_says_at_once_what_to_change(status, hint, fake_openai):
    fake_openai.otherwise(status=status, content="no")

    with pytest.raises(HoloDeckError) as raised:
        await judged(a_judge(fake_openai))

    assert hint.format("JudgeAgent") in str(raised.value)
    assert len(fake_openai.requests) == 1


@pytest.mark.parametrize(("status", "hint"), REFUSALS.items())
async def test_a_user_who_is_refused_says_at_once_what_to_change(status, hint, fake_openai):
    fake_openai.otherwise(status=status, content="no")
    user = scenario.UserSimulatorAgent(model="openai/m", api_base=fake_openai.url, api_key="k")

    with pytest.raises(HoloDeckError) as raised:
        await asked(user)

    assert hint.format("UserSimulatorAgent") in str(raised.value)
    assert len(fake_openai.requests) == 1


@pytest.fixture
def closed_url():
    """The URL of a server that is not running, and never was: a server of another test may have had
    the same port of 127.0.0.1."""
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://localhost:{unused.getsockname()[1]}/v1"


async def test_a_server_that_is_not_running_gets_three_attempts_and_then_one(closed_url, caplog):
    def new_judge():
        given = {"model": "openai/m", "api_base": closed_url, "api_key": "k"}
        return scenario.JudgeAgent(criteria=["x"], **given)

    caplog.set_level(logging.INFO, "holodeck")
    refused = r"connection refused; check that the server is running, and JudgeAgent\(api_base=…\)"

    with pytest.raises(HoloDeckError, match=refused):
        await judged(new_judge())
    waits = [one.getMessage() for one in caplog.records if "retry" in one.getMessage()]
    assert [one.partition(", ")[2].partition(" in ")[0] for one in waits] == [
        "retry 1 of 2",
        "retry 2 of 2",
    ]
    caplog.clear()

    with pytest.raises(HoloDeckError, match=refused):
        await judged(new_judge())
    assert not [one for one in caplog.records if "retry" in one.getMessage()]


def test_settings_for_a_service_are_noted_once(caplog, monkeypatch):
    monkeypatch.setattr(config_module, "_noted", set())

    scenario.configure(headless=True, max_turns=3, verbose=False, debug=False, cache_key="k")
    scenario.configure(fetch_remote_traces=True, trace_wait_timeout=3.0, trace_wait_extension=1.0)

    [note] = [one.getMessage() for one in caplog.records]
    assert "headless only matters with a service" in note
    assert scenario.ScenarioConfig.default_config.headless is True
