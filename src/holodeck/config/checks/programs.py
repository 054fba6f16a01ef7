"""Static checks of the programs of backends and MCP servers; nothing is started."""

import codecs
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.python_files import require_definition
from holodeck.config.secrets import secrets_in_arguments
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.secrets.redact import MIN_SECRET_LENGTH
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.text import did_you_mean
from holodeck.models.backend import McpBackendConfig, ProcessBackendConfig
from holodeck.models.tool import McpTool, is_loopback

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


def check_process(context: CheckContext, backend: ProcessBackendConfig) -> None:
    """Find programs and folders that are missing, and a target that certainly does not exist."""
    base_dir = context.agent.own_dir
    folder = base_dir if backend.cwd is None else base_dir / backend.cwd
    if not folder.is_dir():
        context.error(("backend", "cwd"), f"folder not found: {backend.cwd!r}")
    if backend.command is not None:
        path = ("backend", "command", 0)
        check_program(context, backend.command[0], folder, path, _path_of(backend))
        warn_of_visible_secrets(context, backend.command, ("backend", "command"))
    if backend.python is not None:
        check_program(context, backend.python, base_dir, ("backend", "python"), _path_of(backend))
    if backend.target is not None:
        try:
            require_definition(backend.target, base_dir, "backend.target")
        except ConfigError as error:
            context.config_error(("backend", "target"), error)


def warn_of_visible_secrets(context: CheckContext, arguments: Sequence[str], path: KeyPath) -> None:
    """Report secrets in the arguments of a program; its `env` is not in the list of processes."""
    if any(len(value) >= MIN_SECRET_LENGTH for value in secrets_in_arguments(arguments)):
        context.warning(
            path,
            "contains a secret, which every user of this machine can see in the list of processes"
            " while the program runs; pass it in 'env'",
        )


def check_mcp_server(context: CheckContext, backend: McpBackendConfig) -> None:
    """Find a program or folder that is missing, and a URL that is none."""
    if backend.url is not None and not backend.url.startswith(("http://", "https://")):
        context.error(("backend", "url"), "a URL must begin with http:// or https://")
    folder = context.agent.base_dir / (backend.cwd or "")
    if not folder.is_dir():
        context.error(("backend", "cwd"), f"folder not found: {backend.cwd!r}")
    elif backend.command is not None:
        path = ("backend", "command", 0)
        check_program(context, backend.command[0], folder, path, _path_of(backend))
        warn_of_visible_secrets(context, backend.command, ("backend", "command"))


def _path_of(backend: ProcessBackendConfig | McpBackendConfig) -> str | None:
    variable = backend.env.get("PATH")
    return variable.get_secret_value() if variable else None


def check_program(
    context: CheckContext,
    program: str,
    folder: Path,
    path: KeyPath,
    search_path: str | None,
    install: str = "install it",
) -> None:
    """Find a program that cannot be started.

    `search_path` is its variable PATH, if that is set; `install` says how it is installed.
    """
    if os.sep not in program:
        if shutil.which(program, path=search_path) is None:
            context.error(
                path, f"program not found in PATH: {program!r}; {install}, or write its path"
            )
        return
    file = folder / program
    if file.is_dir():
        python = next((one for one in ("bin/python", "python") if (file / one).exists()), None)
        hint = f"; write {str(Path(program) / python)!r}" if python else ""
        context.error(path, f"{program!r} is a folder; expected a program{hint}")
    elif not file.exists():
        names = [one.name for one in file.parent.iterdir()] if file.parent.is_dir() else []
        hint = did_you_mean(file.name, names)
        context.error(path, f"program not found: {program!r} in {folder}{hint}")
    elif not os.access(file, os.X_OK):
        context.error(path, f"{program!r} is not executable; try: chmod +x {program}")
