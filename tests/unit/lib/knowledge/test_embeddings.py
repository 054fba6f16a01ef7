"""Requests for embeddings, against a real server."""

import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendError, BackendTimeoutError, ConfigError
from holodeck.lib.knowledge.embeddings import (
    HttpEmbedder,
    LocalEmbedder,
    embedding_llm,
    split_batches,
)
from holodeck.lib.llm.client import RequestStats
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import call_limits
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.tools.knowledge import VectorstoreTool
from support.embeddings import vector_of

PATHS = {
    "openai": "/v1/embeddings",
    "azure_openai": "/openai/deployments/m/embeddings",
    "ollama": "/api/embed",
}


def embedder(server, provider="openai", dimensions=None):
    endpoint = server.url if provider == "openai" else server.root
    llm = LLMProvider(provider=provider, name="m", endpoint=endpoint, api_key="key")
    limits = call_limits(ExecutionConfig(max_retries=1, retry_delay=0))
    return HttpEmbedder(llm, dimensions, limits, Limiters())


@pytest.mark.parametrize("provider", PATHS)
async def test_every_protocol_gives_the_vectors_in_order_and_counts_tokens(fake_openai, provider):
    model, stats = embedder(fake_openai, provider, dimensions=8), RequestStats()
    texts = [f"text {number}" for number in range(100)]

    vectors = await model.embed(texts, stats)
    await model.close()

    assert vectors == [pytest.approx(vector_of(text, 8)) for text in texts]
    assert {one.path for one in fake_openai.requests} == {PATHS[provider]}
    assert stats.meter.requests == 2
    assert stats.meter.usage.prompt_tokens == 200


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"json": {"data": []}}, "has 0 embeddings for 1 texts"),
        ({"json": {"data": [{"index": 0, "embedding": [1, "x"]}]}}, "does not contain embeddings"),
        ({"json": {"data": [{"index": 0, "embedding": []}]}}, "empty or not finite"),
        ({"body": b'{"data": [{"index": 0, "embedding": [NaN]}]}'}, "empty or not finite"),
        ({"json": {"data": [{"index": 0, "embedding": [1]}]}}, "length 1 instead of length 8"),
        ({"body": b"[" * 100_000}, "does not contain embeddings"),
        ({"fault": "reset"}, "connection"),
    ],
)
async def test_a_response_without_usable_vectors_is_an_error(reply, message):
    with FakeOpenAI() as server:
        server.when(lambda _: True, **reply)
        model = embedder(server, dimensions=8)

        with pytest.raises(BackendError, match=message):
            await model.embed(["text"], RequestStats())

        await model.close()
        assert len(server.requests) == 2


def test_batches_are_limited_in_texts_and_bytes():
    assert [len(one) for one in split_batches(["x"] * 100)] == [64, 36]
    assert [len(one) for one in split_batches(["x" * 300_000, "y" * 200_000, "z"])] == [1, 2]
    assert list(split_batches([])) == []


def chosen(provider, given=None, **tool):
    own = {
        "provider": provider,
        "name": "m",
        "endpoint": None if provider == "local" else "http://x",
    }
    agent = Agent(
        name="a",
        model=own,
        instructions={"inline": "x"},
        embedding_provider=given,
    )
    config = VectorstoreTool(type="vectorstore", name="kb", source="docs", **tool)
    found = embedding_llm(config, agent)
    return None if found is None else f"{found.provider.value}/{found.name}"


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        ({"provider": "openai"}, "openai/text-embedding-3-small"),
        ({"provider": "openai", "embedding_model": "e"}, "openai/e"),
        ({"provider": "ollama"}, "ollama/nomic-embed-text:latest"),
        ({"provider": "anthropic"}, None),
        ({"provider": "local"}, None),
        ({"provider": "openai", "given": {"provider": "local"}}, None),
        ({"provider": "anthropic", "given": {"provider": "ollama", "name": "e"}}, "ollama/e"),
    ],
)
def test_the_embedding_model_is_that_of_the_provider_or_the_embedded_one(arguments, model):
    assert chosen(**arguments) == model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"provider": "anthropic", "embedding_model": "e"}, "has no embedding models"),
        ({"provider": "groq"}, "has no default"),
        (
            {"provider": "openai", "given": {"provider": "anthropic", "name": "e"}},
            "cannot request embeddings from 'anthropic'",
        ),
    ],
)
def test_a_provider_without_embeddings_is_an_error_that_says_what_to_write(arguments, message):
    with pytest.raises(ConfigError, match=message):
        chosen(**arguments)


async def test_an_embedded_model_that_hangs_is_an_error_with_its_limit(hang):
    class Model:
        def embed(self, texts):
            hang()

    embedder = LocalEmbedder("tiny", Model, timeout=0.05)

    with pytest.raises(BackendTimeoutError, match=r"no answer within 0\.05 s"):
        await embedder.embed(["a"], RequestStats())


async def test_an_endpoint_that_never_answers_is_an_error_with_its_limit(fake_openai):
    fake_openai.when(lambda request: request.wants_embeddings, fault="hang")
    llm = LLMProvider(provider="openai", name="m", endpoint=fake_openai.url, api_key="key")
    model = HttpEmbedder(llm, None, call_limits(ExecutionConfig(llm_timeout=0.3)), Limiters())

    with pytest.raises(BackendError, match=r"no answer within 0\.3 s \(execution\.llm_timeout\)"):
        await model.embed(["a"], RequestStats())

    await model.close()
    assert len(fake_openai.requests) == 1
