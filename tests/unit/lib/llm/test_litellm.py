"""Models that LiteLLM calls, with the real library; `scripts/litellm` runs this file with it."""

import json
from importlib.util import find_spec

import pytest

from holodeck import scenario
from holodeck.config.checks.agent import check
from holodeck.errors import HoloDeckError, MissingExtra
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.model import ChatRequest
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider
from support.participants import a_user, an_agent

VERDICT = json.dumps({"c1": {"reasoning": "it did", "status": "passed"}})
HAS_LITELLM = find_spec("litellm") is not None
needs_litellm = pytest.mark.skipif(
    not HAS_LITELLM, reason="litellm needs openai below 3, which is installed; run scripts/litellm"
)


@pytest.mark.skipif(HAS_LITELLM, reason="litellm is installed")
@pytest.mark.parametrize("provider", ["bedrock", "litellm", "vertex_ai"])
def test_a_missing_library_is_an_error_that_says_what_to_install(provider):
    with pytest.raises(MissingExtra, match=rf"{provider}.*litellm"):
        Judges().model(LLMProvider(provider=provider, name="m"))


@pytest.mark.skipif(HAS_LITELLM, reason="litellm is installed")
def test_validate_says_that_the_library_is_missing():
    agent = Agent(
        name="x",
        backend="a:b",
        evaluations={"model": {"provider": "bedrock", "name": "m"}},
        test_cases=[{"input": "hi", "criteria": ["It greets"]}],
    )

    errors = [one.message for one in check(agent) if one.severity == "error"]

    assert any("provider bedrock" in one and "litellm" in one for one in errors)


async def judged(judge):
    steps = [scenario.user("hi"), scenario.agent(), scenario.judge()]
    return await scenario.run("case", "", [a_user(), an_agent(), judge], script=steps)


@pytest.fixture
def cerebras(fake_openai, monkeypatch):
    """A server that LiteLLM takes for Cerebras."""
    monkeypatch.setenv("CEREBRAS_API_BASE", fake_openai.url)
    monkeypatch.setenv("CEREBRAS_API_KEY", "the-key")
    return fake_openai


@needs_litellm
async def test_a_judge_is_called_through_litellm(cerebras):
    cerebras.otherwise(VERDICT)
    arguments = {"headers": {"x-team": "a"}, "seed": 3, "max_tokens": 50}
    judge = scenario.JudgeAgent(criteria=["x"], model="litellm/cerebras/llama", **arguments)

    result = await judged(judge)

    [request] = cerebras.requests
    assert result.success
    assert result.token_usage["Judge"].total_tokens == 15
    assert request.headers["authorization"] == "Bearer the-key"
    assert request.headers["x-team"] == "a"
    assert (request.body["model"], request.body["seed"]) == ("llama", 3)


@needs_litellm
async def test_bedrock_is_called_with_its_own_protocol(fake_openai):
    llm = LLMProvider(provider="bedrock", name="anthropic.claude-3-haiku-20240307-v1:0")
    fake_openai.otherwise(status=400, content="no")
    settings = {
        "aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region_name": "eu-west-1",
        "aws_bedrock_runtime_endpoint": fake_openai.root,
    }  # fmt: skip
    judge = scenario.JudgeAgent(criteria=["x"], model=f"bedrock/{llm.name}", **settings)

    with pytest.raises(HoloDeckError):
        await judged(judge)

    assert fake_openai.requests[0].path.endswith("/converse")
    assert fake_openai.requests[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")


@needs_litellm
@pytest.mark.parametrize(("status", "requests"), [(401, 1), (404, 1), (503, 6)])
async def test_only_errors_that_may_pass_are_retried(status, requests, cerebras):
    cerebras.otherwise(status=status, content="no", headers={"retry-after": "0"})
    model = Judges().model(LLMProvider(provider="litellm", name="cerebras/llama"))

    with pytest.raises(HoloDeckError):
        await model.answer(ChatRequest([{"role": "user", "content": "hi"}]))

    assert len(cerebras.requests) == requests
