"""holodeck: the test harness for AI agents. The public names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holodeck.config.loader import ConfigLoader
    from holodeck.errors import ConfigError, HoloDeckError, ValidationError
    from holodeck.lib.test_runner.executor import TestExecutor

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "holodeck.errors",
    "ConfigLoader": "holodeck.config.loader",
    "HoloDeckError": "holodeck.errors",
    "TestExecutor": "holodeck.lib.test_runner.executor",
    "ValidationError": "holodeck.errors",
}

__all__ = ["ConfigError", "ConfigLoader", "HoloDeckError", "TestExecutor", "ValidationError"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'holodeck' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
