"""Imports Semantic Kernel without the part of it that costs a quarter of its start.

Its Handlebars support compiles a grammar on import. Nothing here uses Handlebars, so a stand-in is
there while Semantic Kernel loads; it fetches the real library when somebody compiles a template.
"""

import sys
from types import ModuleType
from typing import Any

HANDLEBARS = "pybars"


class PybarsError(Exception):
    """A template that does not compile; what Semantic Kernel catches."""


class Compiler:
    """Compiles templates with the real library."""

    def compile(self, source: str) -> Any:
        """The template as a callable. Raises PybarsError."""
        import pybars

        try:
            return pybars.Compiler().compile(source)
        except pybars.PybarsError as error:
            raise PybarsError(str(error)) from error


def import_semantic_kernel() -> None:
    """Load Semantic Kernel; nothing to do if that, or Handlebars, has already happened."""
    if HANDLEBARS in sys.modules or "semantic_kernel" in sys.modules:
        return
    stand_in = ModuleType(HANDLEBARS)
    stand_in.__dict__.update(Compiler=Compiler, PybarsError=PybarsError)
    sys.modules[HANDLEBARS] = stand_in
    try:
        import semantic_kernel  # noqa: F401
    finally:
        del sys.modules[HANDLEBARS]
