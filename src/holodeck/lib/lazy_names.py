"""Names of a module that are imported from others on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module that has names from others, given as name → module."""

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load
