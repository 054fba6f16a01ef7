"""The table of providers: URLs, keys and variables, and requests to each of them."""

import pytest

from holodeck.config.providers import missing_key_message, with_provider_variables
from holodeck.lib.llm.chat_models import HttpChatModel
from holodeck.lib.llm.endpoint import Endpoint
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import call_limits
from holodeck.lib.llm.model import ChatRequest
from holodeck.models.llm import PROVIDERS, LLMProvider, ProviderEnum

DOCUMENTED = {
    # https://platform.openai.com/docs/api-reference/chat
    "openai": "https://api.openai.com/v1/chat/completions",
    # https://docs.anthropic.com/en/api/messages
    "anthropic": "https://api.anthropic.com/v1/messages",
    # https://docs.ollama.com/api/openai-compatibility
    "ollama": "http://127.0.0.1:11434/v1/chat/completions",
    # https://docs.cohere.com/docs/compatibility-api
    "cohere": "https://api.cohere.ai/compatibility/v1/chat/completions",
    # https://api-docs.deepseek.com/
    "deepseek": "https://api.deepseek.com/chat/completions",
    # https://docs.fireworks.ai/tools-sdks/openai-compatibility
    "fireworks_ai": "https://api.fireworks.ai/inference/v1/chat/completions",
    # https://ai.google.dev/gemini-api/docs/openai
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
    # https://console.groq.com/docs/openai
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    # https://huggingface.co/docs/inference-providers
    "huggingface": "https://router.huggingface.co/v1/chat/completions",
    # https://docs.mistral.ai/api/
    "mistral": "https://api.mistral.ai/v1/chat/completions",
    # https://openrouter.ai/docs/quickstart
    "openrouter": "https://openrouter.ai/api/v1/chat/completions",
    # https://docs.perplexity.ai/api-reference/chat-completions-post
    "perplexity": "https://api.perplexity.ai/chat/completions",
    # https://docs.together.ai/docs/inference/openai-compatibility
    "together_ai": "https://api.together.ai/v1/chat/completions",
    # https://docs.x.ai/docs/api-reference
    "xai": "https://api.x.ai/v1/chat/completions",
}
WITHOUT_URL = ["azure_openai", "hosted_vllm", "litellm_proxy"]
NOT_OVER_HTTP = {"bedrock", "litellm", "local", "scripted", "vertex_ai"}
HAVE_KEYS = [name for name in DOCUMENTED if PROVIDERS[ProviderEnum(name)].api_key]


def model(values, env):
    return LLMProvider(**with_provider_variables({"name": "m", **values}, env))


def test_every_provider_is_in_one_of_the_lists():
    assert {*DOCUMENTED, *WITHOUT_URL, *NOT_OVER_HTTP} == set(ProviderEnum) == set(PROVIDERS)


@pytest.mark.parametrize(("provider", "url"), DOCUMENTED.items(), ids=DOCUMENTED)
def test_requests_go_to_the_documented_url(provider, url):
    llm = LLMProvider(provider=provider, name="m", api_key="k")

    assert Endpoint.of(llm).server.url == url


OVER_HTTP = [*DOCUMENTED, *WITHOUT_URL]


@pytest.mark.parametrize("provider", OVER_HTTP)
async def test_variables_lead_to_another_server_with_the_key(provider, fake_openai):
    facts = PROVIDERS[ProviderEnum(provider)]
    base = fake_openai.root if provider == "azure_openai" else fake_openai.url
    env = {facts.endpoint[-1]: base} | ({facts.api_key[-1]: "the-key"} if facts.api_key else {})
    llm = model({"provider": provider}, env)
    client = HttpChatModel(llm, call_limits(None), Limiters())

    response = await client.answer(ChatRequest([{"role": "user", "content": "hi"}]))
    await client.close()

    [request] = fake_openai.requests
    assert response.text == "OK: hi"
    assert client.name == f"{provider}/m"
    key = {name.lower(): value for name, value in request.headers.items()}
    sent = [key.get(name) for name in ("authorization", "api-key", "x-api-key")]
    assert any(one and "the-key" in one for one in sent) == bool(facts.api_key)


@pytest.mark.parametrize("provider", HAVE_KEYS)
def test_a_missing_key_is_reported_with_every_variable(provider):
    message = missing_key_message(LLMProvider(provider=provider, name="m"))

    assert message is not None
    assert all(name in message for name in PROVIDERS[ProviderEnum(provider)].api_key)


@pytest.mark.parametrize("provider", ["hosted_vllm", "litellm_proxy"])
def test_a_provider_without_a_url_asks_for_one(provider):
    variable = PROVIDERS[ProviderEnum(provider)].endpoint[0]

    with pytest.raises(ValueError, match=rf"{provider} needs 'endpoint: http.*{variable}"):
        LLMProvider(provider=provider, name="m")


@pytest.mark.parametrize("provider", ["bedrock", "vertex_ai"])
async def test_a_provider_of_litellm_with_an_endpoint_is_called_directly(provider, fake_openai):
    llm = LLMProvider(provider=provider, name="m", endpoint=fake_openai.url, api_key="k")
    client = HttpChatModel(llm, call_limits(None), Limiters())

    response = await client.answer(ChatRequest([{"role": "user", "content": "hi"}]))
    await client.close()

    assert response.text == "OK: hi"
