"""What `validate` says about MCP servers in `tools`."""

import pytest
import yaml

from holodeck.config.checks.agent import check
from holodeck.config.environment import Environment
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

AGENT = {
    "name": "shop",
    "model": {"provider": "openai", "name": "m", "api_key": "k"},
    "instructions": {"inline": "Help."},
    "test_cases": [{"input": "hi", "expected_tools": ["get_time"]}],
}


def findings(folder, **fields):
    tool = {"type": "mcp", "name": "clock", **fields}
    (folder / "agent.yaml").write_text(yaml.safe_dump({**AGENT, "tools": [tool]}))
    agent = ConfigLoader(Environment([])).load_agent_yaml(folder / "agent.yaml")
    return [f"{one.severity}: {one.path}: {one.message}" for one in check(agent)]


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "sh", "args": ["-c", "exit"], "env": {"A": "b"}, "registry_name": "io.x/clock"},
        {"transport": "http", "url": "https://example.com/mcp", "headers": {"a": "b"}},
        {"transport": "sse", "url": "http://127.0.0.1:1/sse", "sse_read_timeout": 5},
        {"transport": "websocket", "url": "ws://localhost:1/ws"},
    ],
    ids=lambda fields: fields.get("transport", "stdio"),
)
def test_a_server_that_can_be_reached_is_fine_and_so_is_every_tool_name(tmp_path, fields):
    assert findings(tmp_path, **fields) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "'command' is missing; write the program that starts the server"),
        ({"url": "http://x"}, "for a server at a 'url', write 'transport: http'"),
        ({"transport": "http"}, "'url' is missing, which 'transport: http' needs"),
        ({"transport": "http", "url": "ws://x"}, "'url' must begin with https:// or http://"),
        ({"transport": "sse", "url": "http://example.com"}, "for this machine only; write https:"),
        ({"transport": "pigeon", "url": "http://x"}, "pigeon"),
        ({"command": "sh", "request_timeout": 0}, "request_timeout"),
    ],
)
def test_a_server_that_cannot_be_reached_is_an_error_with_its_location(tmp_path, fields, said):
    with pytest.raises(ConfigError, match=r"agent\.yaml:\d+:\d+") as caught:
        findings(tmp_path, **fields)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": "no-such-npx"}, "error: tools[0].command: program not found in PATH"),
        ({"command": "npx", "env": {"PATH": "/"}}, "'npx'; install Node.js, or write its path"),
        ({"command": "./server"}, "program not found: './server'"),
        (
            {"command": "npx -y clock"},
            "'npx -y clock' is a program with arguments; write 'command: npx' and 'args: [-y,",
        ),
        ({"command": "sh", "env_file": "no.env"}, "file not found in"),
        ({"command": "sh", "env_file": "../no.env"}, "lies outside of the agent's folder"),
        ({"command": "sh", "encoding": "utf-9"}, "unknown encoding 'utf-9'; write utf-8"),
        ({"command": "sh", "url": "x"}, "tools[0].url: has no effect with 'transport: stdio'"),
        ({"transport": "websocket", "url": "ws://a.b"}, "warning: tools[0].url: is not encrypted"),
        ({"command": "sh", "load_tools": False}, "get_time"),
    ],
)
def test_what_prevents_a_start_is_found_without_starting_anything(tmp_path, fields, said):
    assert any(said in one for one in findings(tmp_path, **fields))
