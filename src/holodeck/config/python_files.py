"""What a user's Python file defines, read without running it."""

import ast
import difflib
import sys
from importlib.util import find_spec
from pathlib import Path

from holodeck.config.files import text_of
from holodeck.errors import ConfigError
from holodeck.lib.paths import is_file


def definition(file: str, name: str, base_dir: Path, where: str) -> ast.AST | None:
    """The node that binds `name` in a file beside the agent.yaml; None if `*` imports may.

    Raises ConfigError if the file is not there, is not Python, or does not bind the name.
    """
    module = _parsed(file, base_dir, where)
    bindings = _bindings(module.body)
    if name in bindings:
        return bindings[name]
    if "*" in bindings:
        return None
    near = difflib.get_close_matches(name, bindings, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(where, f"{file} defines no {name!r}{hint}")


def check_target(target: str, base_dir: Path, where: str) -> None:
    """Raise ConfigError if `module:attribute` cannot be found, beside the agent.yaml or installed.

    Of an installed module only the package is looked for, since more would run its code.
    """
    module, _, attribute = target.partition(":")
    stem = Path(*module.split("."))
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if is_file(base_dir / file):
            definition(str(file), attribute.partition(".")[0], base_dir, where)
            return
    if not _is_installed(module.partition(".")[0]):
        raise ConfigError(
            where, f"there is no {stem}.py beside the agent.yaml, and no such module is installed"
        )


def parameters(function: ast.AST | None) -> list[str] | None:
    """Names of a function's parameters; None if they cannot be told or it takes any."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    arguments = function.args
    if arguments.kwarg is not None or function.decorator_list:
        return None
    return [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]


def _parsed(file: str, base_dir: Path, where: str) -> ast.Module:
    text = text_of(file, base_dir, where)
    try:
        return ast.parse(text, filename=file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError(where, f"{file}{line} is not Python: {error}") from error


def _bindings(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Name → what binds it at the top level, inside `if`, `try` and `with` too."""
    found: dict[str, ast.AST] = {}
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = node
            case ast.Import() | ast.ImportFrom():
                found |= {(one.asname or one.name).partition(".")[0]: one for one in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [one for target in targets for one in ast.walk(target)]
                found |= {one.id: node for one in names if isinstance(one, ast.Name)}
            case ast.If() | ast.Try() | ast.With():
                found |= _bindings(_below(node))
    return found


def _below(block: ast.If | ast.Try | ast.With) -> list[ast.stmt]:
    """The statements directly in a compound one, whichever branch they are in."""
    handlers = getattr(block, "handlers", [])
    branches = [block.body, getattr(block, "orelse", []), getattr(block, "finalbody", [])]
    return [node for branch in (*branches, *(one.body for one in handlers)) for node in branch]


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
