"""Static check of `tools` of the type `mcp`: programs and files; nothing is started."""

import codecs

from holodeck.config.check_process import check_program, warn_of_visible_secrets
from holodeck.config.findings import CheckContext, Tools
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import file_inside
from holodeck.models.tools.mcp import McpTool, is_loopback

_INSTALL = {
    "npx": "install Node.js",
    "node": "install Node.js",
    "uvx": "install uv: pip install uv",
    "docker": "install Docker",
}
_OF_COMMAND = ("command", "args", "env", "env_file", "encoding", "config")
_OF_URL = ("url", "headers", "sse_read_timeout", "terminate_on_close")


def check_mcp_tool(context: CheckContext, tool: McpTool, path: KeyPath) -> Tools | None:
    """Find what prevents a server from starting; only the run knows its tools.

    A server of a config.yaml is not checked: if it does not start, the agent does without.
    """
    if tool.is_shared:
        return None
    is_process = tool.transport == "stdio"
    for key in _OF_URL if is_process else _OF_COMMAND:
        if getattr(tool, key) is not None:
            context.warning((*path, key), f"has no effect with 'transport: {tool.transport}'")
    if is_process:
        _check_process(context, tool, path)
    elif tool.url is not None and tool.url.startswith("ws://") and not is_loopback(tool.url):
        context.warning((*path, "url"), "is not encrypted; write wss://")
    return None if tool.load_tools else {}


def _check_process(context: CheckContext, tool: McpTool, path: KeyPath) -> None:
    program, folder = tool.command or "", context.agent.own_dir
    words = program.split()
    if len(words) > 1 and not (folder / program).exists():
        context.error(
            (*path, "command"),
            f"{program!r} is a program with arguments; write 'command: {words[0]}' and 'args:"
            f" [{', '.join(words[1:])}]'",
        )
    else:
        variables = tool.env or {}
        search = variables["PATH"].get_secret_value() if "PATH" in variables else None
        install = _INSTALL.get(program, "install it")
        check_program(context, program, folder, (*path, "command"), search, install)
    warn_of_visible_secrets(context, tool.args or (), (*path, "args"))
    if tool.env_file is not None:
        try:
            file_inside(tool.env_file, folder)
        except ConfigError as error:
            context.config_error((*path, "env_file"), error)
    if tool.encoding is not None:
        try:
            codecs.lookup(tool.encoding)
        except LookupError:
            context.error((*path, "encoding"), f"unknown encoding {tool.encoding!r}; write utf-8")
