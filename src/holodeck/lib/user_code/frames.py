"""Import a Python file of the user's by its path.

A plain `from helpers import x` in the file finds `helpers.py` or `helpers/` in the file's folder,
also in functions that run later. Modules of the standard library take precedence, so a
`calendar.py` in the folder breaks nothing, and `sys.path` does not change. Modules of another
folder are removed first: the `helpers` of two agents are two modules.
"""

import hashlib
import importlib
import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from holodeck.errors import ConfigError
from holodeck.lib.support.garbage import note_user_code
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.text import describe
from holodeck.lib.support.trust import refuse_untrusted_code
from holodeck.lib.ui.activity import activity

_lock = threading.RLock()
_loaded: dict[tuple[Path, int], ModuleType] = {}
_finders: dict[Path, "_FolderFinder"] = {}
_of_agents: set[Path] = set()
"""Files that were imported for anything but a grader."""
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


def files_of_agents() -> frozenset[Path]:
    """Return the files that this process imported for anything but a grader."""
    return frozenset(_of_agents)


def is_imported_by_others(files: Collection[Path]) -> bool:
    """Whether a module of one of the files was imported by other code than holodeck."""
    names = {str(file) for file in files}
    ours = {id(spec) for finder in _finders.values() for spec in finder.specs()}
    loaded = [*_loaded.values()]
    return any(
        getattr(module, "__file__", None) in names
        and id(module.__spec__) not in ours
        and module not in loaded
        for module in [*sys.modules.values()]
    )


def import_file(path: Path, within: Path) -> ModuleType:
    """Return the module of a Python file; the same one until the file changes.

    A relative path starts from `within`, and the file must be in that folder. Raises ConfigError,
    with the line of the file where the import failed.
    """
    refuse_untrusted_code(str(path))
    file = file_inside(path, within)
    note_user_code()
    if not _is_for_grader():
        _of_agents.add(file)
    with _lock:
        key = (file, file.stat().st_mtime_ns)
        if key not in _loaded:
            _loaded[key] = _import(file, _unique_name(*key), shown=str(path))
        return _loaded[key]


def _unique_name(file: Path, mtime_ns: int) -> str:
    digest = hashlib.sha256(f"{file}\0{mtime_ns}".encode()).hexdigest()
    return f"_holodeck_file_{digest[:16]}"


def _import(file: Path, name: str, shown: str) -> ModuleType:
    loader = _loader(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader)
    if spec is None:
        raise ConfigError(shown, "is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with activity(f"loading {shown}"), _folder_first(file.parent):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line_in(file, error)
        raise ConfigError(
            f"{shown}:{line}" if line else shown,
            f"cannot be imported: {describe(error)}",
        ) from error
    return module


def _loader(name: str, file: str) -> SourceFileLoader:
    if not _is_for_grader():
        return SourceFileLoader(name, file)
    # Imported here because many runs have no graders.
    from holodeck.lib.user_code.asserts import AssertLoader  # noqa: PLC0415

    return AssertLoader(name, file)


def _line_in(file: Path, error: BaseException) -> int | None:
    """Return the line of the file that failed; None if it is unknown."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return lines[-1] if lines else None


class _FolderFinder:
    """Finds top-level modules in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, ModuleSpec] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in sys.stdlib_module_names:
            return None
        spec = PathFinder.find_spec(name, [str(self._folder)], target)
        if spec is not None:
            self._found[name] = spec
        return spec

    def specs(self) -> Collection[ModuleSpec]:
        """Return the specs of the modules that were found."""
        return self._found.values()

    def forget(self) -> None:
        """Remove the modules that were found from `sys.modules`."""
        for name, spec in self._found.items():
            if getattr(sys.modules.get(name), "__spec__", None) is spec:
                for loaded in [key for key in sys.modules if f"{key}.".startswith(f"{name}.")]:
                    del sys.modules[loaded]
        self._found.clear()


@contextmanager
def _folder_first(folder: Path) -> Iterator[None]:
    """Search the folder first within the block, and last afterwards."""
    for other, finder in _finders.items():
        if other != folder:
            finder.forget()
    importlib.invalidate_caches()
    own = _finders.setdefault(folder, _FolderFinder(folder))
    if own in sys.meta_path:
        sys.meta_path.remove(own)
    sys.meta_path.insert(0, own)
    try:
        yield
    finally:
        sys.meta_path.remove(own)
        sys.meta_path.append(own)
