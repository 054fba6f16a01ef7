"""Keys and endpoints of providers."""

import pytest

from holodeck.config.model_calls import find_missing_keys
from holodeck.config.providers import missing_key_message
from holodeck.models.agent import Agent, Instructions
from holodeck.models.llm import LLMProvider


def agent(metrics, **model):
    return Agent(
        name="x",
        model=LLMProvider(provider="openai", name="m", **model),
        instructions=Instructions(inline="hi"),
        evaluations={"metrics": metrics},
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"provider": "openai"}, "missing API key for openai: set OPENAI_API_KEY"),
        ({"provider": "anthropic"}, "missing API key for anthropic: set ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_is_told_with_its_variable(model, message):
    assert message in missing_key_message(LLMProvider(name="m", **model))


@pytest.mark.parametrize(
    "model",
    [
        {"provider": "openai", "api_key": "k"},
        {"provider": "openai", "endpoint": "http://localhost:8000"},
        {"provider": "ollama"},
        {"provider": "local"},
    ],
)
def test_no_key_is_missing_where_none_is_needed(model):
    assert missing_key_message(LLMProvider(name="m", **model)) is None


def test_an_agent_with_a_backend_of_its_own_needs_no_key():
    assert list(find_missing_keys(Agent(name="x", backend="a:b"))) == []
