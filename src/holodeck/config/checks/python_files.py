"""Read what a Python file of the user defines, without running it."""

import ast
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from holodeck.config.yaml.source import read_text
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import is_file
from holodeck.lib.support.text import did_you_mean
from holodeck.lib.support.trust import require_nameable
from holodeck.lib.user_code.code_root import code_roots


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


def require_target(target: str, base_dir: Path, location: str) -> None:
    """Raise ConfigError if `module:attribute` must not be named, or is neither beside the
    agent.yaml, nor in the project around it, nor installed.

    For an installed module, only its package is looked up: more would run its code.
    """
    module, _, attribute = target.partition(":")
    file = _file_of(module, base_dir)
    if file is not None:
        find_definition(file, attribute.partition(".")[0], base_dir, location)
        return
    require_nameable(module, base_dir, location)
    if (top := module.partition(".")[0]) in sys.modules or _spec_of(top) is not None:
        return
    roots = [str(root) for root in code_roots(base_dir)]
    if PathFinder.find_spec(top, roots) is None:
        stem = Path(*module.split("."))
        raise ConfigError(
            location,
            f"module not found: there is no {stem}.py beside the agent.yaml, and no such module is"
            " installed, or beside a pyproject.toml in a folder above",
        )


def require_definition(target: str, base_dir: Path, location: str) -> None:
    """Raise ConfigError if `module:attribute` is malformed, or a file here does not define it.

    Unlike `require_target`, it does not know which modules are installed.
    """
    module, colon, attribute = target.partition(":")
    names = [*module.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise ConfigError(
            location, f"{target!r} is not 'module:object', such as 'support:agent' for support.py"
        )
    file = _file_of(module, base_dir)
    if file is None:
        require_nameable(module, None, location)
    else:
        find_definition(file, attribute.partition(".")[0], base_dir, location)


def import_warning(target: str, base_dir: Path) -> str | None:
    """Return why importing `module:attribute` from an installed package will probably fail.

    This is only a warning: importing a package may define names that its files do not show.
    """
    module, _, attribute = target.partition(":")
    if _file_of(module, base_dir) is not None:
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


def parameters_of_target(target: str, base_dir: Path, location: str) -> list[str] | None:
    """Return the parameters of `module:function` in a file here; None if they are unknown."""
    module, _, name = target.partition(":")
    file = _file_of(module, base_dir)
    if file is None or "." in name:
        return None
    return parameter_names(find_definition(file, name, base_dir, location))


def arguments_of_class(target: str, base_dir: Path, location: str) -> list[str] | None:
    """Return the arguments of `module:Class` in a file here; None if they are unknown."""
    module, _, name = target.partition(":")
    file = _file_of(module, base_dir)
    if file is None or "." in name:
        return None
    found = find_definition(file, name, base_dir, location)
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
                found |= _bindings(_nested_statements(node))
    return found


def _file_of(module: str, base_dir: Path) -> str | None:
    """Return the file of a module beside the agent.yaml, or None without one."""
    stem = Path(*module.split("."))
    candidates = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((str(file) for file in candidates if is_file(base_dir / file)), None)


def _nested_statements(block: ast.If | ast.Try | ast.With) -> list[ast.stmt]:
    """Return the statements in all branches of a compound statement."""
    handlers = getattr(block, "handlers", [])
    branches = [block.body, getattr(block, "orelse", []), getattr(block, "finalbody", [])]
    return [
        node for branch in (*branches, *(handler.body for handler in handlers)) for node in branch
    ]


def _spec_of(package: str) -> ModuleSpec | None:
    """Return the spec of a top-level module without importing it, or None if it is missing."""
    try:
        return find_spec(package)
    except (ImportError, ValueError):
        return None
