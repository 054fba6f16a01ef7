"""Imports Semantic Kernel without the parts that take half of its import time.

Its Handlebars support compiles a grammar on import, and its OpenAI connectors import a WebRTC
stack. holodeck uses neither. Stubs replace them while Semantic Kernel loads; code that uses the
real ones later loads them then.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from holodeck.lib.ui.activity import loading

_NAME = "Semantic Kernel"
OPENAI = "semantic_kernel.connectors.ai.open_ai"
REALTIME = {
    f"{OPENAI}.services._open_ai_realtime": ("ListenEvents", "SendEvents"),
    f"{OPENAI}.services.azure_realtime": ("AzureRealtimeWebRTC", "AzureRealtimeWebsocket"),
    f"{OPENAI}.services.open_ai_realtime": ("OpenAIRealtimeWebRTC", "OpenAIRealtimeWebsocket"),
}


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


def import_semantic_kernel() -> None:
    """Import Semantic Kernel, unless it or Handlebars is already imported."""
    if "pybars" in sys.modules or "semantic_kernel" in sys.modules:
        return
    stub = {"pybars": {"Compiler": Compiler, "PybarsError": PybarsError}}
    with loading(_NAME, "semantic_kernel"), _collector_paused(), _stubs(stub):
        import semantic_kernel  # noqa: F401


def import_openai_connectors() -> None:
    """Import Semantic Kernel's OpenAI connectors; their realtime classes load at first use."""
    if OPENAI in sys.modules:
        return
    stubs = {module: dict.fromkeys(names) for module, names in REALTIME.items()}
    with loading(_NAME, OPENAI), _collector_paused(), _stubs(stubs):
        package = import_module(OPENAI)
    homes = {name: module for module, names in REALTIME.items() for name in names}
    for name in homes:
        delattr(package, name)
    services = sys.modules[f"{OPENAI}.services"]
    for module in REALTIME:
        services.__dict__.pop(module.rpartition(".")[2], None)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {OPENAI!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    package.__getattr__ = load  # type: ignore[method-assign]


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
    """Replace the modules by stubs with these attributes inside the block."""
    for name, attributes in modules.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(attributes)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
