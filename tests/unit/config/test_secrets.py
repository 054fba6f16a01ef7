"""Which values count as secret."""

import pytest

from holodeck.config.secrets import collect, names_a_secret
from holodeck.models.agent import Agent


def test_every_secret_of_the_agent_is_found():
    agent = Agent.model_validate(
        {
            "name": "a",
            "model": {"provider": "openai", "name": "m", "api_key": "key-of-the-model"},
            "instructions": {"inline": "x"},
            "observability": {"exporters": {"otlp": {"headers": {"x-auth": "key-of-otlp"}}}},
        }
    )

    assert collect(agent, {}) == ["key-of-the-model", "key-of-otlp"]


def test_headers_of_an_http_agent_are_secret():
    agent = Agent.model_validate(
        {
            "name": "a",
            "backend": {"type": "http", "url": "http://x", "headers": {"Authorization": "abc def"}},
        }
    )

    assert collect(agent, {}) == ["abc def"]


def test_variables_are_secret_by_their_name():
    env = {"OPENAI_API_KEY": "k1", "HOME": "/root", "GITHUB_TOKEN": "k2", "EMPTY_KEY": ""}

    assert collect(None, env) == ["k1", "k2"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("DBPASSWORD", True),
        ("my_token", True),
        ("MAX_TOKENS", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("SSL_KEY_FILE", False),
        ("KEYBOARD", False),
        ("PATH", False),
    ],
)
def test_a_name_tells_a_secret_from_a_setting(name, secret):
    assert names_a_secret(name) is secret
