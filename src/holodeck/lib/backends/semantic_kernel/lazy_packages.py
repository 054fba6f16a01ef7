"""Packages that only name what their modules define, without importing all of these modules.

`import openai.types` imports 500 modules, of which a chat completion needs about twenty. Such a
package has nothing in its `__init__.py` but imports from its own modules; it becomes a module that
imports what a name needs when somebody asks for the name (PEP 562). Whatever is asked for is the
object that the library defines.
"""

import ast
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from types import ModuleType
from typing import Any

Names = Mapping[str, tuple[str, str]]
"""Name in the package → the module that defines it, and its name there."""


class LazyPackages(MetaPathFinder):
    """Finds the packages below some prefixes, and makes those lazy that only name other things.

    Args:
        prefixes: Names of packages; the packages in them are lazy, too.
    """

    def __init__(self, *prefixes: str) -> None:
        self._prefixes = prefixes
        self._dotted = tuple(f"{one}." for one in prefixes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package that can be lazy; None for everything else."""
        if fullname not in self._prefixes and not fullname.startswith(self._dotted):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.submodule_search_locations is None or spec.loader is None:
            return None
        source: str | None = getattr(spec.loader, "get_source", lambda _: None)(fullname)
        found = None if source is None else _names_in(source, fullname)
        if not found:
            return None
        spec.loader = _LazyLoader(spec.loader, found)
        return spec


class _LazyLoader(Loader):
    """Gives a package the names in it instead of executing its `__init__.py`."""

    def __init__(self, loader: Loader, names: Names) -> None:
        self._loader = loader
        self._names = names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        names, package = self._names, module.__name__

        def load(name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            home, original = names[name]
            found = getattr(import_module(home), original)
            module.__dict__[name] = found
            return found

        module.__dict__.update(
            __getattr__=load,
            __dir__=lambda: sorted({*module.__dict__, *names}),
            __all__=[name for name in names if not name.startswith("_")],
        )

    def __getattr__(self, name: str) -> Any:  # what else a loader has, such as `get_source`
        return getattr(self._loader, name)


def _names_in(source: str, package: str) -> Names | None:
    """Return the names that a package imports from its modules; None if it does anything else."""
    names: dict[str, tuple[str, str]] = {}
    modules = set[str]()
    for statement in ast.parse(source).body:
        match statement:
            case ast.ImportFrom(module="__future__"):
                pass
            case ast.ImportFrom(module=str(module), level=level):
                home = resolve_name("." * level + module, package)
                if not home.startswith(f"{package}."):
                    return None
                names |= {one.asname or one.name: (home, one.name) for one in statement.names}
                modules.add(home.removeprefix(f"{package}.").partition(".")[0])
            case ast.Assign(targets=[ast.Name("__all__")], value=ast.List()):
                pass
            case ast.Expr(ast.Constant(str())):
                pass
            case _:
                return None
    # importing a module sets an attribute of its name, which must not be that of something else
    is_clear = names.keys().isdisjoint({"*", *modules})
    return names if is_clear else None
