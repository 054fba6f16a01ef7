"""Agents of the Claude Agent SDK, where it is installed; `scripts/frameworks claude-agent-sdk`."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from support.frameworks import INSTRUCTIONS, TOOL, Subject, lookup_order
from support.server import FakeOpenAI

FRAMEWORK = "Claude Agent SDK"
REQUIRES = "claude_agent_sdk"


def claude_agent_options(server: FakeOpenAI) -> Subject:
    from claude_agent_sdk import HookMatcher

    noticed: list[str] = []

    async def notice(data, tool_use_id, context):
        noticed.append(data["tool_name"])
        return {}

    options = options_for(server, hooks={"PreToolUse": [HookMatcher(hooks=[notice])]})
    return Subject(
        options, server, tool=f"mcp__orders__{TOOL}", agents=["main"], noticed=lambda: noticed
    )


def claude_agent_with_approvals(server: FakeOpenAI) -> Subject:
    async def nobody(name, arguments, context):
        raise AssertionError("the test case answers")

    options = options_for(server, can_use_tool=nobody, allowed_tools=[])
    return Subject(options, server, tool=f"mcp__orders__{TOOL}")


def options_for(server: FakeOpenAI, **fields):
    """Return options with the tool of every agent, for a process that knows nobody's settings."""
    from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

    @tool(TOOL, "Return where an order is.", {"order_id": str})
    async def lookup(arguments):
        text = lookup_order(arguments["order_id"])
        return {"content": [{"type": "text", "text": text}]}

    given = {
        "system_prompt": INSTRUCTIONS,
        "model": "fake",
        "env": environment(server),
        "tools": [],
        "mcp_servers": {"orders": create_sdk_mcp_server("orders", tools=[lookup])},
        "allowed_tools": ["mcp__orders"],
        "setting_sources": [],
    }
    return ClaudeAgentOptions(**{**given, **fields})


def environment(server: FakeOpenAI) -> dict[str, str]:
    """Return variables that lead Claude Code to the fake server, and nowhere else."""
    home = Path(tempfile.mkdtemp(prefix="holodeck-claude-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    others = {name: "" for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))}
    return {
        **others,
        "ANTHROPIC_BASE_URL": server.root,
        "ANTHROPIC_API_KEY": "not-a-real-key",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


ROWS = [claude_agent_options]
APPROVAL_ROWS = [claude_agent_with_approvals]
