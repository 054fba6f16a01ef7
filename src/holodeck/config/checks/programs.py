"""What the code and the programs that an agent names are; nothing is imported or started."""

import ast
import codecs
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.model_calls import all_metrics
from holodeck.config.secrets import secrets_in_arguments
from holodeck.config.yaml.source import KeyPath, read_text
from holodeck.errors import ConfigError
from holodeck.lib.secrets.redact import MIN_SECRET_LENGTH
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.text import did_you_mean
from holodeck.lib.support.trust import require_nameable
from holodeck.lib.user_code.code_root import CodeFolders, code_hint, code_roots, folders_of
from holodeck.lib.user_code.registry import module_place
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig, McpBackendConfig, ProcessBackendConfig
from holodeck.models.tool import FunctionTool, McpTool, is_loopback
from holodeck.models.tools.knowledge import DatabaseConfig, KnowledgeTool

_CODE = "; 'code: …' names another folder, from which 'python -m' would import it"


def find_definition(file: str, name: str, base_dir: Path, location: str) -> ast.AST | None:
    """Return the node that defines `name` in a file; None if only a `*` import may define it.

    Raises ConfigError if the file is missing, is not Python, or does not define the name.
    """
    module = _parse(file, base_dir, location)
    bindings = _bindings(module.body)
    if name in bindings:
        return bindings[name]
    if "*" in bindings:
        return None
    raise ConfigError(location, f"{file} does not define {name!r}{did_you_mean(name, bindings)}")


def definition_of(target: str, base_dir: CodeFolders, location: str) -> ast.AST | None:
    """Return the node that defines `module:name` in a file here; None if that is unknown.

    Raises ConfigError if a file here should define it, and does not.
    """
    module, _, attribute = target.partition(":")
    place = module_place(module, base_dir)
    if place is None:
        return None
    folder, file = place
    name, _, inner = attribute.partition(".")
    node = find_definition(str(file), name, folder, location)
    return None if inner else node


def require_target(target: str, base_dir: CodeFolders, location: str) -> None:
    """Raise ConfigError if `module:attribute` must not be named, or is neither beside the
    agent.yaml, nor in the project around it, nor installed.

    For an installed module, only its package is looked up: more would run its code.
    """
    module = target.partition(":")[0]
    if module_place(module, base_dir) is not None:
        definition_of(target, base_dir, location)
        return
    require_nameable(module, folders_of(base_dir)[0], location)
    if (top := module.partition(".")[0]) in sys.modules or _spec_of(top) is not None:
        return
    roots = [str(root) for root in code_roots(base_dir)]
    if PathFinder.find_spec(top, roots) is None:
        stem, hint = Path(*module.split(".")), code_hint(module, folders_of(base_dir)[0])
        raise ConfigError(
            location,
            f"module not found: there is no {stem}.py beside the agent.yaml, and no such module is"
            f" installed, or beside a pyproject.toml in a folder above{hint or _CODE}",
        )


