"""An MCP server that remembers notes; it needs its environment variable."""

import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("notes")


@server.tool()
def read_notes(about: str) -> str:
    """Return what was noted about something."""
    return f"{about}: {os.environ['NOTES']}"


server.run()
