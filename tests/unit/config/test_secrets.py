"""Which values count as secret."""

import shlex

import pytest

from holodeck.config.secrets import collect
from holodeck.lib.secrets.formats import names_a_secret
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


def test_secrets_in_urls_and_commands_are_found():
    url = "http://joe:pass-of-joe@x/y?code=func%2Bkey&k=a1b2c3d4e5&api-version=2024-10-01-preview"
    command = [
        "agent",
        "--token",
        "secret-of-arg",
        "--api-key=key-of-arg",
        "--model",
        "gpt-4o-mini",
    ]
    agents = [
        {"name": "a", "backend": {"type": "http", "url": url}},
        {"name": "b", "backend": {"type": "process", "command": command}},
    ]

    found = [collect(Agent.model_validate(agent), {}) for agent in agents]

    assert found == [
        ["pass-of-joe", "func+key", "a1b2c3d4e5"],
        ["secret-of-arg", "key-of-arg"],
    ]


def test_secrets_after_a_fragment_or_in_nested_keys_are_found():
    url = "http://x/y;key=matrix-key-1#token=fragment-key-2"
    server = {"type": "mcp", "name": "m", "command": "x", "config": {"a": [{"token": "nested-3"}]}}
    body = {"input": "{input}", "auth": {"token": "body-key-4", "key": "{conversation_id}"}}
    model = {"provider": "openai", "name": "x"}
    agents = [
        {"name": "a", "backend": {"type": "http", "url": url, "request": body}},
        {"name": "b", "model": model, "instructions": {"inline": "x"}, "tools": [server]},
    ]

    found = [collect(Agent.model_validate(agent), {}) for agent in agents]

    assert found == [["fragment-key-2", "matrix-key-1", "body-key-4"], ["nested-3"]]


COMMANDS = {
    "curl -H 'Authorization: Bearer abc-12345' x": ["abc-12345"],
    "curl -H Authorization:abc-12345 x": ["abc-12345"],
    "curl --header=X-Api-Key:abc-12345 x": ["abc-12345"],
    "curl -u joe:hunter-2 x": ["hunter-2"],
    "curl --user joe:hunter-2 x": ["hunter-2"],
    "psql -p hunter22x": ["hunter22x"],
    "mysql -phunter22x": ["hunter22x"],
    "bot -t abcd1234": ["abcd1234"],
    "bot --tok abcdef": ["abcdef"],
    "bot --pass abcdef": ["abcdef"],
    "docker run -e API_TOKEN=abcdef image": ["abcdef"],
    "docker run --env=API_TOKEN=abcdef image": ["abcdef"],
    "env API_TOKEN=abcdef bot": ["abcdef"],
    "bot https://joe:hunter-2@host/": ["hunter-2"],
    "bot https://host/bot12:ABC/send": ["12:ABC"],
    "sh -c 'TOKEN=abcdef curl -H \"X-Api-Key: fedcba\" x'": ["abcdef", "fedcba"],
    "npx -y -p @scope/package2go -p 8080 server": [],
    "docker run -t image:1.2.3 -u 1000": [],
    "python -m http.server --port 8080 --password-stdin": [],
    "uvx server --local-timezone=Europe/Berlin --date 2026-01-01T10:00": [],
    "bot 'Give the token: now'": [],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_secrets_in_a_command_are_found_wherever_programs_take_them(command):
    backend = {"type": "process", "command": shlex.split(command)}

    found = collect(Agent.model_validate({"name": "a", "backend": backend}), {})

    assert set(found) == set(COMMANDS[command])


PATHS = {
    "https://host/bot123:ABC/send": ["123:ABC"],
    "https://hook.eu1.make.com/abcdefgh1234567890abcdefgh12": ["abcdefgh1234567890abcdefgh12"],
    "https://host/v1/Ab3dEf6hIj9k/run": ["Ab3dEf6hIj9k"],
    "https://host/t/0123456789abcdef0123456789abcdef": ["0123456789abcdef0123456789abcdef"],
    "https://host/v1/models/gpt-4o-2024-08-06/chat": [],
    "https://host/openai/deployments/My-GPT4o/chat/completions": [],
    "https://host/projects/my-project-123456/locations/us-central1": [],
    "https://host/internationalization/documentation2": [],
}


@pytest.mark.parametrize("url", PATHS)
def test_a_token_in_the_path_of_a_url_is_found(url):
    agents = [
        {"name": "a", "backend": {"type": "http", "url": url}},
        {"name": "b", "backend": "b:a", "test_cases": [
            {"input": "x", "files": [{"url": url, "type": "text"}]}
        ]},
    ]  # fmt: skip

    found = [collect(Agent.model_validate(agent), {}) for agent in agents]

    assert found == [PATHS[url], PATHS[url]]


def test_a_secret_in_the_context_of_a_case_is_found_and_an_ordinary_key_is_none():
    context = {
        "user": {"session_token": "tok-of-joe-1", "key": "order-1234"},
        "code": "SUMMER2026",
        "callback": "https://joe:hunter-2@host/",
    }
    case = {"input": "x", "context": context}

    found = collect(Agent.model_validate({"name": "b", "backend": "b:a", "test_cases": [case]}), {})

    assert set(found) == {"tok-of-joe-1", "hunter-2"}


def test_the_password_in_the_url_of_a_variable_is_secret():
    env = {
        "DATABASE_URL": "postgres://app:Zk4-xxx-9@db/x",
        "OTHER": "postgres://postgres:postgres@db",
    }

    assert collect(None, env) == ["Zk4-xxx-9"]


def test_the_last_part_of_a_secret_url_of_a_variable_is_secret():
    env = {"ALERT_WEBHOOK_URL": "https://host/a/tok-3n.x", "HOME_URL": "https://host/a/tok-3n.x"}

    assert collect(None, env) == ["https://host/a/tok-3n.x", "tok-3n.x"]


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
        ("DATABASE_CONNECTION_STRING", True),
        ("SLACK_WEBHOOK_URL", True),
        ("SESSION_COOKIE", True),
        ("NPM_AUTH", True),
        ("BEARER", True),
        ("JWT", True),
        ("AZURE_CONN_STR", True),
        ("X-Amz-Signature", True),
        ("Ocp-Apim-Subscription-Key", True),
        ("sig", True),
        ("code", True),
        ("--api-key", True),
        ("clientSecret", True),
        ("PWD", False),
        ("OLDPWD", False),
        ("DB_PWD", True),
        ("PGPASSFILE", False),
        ("API_KEY_FILE", False),
        ("EXIT_CODE", False),
        ("HOLODECK_CACHE_KEY", False),
        ("SSH_AUTH_SOCK", False),
        ("DESKTOP_SESSION", False),
        ("api-version", False),
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