def require_definition(target: str, base_dir: CodeFolders, location: str) -> None:
    """Raise ConfigError if `module:attribute` is malformed, or a file here does not define it.

    Unlike `require_target`, it does not know which modules are installed.
    """
    module, colon, attribute = target.partition(":")
    names = [*module.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise ConfigError(
            location, f"{target!r} is not 'module:object', such as 'support:agent' for support.py"
        )
    if module_place(module, base_dir) is None:
        require_nameable(module, None, location)
    else:
        definition_of(target, base_dir, location)


def import_warning(target: str, base_dir: CodeFolders) -> str | None:
    """Return why importing `module:attribute` from an installed package will probably fail.

    This is only a warning: importing a package may define names that its files do not show.
    """
    module, _, attribute = target.partition(":")
    if module_place(module, base_dir) is not None:
        return None
    package, *parts = module.split(".")
    spec = _spec_of(package)
    for part in parts:
        folders = spec.submodule_search_locations if spec else None
        if folders is None:
            return None
        package = f"{package}.{part}"
        spec = PathFinder.find_spec(package, list(folders))
        if spec is None:
            return f"the installed package has no {package!r}; the import will probably fail"
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return _missing_name_warning(attribute.partition(".")[0], spec.origin)


def _missing_name_warning(name: str, file: str) -> str | None:
    try:
        bindings = _bindings(ast.parse(Path(file).read_bytes()).body)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{file} cannot be read as Python"
    if name in bindings or not bindings.keys().isdisjoint({"*", "__getattr__"}):
        return None
    return f"{file} does not define {name!r}{did_you_mean(name, bindings)}"


def parameter_names(function: ast.AST | None) -> list[str] | None:
    """Return the names of a function's parameters; None if they are unknown or arbitrary."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    arguments = function.args
    if arguments.kwarg is not None or function.decorator_list:
        return None
    return [arg.arg for arg in (*arguments.args, *arguments.kwonlyargs)]


def arguments_of_class(target: str, base_dir: CodeFolders) -> list[str] | None:
    """Return the arguments of `module:Class` in a file here; None if they are unknown."""
    found = definition_of(target, base_dir, "metric")
    if not isinstance(found, ast.ClassDef) or found.decorator_list:
        return None
    names = parameter_names(_bindings(found.body).get("__init__"))
    return None if names is None else names[1:]


def _parse(file: str, base_dir: Path, location: str) -> ast.Module:
    text = read_text(file, base_dir, location)
    try:
        return ast.parse(text, filename=file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(location, f"{file}{line} is not Python: {why}") from error


def _bindings(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Return name → node for the names defined at the top level, also in `if`, `try` and `with`."""
    found: dict[str, ast.AST] = {}
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = node
            case ast.Import() | ast.ImportFrom():
                found |= {(name.asname or name.name).partition(".")[0]: name for name in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [node for target in targets for node in ast.walk(target)]
                found |= {name.id: node for name in names if isinstance(name, ast.Name)}
            case ast.If() | ast.Try() | ast.With():
                blocks = (node, *getattr(node, "handlers", ()))
                for key in ("body", "orelse", "finalbody"):
                    for block in blocks:
                        found |= _bindings(getattr(block, key, []))
    return found


def _spec_of(package: str) -> ModuleSpec | None:
    """Return the spec of a top-level module without importing it, or None if it is missing."""
    try:
        return find_spec(package)
    except (ImportError, ValueError):
        return None


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
        with context.reporting((*path, "env_file")):
            file_inside(tool.env_file, folder)
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
    else:
        _check_command(context, backend, folder)
    if backend.python is not None:
        check_program(context, backend.python, base_dir, ("backend", "python"), _path_of(backend))
    if backend.target is not None:
        with context.reporting(("backend", "target")):
            folders = (*context.agent.own_code_folders, folder)
            require_definition(backend.target, folders, "backend.target")


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
    else:
        _check_command(context, backend, folder)


def _check_command(
    context: CheckContext, backend: ProcessBackendConfig | McpBackendConfig, folder: Path
) -> None:
    if backend.command is not None:
        path = ("backend", "command")
        check_program(context, backend.command[0], folder, (*path, 0), _path_of(backend))
        warn_of_visible_secrets(context, backend.command, path)


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
        python = next((name for name in ("bin/python", "python") if (file / name).exists()), None)
        hint = f"; write {str(Path(program) / python)!r}" if python else ""
        context.error(path, f"{program!r} is a folder; expected a program{hint}")
    elif not file.exists():
        names = [sibling.name for sibling in file.parent.iterdir()] if file.parent.is_dir() else []
        hint = did_you_mean(file.name, names)
        context.error(path, f"program not found: {program!r} in {folder}{hint}")
    elif not os.access(file, os.X_OK):
        context.error(path, f"{program!r} is not executable; try: chmod +x {program}")


def named_code(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    """Yield the user's code that a run imports, each with its path."""
    yield from _code_of_backend(agent)
    for index, tool in enumerate(agent.tools or ()):
        if isinstance(tool, FunctionTool):
            yield ("tools", index, "file"), tool.file
        database = tool.database if isinstance(tool, KnowledgeTool) else None
        if isinstance(database, DatabaseConfig) and database.named_class is not None:
            yield ("tools", index, "database", "provider"), database.named_class
    for path, metric in all_metrics(agent):
        if metric.enabled and metric.user_code is not None:
            yield path, metric.user_code
        if metric.enabled and metric.user_class is not None:
            yield (*path, "class"), metric.user_class
    for number, case in enumerate(agent.test_cases or ()):
        for target in case.called_functions:
            yield ("test_cases", number, "script"), target


def _code_of_backend(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    if agent.target is not None:
        is_text = isinstance(agent.backend, str)
        yield ("backend",) if is_text else ("backend", "target"), agent.target
    if isinstance(agent.backend, HttpBackendConfig):
        for key, function in agent.backend.functions.items():
            yield ("backend", key), function
