"""Where requests of a model go, and which settings they have."""

import json

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.llm.endpoint import Endpoint, sampling
from holodeck.lib.llm.errors import status_error
from holodeck.models.llm import LLMProvider

RESOURCE = "https://shop.openai.azure.com"
DEPLOYMENT = f"{RESOURCE}/openai/deployments/d/chat/completions"


def azure(endpoint, **fields):
    return LLMProvider(
        provider="azure_openai", name="d", endpoint=endpoint, **{"api_key": "k"} | fields
    )


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (RESOURCE, f"{DEPLOYMENT}?api-version=2024-10-21"),
        (f"{RESOURCE}/", f"{DEPLOYMENT}?api-version=2024-10-21"),
        (f"{RESOURCE}/openai", f"{DEPLOYMENT}?api-version=2024-10-21"),
        (f"{RESOURCE}/openai/v1/", f"{RESOURCE}/openai/v1/chat/completions"),
        (f"{RESOURCE}/openai/v1/chat/completions", f"{RESOURCE}/openai/v1/chat/completions"),
        (f"{DEPLOYMENT}?api-version=2025-01-01", f"{DEPLOYMENT}?api-version=2025-01-01"),
        (DEPLOYMENT, f"{DEPLOYMENT}?api-version=2024-10-21"),
    ],
)
def test_the_addresses_that_azure_shows_are_used_as_they_are(endpoint, url):
    assert Endpoint.of(azure(endpoint)).server.url == url


@pytest.mark.parametrize(
    "endpoint", [None, "https://api.openai.com/v1", "https://api.openai.com/v1/"]
)
def test_the_own_address_of_openai_means_the_same_if_it_is_written_out(endpoint):
    llm = LLMProvider(provider="openai", name="m", endpoint=endpoint, api_key="k", max_tokens=9)

    assert sampling(llm, None)["max_completion_tokens"] == 9
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Endpoint.of(llm.model_copy(update={"api_key": None}))


def test_another_server_gets_the_names_that_it_knows():
    llm = LLMProvider(provider="openai", name="m", endpoint="http://127.0.0.1:1/v1", max_tokens=9)

    assert sampling(llm, None)["max_tokens"] == 9


def test_a_token_of_entra_id_is_sent_to_hosts_of_azure_only():
    with pytest.raises(ConfigError, match=r"'evil\.example' is none of these"):
        Endpoint.of(azure("https://evil.example", api_key=None))
    with pytest.raises(ConfigError, match="none of these"):
        Endpoint.of(azure("https://openai.azure.com.evil.example", api_key=None))


def test_a_refused_temperature_names_the_setting():
    message = "Unsupported value: 'temperature' does not support 0.3"
    body = json.dumps({"error": {"message": message}}).encode()

    assert "write 'temperature: null'" in str(status_error(400, {}, body))


@pytest.mark.parametrize("provider", ["anthropic", "local"])
def test_reasoning_effort_is_refused_where_it_would_not_be_sent(provider):
    with pytest.raises(ValueError, match="has no 'reasoning_effort'"):
        LLMProvider(provider=provider, name="m", reasoning_effort="low")
