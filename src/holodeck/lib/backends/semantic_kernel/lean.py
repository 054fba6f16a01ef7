"""Imports Semantic Kernel without the parts of it that cost half of its start.

Its Handlebars support compiles a grammar on import, and its OpenAI connectors bring a WebRTC stack.
Nothing here uses either. Stand-ins are there while Semantic Kernel loads; whoever wants the real
things afterwards gets them, at their price.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

OPENAI = "semantic_kernel.connectors.ai.open_ai"
REALTIME = {
    f"{OPENAI}.services._open_ai_realtime": ("ListenEvents", "SendEvents"),
    f"{OPENAI}.services.azure_realtime": ("AzureRealtimeWebRTC", "AzureRealtimeWebsocket"),
    f"{OPENAI}.services.open_ai_realtime": ("OpenAIRealtimeWebRTC", "OpenAIRealtimeWebsocket"),
}


class PybarsError(Exception):
    """A template that does not compile; what Semantic Kernel catches."""


class Compiler:
    """Compiles Handlebars templates with the real library."""

    def compile(self, source: str) -> Any:
        """The template as a callable. Raises PybarsError."""
        import pybars

        try:
            return pybars.Compiler().compile(source)
        except pybars.PybarsError as error:
            raise PybarsError(str(error)) from error


def import_semantic_kernel() -> None:
    """Load Semantic Kernel itself; nothing to do if it, or Handlebars, is loaded already."""
    if "pybars" in sys.modules or "semantic_kernel" in sys.modules:
        return
    stand_in = {"pybars": {"Compiler": Compiler, "PybarsError": PybarsError}}
    with _collector_paused(), _standing_in(stand_in):
        import semantic_kernel  # noqa: F401


def import_openai_connectors() -> None:
    """Load Semantic Kernel's OpenAI connectors; their realtime classes load when first used."""
    if OPENAI in sys.modules:
        return
    stand_ins = {module: dict.fromkeys(names) for module, names in REALTIME.items()}
    with _collector_paused(), _standing_in(stand_ins):
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
    """Collect no garbage meanwhile: an import makes many objects, keeps them all, and the collector
    would look at them again and again, for a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _standing_in(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Let imports of these modules find these attributes, for as long as the block lasts."""
    for name, attributes in modules.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(attributes)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
