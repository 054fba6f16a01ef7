"""Import the user's Python files from a code root, as `python -m` does, and read what they import.

While a file is imported, the folder of its agent.yaml, the one that its key `code` names, and the
file's own folder come first in `sys.path`, after the standard library: a `calendar.py` there breaks
nothing. From then on they come last, for imports inside functions. The nearest folder above with a
`pyproject.toml`, and its `src`, come after installed packages throughout. A module has the name by
which the user's code imports it, so that no file is loaded twice. Where two folders have modules of
one name, those of the latest import are found.
"""

import ast
import hashlib
import importlib
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from holodeck.errors import ConfigError
from holodeck.lib.processes.process_exit import note_user_code
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.source_files import is_users_file
from holodeck.lib.support.text import describe
from holodeck.lib.support.trust import refuse_untrusted_code
from holodeck.lib.ui.activity import activity
from holodeck.lib.user_code.asserts import AssertLoader

CodeFolders = Path | tuple[Path, ...]
"""Where modules are looked for first: the folder of an agent.yaml, and that of its key `code`."""

_PROJECT = "pyproject.toml"
_NEAR = 3
"""How many folders above the agent.yaml may have the code that it misses."""
_STANDARD = frozenset(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_lock = threading.RLock()
_added: dict[str, None] = {}
"""The entries of `sys.path` that this module added, in their order."""
_modules: dict[Path, tuple[int, ModuleType]] = {}
"""The modules of the files that were imported, and when these had changed."""
_imported: set[str] = set()
"""The names of the modules that were imported in between."""
_of_agents: dict[Path, tuple[Path, ...]] = {}
"""Files that were imported for anything but a grader, and where their imports are looked for."""
_thread = threading.local()
"""Has `is_for_grader` in a thread that imports a grader."""


@contextmanager
def importing_grader() -> Iterator[None]:
    """Note that what the block imports is for a grader."""
    _thread.is_for_grader = True
    try:
        yield
    finally:
        _thread.is_for_grader = False


def _is_for_grader() -> bool:
    return getattr(_thread, "is_for_grader", False)


def files_of_agents() -> dict[Path, tuple[Path, ...]]:
    """Return the files that this process imported for anything but a grader, with `code_roots`."""
    return dict(_of_agents)


def is_imported_by_others(files: Collection[Path]) -> bool:
    """Whether a module of one of the files was imported by other code than holodeck."""
    names = {str(file) for file in files}
    return any(
        getattr(module, "__file__", None) in names and name not in _imported
        for name, module in sys.modules.copy().items()
    )


def folders_of(code: CodeFolders) -> tuple[Path, ...]:
    """Return the folders, the one of the agent.yaml first."""
    return (code,) if isinstance(code, Path) else code


def code_roots(code: CodeFolders) -> tuple[Path, ...]:
    """Return where modules of an agent are looked for, besides installed ones."""
    folders = folders_of(code)
    roots = (*(folder.resolve() for folder in folders), *_project_roots(folders[0]))
    return tuple(dict.fromkeys(roots))


def _project_roots(folder: Path) -> list[Path]:
    """Return where a project around the folder keeps its modules: its `src`, and the project."""
    parents = (folder.resolve(), *folder.resolve().parents)
    project = next((parent for parent in parents if (parent / _PROJECT).is_file()), None)
    if project is None:
        return []
    source = project / "src"
    return [source, project] if source.is_dir() else [project]


def code_hint(module: str, folder: Path) -> str:
    """Return which `code` would find a module, as the end of a message; empty if none is near."""
    top, folder = module.partition(".")[0], folder.resolve()
    for parent in folder.parents[:_NEAR]:
        for root in (parent, parent / "src"):
            if PathFinder.find_spec(top, [str(root)]) is not None:
                return f"; write 'code: {os.path.relpath(root, folder)}' in the agent.yaml"
    return ""


def path_for_children() -> list[str]:
    """Return `sys.path` without what this module added; another process adds what it needs."""
    return [entry for entry in sys.path if entry not in _added]


def import_installed(name: str, folders: Sequence[Path]) -> ModuleType:
    """Return an installed module, or one of the project around the first folder."""
    roots = _project_roots(folders[0]) if folders else []
    with _lock, _search_path([], roots):
        _forget_others(roots)
        module = importlib.import_module(name)
    file = getattr(module, "__file__", None)
    if file is not None and is_users_file(file) and not _is_for_grader():
        _of_agents[Path(file).resolve()] = code_roots(tuple(folders)) if folders else ()
    return module


def import_file(path: Path, within: CodeFolders) -> ModuleType:
    """Return the module of a Python file; the same one until the file changes.

    A relative path starts from the first folder of `within`, and the file must be in it. Raises
    ConfigError, with the line of the file where the import failed.
    """
    folders = folders_of(within)
    refuse_untrusted_code(str(path))
    file = file_inside(path, folders[0])
    note_user_code()
    if not _is_for_grader():
        _of_agents[file] = code_roots(within)
    with _lock, activity(f"loading {path}"):
        mtime_ns = file.stat().st_mtime_ns
        if file not in _modules or _modules[file][0] != mtime_ns:
            if file in _modules:
                _forget(_modules.pop(file)[1].__name__)
            _modules[file] = mtime_ns, _import(file, path, [each.resolve() for each in folders])
        return _modules[file][1]


def _import(file: Path, path: Path, folders: Sequence[Path]) -> ModuleType:
    root, name = module_location(Path(os.path.normpath(folders[0] / path)), folders[0])
    beside = [] if _is_package(file.parent) else [file.parent]
    first, last = list(dict.fromkeys([root, *folders, *beside])), _project_roots(folders[0])
    with _search_path(first, last):
        _forget_others([*first, *last])
        if _is_taken(name, root):
            name = f"_holodeck_file_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
        try:
            return _load(name, file)
        except (Exception, SystemExit) as error:
            line = _line_in(file, error)
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            hint = code_hint(missing, folders[0]) if missing else ""
            raise ConfigError(
                f"{path}:{line}" if line else str(path),
                f"cannot be imported: {describe(error)}{hint}",
            ) from error


def module_location(path: Path, folder: Path) -> tuple[Path, str]:
    """Return the entry of `sys.path` that a file is found by, and the name of its module.

    That is the agent's folder, or the folder around the package that it is in. The name is dotted,
    unless a folder on the way cannot be a part of it.
    """
    stem = path.parent if path.name == "__init__.py" else path.with_suffix("")
    root = folder if stem.is_relative_to(folder) and stem != folder else path.parent
    for _ in range(2):
        while _is_package(root):
            root = root.parent
        names = stem.relative_to(root).parts
        if all(name.isidentifier() for name in names):
            break
        root = stem.parent
    return root, ".".join(names)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


@contextmanager
def _search_path(first: Sequence[Path], last: Sequence[Path]) -> Iterator[None]:
    """Search the folders `first` before installed packages within the block, and after them from
    then on; the folders `last` are searched after them throughout.
    """
    before, loaded = [*sys.path], set(sys.modules)
    ours = [str(folder) for folder in first]
    later = [str(folder) for folder in last]
    users = [entry for entry in before if entry not in _added]
    standard = [entry for entry in before if entry in _STANDARD or _is_part_of_standard(entry)]
    inside = dict.fromkeys([*standard, *ours, *users, *later, *_added])
    sys.path[:] = inside
    importlib.invalidate_caches()
    try:
        yield
    finally:
        _imported.update(sys.modules.keys() - loaded)
        added = [entry for entry in sys.path if entry not in inside]  # by the user's code
        mine = dict.fromkeys([*ours, *later, *_added])
        for entry in users:
            mine.pop(entry, None)
        _added.clear()
        _added.update(mine)
        sys.path[:] = [*added, *users, *_added]


def _is_part_of_standard(entry: str) -> bool:
    return entry.endswith("/lib-dynload") or (entry.endswith(".zip") and not Path(entry).exists())


def _is_taken(name: str, root: Path) -> bool:
    """Whether the name leads to another module than one in `root`."""
    top = name.partition(".")[0]
    module = sys.modules.get(top)
    spec = module.__spec__ if module is not None else PathFinder.find_spec(top, sys.path)
    if spec is None:
        return module is not None
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
    mine = {str(root / top), str(root / f"{top}.py")}
    return not any(os.path.realpath(place) in mine for place in places)


def _forget_others(entries: Sequence[Path]) -> None:
    """Forget the modules of other folders that these folders have modules of the same name as."""
    here = {path.name.removesuffix(".py") for entry in entries for path in entry.iterdir()}
    for top in here & {name.partition(".")[0] for name in _imported & sys.modules.keys()}:
        family = _family(top).items()
        if any(_is_elsewhere(name, module, entries) for name, module in family):
            _forget(top)


def _is_elsewhere(name: str, module: ModuleType, entries: Sequence[Path]) -> bool:
    """Whether a module comes from a folder that this module added, and from none of these."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    stem = Path(file).parent if Path(file).name == "__init__.py" else Path(file).with_suffix("")
    if len(stem.parts) <= name.count(".") + 1:
        return False
    root = stem.parents[name.count(".")]
    return str(root) in _added and root not in entries


def _family(name: str) -> dict[str, ModuleType]:
    """Return a module and those inside of it that are loaded, by their names."""
    inside = f"{name}."
    # A copy, which is made in one step: making a list lets other threads import in between.
    return {
        loaded: module
        for loaded, module in sys.modules.copy().items()
        if loaded == name or loaded.startswith(inside)
    }


def _forget(name: str) -> None:
    """Let a module of the user, and those inside of it, be imported anew."""
    for loaded in _family(name):
        del sys.modules[loaded]


def _load(name: str, file: Path) -> ModuleType:
    """Return a module, with the asserts of a grader rewritten."""
    parent, _, child = name.rpartition(".")
    package = importlib.import_module(parent) if parent else None
    if name in sys.modules:
        return importlib.import_module(name)
    is_package = file.name == "__init__.py"
    loader = AssertLoader if _is_for_grader() else SourceFileLoader
    spec = spec_from_file_location(
        name,
        file,
        loader=loader(name, str(file)),
        submodule_search_locations=[str(file.parent)] if is_package else None,
    )
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    if package is not None:
        setattr(package, child, module)
    return importlib.import_module(name)  # it may have put another in its place


def _line_in(file: Path, error: BaseException) -> int | None:
    """Return the line of the file that failed; None if it is unknown."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return lines[-1] if lines else None


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
