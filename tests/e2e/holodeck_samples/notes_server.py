"""An MCP server that remembers notes and lists a folder, as it is asked to."""

import os
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

server = FastMCP("notes")


@server.tool(structured_output=False)
def read_notes(about: str) -> str:
    """Return what was noted about something."""
    return f"{about}: {os.environ.get('NOTES', 'nothing')}"


@server.tool(structured_output=False)
def list_directory() -> str:
    """Return the names of the files in the folder."""
    return ", ".join(one.name for one in Path(sys.argv[1]).iterdir())


server.run()
