"""What the source of a Python file imports, directly and through files beside it, unrun."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_UNFORESEEABLE = frozenset({"__import__", "import_module"})
_DEBUGGERS = frozenset({"breakpoint", "set_trace"})


@dataclass(frozen=True)
class SourceImports:
    """The imports of a file, wherever they stand in it."""

    files: frozenset[Path]
    """The file itself and those in its folder that it imports; without empty ones, which hold no
    state that two could share."""
    modules: frozenset[str]
    """The other modules, such as `json` and `os.path`."""
    is_complete: bool
    """Whether no name in the files suggests that they import more, or start a debugger."""


def imports_of(file: Path, roots: Sequence[Path] = ()) -> SourceImports:
    """Return what a file imports; a file that cannot be read as Python imports nothing known.

    Modules are looked for beside the file that imports them, and then in `roots`.
    """
    waiting, files, modules, is_complete = [file], set[Path](), set[str](), True
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files.add(path)
        imports = _direct_imports(path, tuple(roots), path.stat().st_mtime_ns)
        if imports is None:
            is_complete = False
            continue
        waiting += imports.files
        modules |= imports.modules
        is_complete = is_complete and imports.is_complete
    written = frozenset(path for path in files if path.stat().st_size)
    return SourceImports(written, frozenset(modules), is_complete)


@cache
def _direct_imports(
    file: Path,
    roots: tuple[Path, ...],
    mtime_ns: int,  # noqa: ARG001 - of the key
) -> SourceImports | None:
    """Return what the file itself imports; None if it is not Python."""
    try:
        nodes = [*ast.walk(ast.parse(file.read_bytes()))]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    files, modules = set[Path](), set[str]()
    for folders, name in _imported_names(nodes, file, roots):
        beside = _first_files(folders, name)
        files.update(beside)
        if not beside:
            modules.add(name)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names |= {alias.name for node in imports for alias in node.names}
    return SourceImports(
        frozenset(files),
        frozenset(modules),
        names.isdisjoint(_UNFORESEEABLE | _DEBUGGERS),
    )


def _imported_names(
    nodes: list[ast.AST], file: Path, roots: tuple[Path, ...]
) -> Iterator[tuple[list[Path], str]]:
    """Yield the imported modules, each with the folders that it may be a file of."""
    absolute = [file.parent, *roots]
    for node in nodes:
        match node:
            case ast.Import():
                yield from ((absolute, alias.name) for alias in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield absolute, module
                for alias in node.names:  # `from package import module`
                    if _first_files(absolute, f"{module}.{alias.name}"):
                        yield absolute, f"{module}.{alias.name}"
            case ast.ImportFrom():
                folder = [file.parents[node.level - 1]]
                stem = f"{node.module}." if node.module else ""
                names = [f"{stem}{alias.name}" for alias in node.names]
                for name in [*names, *([node.module] if node.module else ["__init__"])]:
                    if _first_files(folder, name):
                        yield folder, name


def _first_files(folders: list[Path], name: str) -> list[Path]:
    """Return the files of a module in the first folder that has it."""
    return next(filter(None, (_files_of(folder, name) for folder in folders)), [])


def _files_of(folder: Path, name: str) -> list[Path]:
    """Return the file of a module in the folder, and those of the packages that it is in."""
    files, stem = list[Path](), folder
    for part in name.split("."):
        stem = stem / part
        candidates = (stem.with_name(f"{part}.py"), stem / "__init__.py")
        file = next((path for path in candidates if path.is_file()), None)
        if file is not None:
            files.append(file.resolve())
    return files
