"""Public MCP servers, where they are installed: `pip install mcp-server-time mcp-server-fetch`,
`npm install -g @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem`."""

import os
import shutil

import pytest

from holodeck.lib.tools.base import run_tool
from holodeck.lib.tools.mcp import McpServer
from holodeck.lib.tools.toolbox import ToolContext
from holodeck.models.agent import Agent
from holodeck.models.tool import McpTool


@pytest.mark.parametrize(
    ("program", "tool", "arguments", "said", "is_error"),
    [
        ("mcp-server-time", "get_current_time", {"timezone": "UTC"}, '"timezone": "UTC"', False),
        ("mcp-server-time", "get_current_time", {"timezone": "Nowhere"}, "Nowhere", True),
        ("mcp-server-fetch", "fetch", {"url": "http://127.0.0.1:9/"}, "127.0.0.1", True),
        ("mcp-server-everything", "get-sum", {"a": 1, "b": 2}, "is 3", False),
        ("mcp-server-everything", "get-tiny-image", {}, "[image/png, ", False),
        ("mcp-server-filesystem", "read_text_file", {"path": "a.txt"}, "hello", False),
        ("mcp-server-filesystem", "read_text_file", {"path": "/etc/passwd"}, "denied", True),
    ],
)
async def test_a_public_server_gives_its_tools(program, tool, arguments, said, is_error, tmp_path):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "a.txt").write_text("hello")
    args = ["."] if program.endswith("filesystem") else []
    config = McpTool(name="public", command=program, args=args, timeout=600, request_timeout=600)
    agent = Agent.model_construct().with_base_dir(tmp_path)
    server = McpServer(config, ToolContext(agent, environment=dict(os.environ)))
    tools = {one.name: one for one in await server.open()}
    try:
        outcome = await run_tool(tools[tool], arguments)
    finally:
        await server.close()

    assert said in outcome.result_text
    assert (outcome.error is not None) is is_error
