"""Imports Semantic Kernel without the parts that take most of its import time.

Its Handlebars support compiles a grammar on import, its contents import numpy for a type, and its
OpenAI connectors import audio, images and a WebRTC stack. holodeck uses none of these. Packages
become lazy, and stubs replace libraries while Semantic Kernel loads; code that uses the real ones
later loads them then.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from holodeck.lib.backends.semantic_kernel.lazy_packages import LazyPackages
from holodeck.lib.ui.activity import loading

_NAME = "Semantic Kernel"
OPENAI = "semantic_kernel.connectors.ai.open_ai"
LAZY = ("openai.types", "semantic_kernel.connectors.ai", "semantic_kernel.connectors.utils")


class PybarsError(Exception):
    """A template that does not compile; the error that Semantic Kernel catches."""


class Compiler:
    """Compiles Handlebars templates with the real library."""

    def compile(self, source: str) -> Any:
        """Return the template as a callable. Raises PybarsError."""
        import pybars

        try:
            return pybars.Compiler().compile(source)
        except pybars.PybarsError as error:
            raise PybarsError(str(error)) from error


class _ArrayType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        real = getattr(sys.modules.get("numpy"), "ndarray", cls)
        return real is not cls and isinstance(instance, real)


class Array(metaclass=_ArrayType):
    """The type of numpy's arrays, without numpy: nobody has an array before it is imported."""


def import_semantic_kernel() -> None:
    """Import Semantic Kernel, unless it is already imported."""
    if "semantic_kernel" in sys.modules:
        return
    stubs: dict[str, dict[str, Any]] = {
        "pybars": {"Compiler": Compiler, "PybarsError": PybarsError},
        "numpy": {"ndarray": Array},
    }
    _make_packages_lazy()
    with loading(_NAME, "semantic_kernel"), _collector_paused(), _stubs(stubs):
        import semantic_kernel  # noqa: F401


def import_openai_connectors() -> None:
    """Import what Semantic Kernel needs for OpenAI's chat models."""
    if OPENAI in sys.modules:
        return
    _make_packages_lazy()
    with loading(_NAME, OPENAI), _collector_paused():
        import_module(f"{OPENAI}.services.open_ai_chat_completion")


def _make_packages_lazy() -> None:
    if not any(isinstance(one, LazyPackages) for one in sys.meta_path):
        sys.meta_path.insert(0, LazyPackages(*LAZY))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause garbage collection: an import creates many objects and keeps them all, and examining
    them again and again takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _stubs(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Replace modules that are not imported by stubs with these attributes inside the block."""
    missing = [name for name in modules if name not in sys.modules]
    for name in missing:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(modules[name])
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
