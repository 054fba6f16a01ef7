"""Registries: names whose values are imported on first use, or `module:attribute`."""

import importlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holodeck.errors import ConfigError
from holodeck.lib.processes.process_exit import note_user_code
from holodeck.lib.support.safe_paths import is_file
from holodeck.lib.support.text import describe, did_you_mean, instance_of, shorten_list
from holodeck.lib.support.trust import refuse_untrusted_code, require_nameable, require_own
from holodeck.lib.user_code.code_root import (
    CodeFolders,
    folders_of,
    import_file,
    import_installed,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

_DEFINITIONS = (type, types.FunctionType)
_MAX_NAMES = 10


class Registry(Generic[T]):
    """Maps names to "module:attribute", imported on first use.

    `kind` names one entry ("metric"). Installed packages add entries through the entry point group
    `holodeck.<kind>`; names of the table take precedence.
    """

    def __init__(self, kind: str, table: Mapping[str, str]) -> None:
        self.kind = kind
        self._table = dict(table)

    def names(self) -> tuple[str, ...]:
        """Return the names of the table, in its order."""
        return tuple(self._table)

    def load(self, name: str, *, location: str = "", base_dir: CodeFolders | None = None) -> T:
        """Return the value of a name of the table, an entry point, or `module:attribute`.

        Errors begin with `location`, by default the kind. A module file in `base_dir` takes
        precedence over an installed module. Raises ConfigError.
        """
        location = location or self.kind
        target = self._table.get(name)
        if target is not None:
            return cast(T, _attribute_of_ours(target))
        if ":" in name:
            return cast(T, load_attribute(name, base_dir, location=location))
        return cast(T, _from_entry_point(self._entry_point(name, location), location))

    def require(self, name: str, *, location: str = "") -> None:
        """Raise ConfigError if no entry has this name; nothing is imported."""
        if name not in self._table:
            self._entry_point(name, location or self.kind)

    def _entry_point(self, name: str, location: str) -> "EntryPoint":
        """Return the entry of an installed package. Raises ConfigError without one."""
        # Imported here because names outside the table are rare.
        from importlib.metadata import entry_points  # noqa: PLC0415

        for entry in entry_points(group=f"holodeck.{self.kind}", name=name):
            return entry
        raise ConfigError(location, unknown_name(self.kind, name, self._table))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return an error message for a name that is not in the table."""
    known = sorted(known)
    hint = did_you_mean(name, known, ";")
    return f"unknown {kind} {name!r}{hint} known: {', '.join(known)}, or 'module:attribute'"


def load_callable(
    target: str, base_dir: CodeFolders | None = None, *, location: str = "callable"
) -> Callable[..., Any]:
    """Return the callable that `module:attribute` names. Raises ConfigError."""
    value = load_attribute(target, base_dir, location=location)
    if not callable(value):
        raise ConfigError(location, f"{target!r} is {instance_of(value)} and cannot be called")
    return cast(Callable[..., Any], value)


def load_attribute(
    target: str, base_dir: CodeFolders | None = None, *, location: str = "import"
) -> Any:
    """Return the object that `module:attribute` names.

    `a.b:c` is a/b.py or a/b/__init__.py in `base_dir`, else an installed module or one of the
    project around it. Files of the same name in two agents' folders are two modules. Raises
    ConfigError.
    """
    module_name, _, attribute = target.partition(":")
    if not _is_dotted(module_name) or not _is_dotted(attribute):
        raise ConfigError(
            location,
            f"{target!r} is not 'module:attribute', such as 'graders:check' for graders.py",
        )
    module = load_module(module_name, base_dir, location=location)
    return _walk(module, attribute, target, location)


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


@cache
def _attribute_of_ours(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module_name), attribute)


def _from_entry_point(entry: "EntryPoint", location: str) -> Any:
    note_user_code()
    with _import_errors(f"entry point {entry.value!r}", location):
        return entry.load()


def load_module(
    module_name: str, base_dir: CodeFolders | None, *, location: str
) -> types.ModuleType:
    """Return the module, that of a file in `base_dir` first. Raises ConfigError."""
    refuse_untrusted_code(location)
    note_user_code()
    folders = () if base_dir is None else folders_of(base_dir)
    place = module_place(module_name, folders)
    if place is None:
        require_nameable(module_name, next(iter(folders), None), location)
    with _import_errors(f"module {module_name!r}", location, looked_in=folders):
        if place is None:
            return import_installed(module_name, folders)
        folder, file = place
        return import_file(file, tuple(dict.fromkeys([folder, *folders])))


def module_file(target: str, base_dir: CodeFolders) -> Path | None:
    """Return the file of the module of `module:attribute`; None if it is not in `base_dir`."""
    place = module_place(target.partition(":")[0], base_dir)
    return None if place is None else place[0].joinpath(place[1]).resolve()


def module_place(module_name: str, base_dir: CodeFolders) -> tuple[Path, Path] | None:
    """Return the first folder that has a module, and its file relative to that; None without."""
    stem = Path(*module_name.split("."))
    candidates = (stem.with_name(f"{stem.name}.py"), stem / "__init__.py")
    places = ((folder, file) for folder in folders_of(base_dir) for file in candidates)
    return next((place for place in places if is_file(place[0] / place[1])), None)


@contextmanager
def _import_errors(what: str, location: str, looked_in: Iterable[Path] = ()) -> Iterator[None]:
    """Turn every exception of importing a user's module into a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(location, str(error)) from error
    except (Exception, SystemExit) as error:
        folders = " and ".join(map(str, looked_in))
        beside = f" (looked in {folders} first)" if folders else ""
        reason = f"{what} cannot be imported: {describe(error)}{beside}"
        raise ConfigError(location, reason) from error


def _walk(module: types.ModuleType, attribute: str, target: str, location: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(part, dir(value), _listed_names(value))
            raise ConfigError(location, f"{target!r}: there is no {part!r} in it{hint}")
        value = getattr(value, part)
        require_own(value, location)
    return value


def _listed_names(value: Any) -> str:
    """Return `; it has …` with the public names that a module defines; nothing for other values."""
    if not isinstance(value, types.ModuleType):
        return ""
    names = [
        name
        for name, content in vars(value).items()
        if not name.startswith("_")
        and not isinstance(content, types.ModuleType)
        and (not isinstance(content, _DEFINITIONS) or content.__module__ == value.__name__)
    ]
    return f"; it has {shorten_list(names, _MAX_NAMES)}" if names else ""
