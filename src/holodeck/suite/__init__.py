"""Suites of scenarios in Python: `from holodeck.suite import Runner`. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holodeck import __version__
    from holodeck.suite.adapters import AgentAdapter
    from holodeck.suite.loader import load_scenarios, load_scenarios_from_dir
    from holodeck.suite.results import (
        AgentResult,
        RunResult,
        ScenarioRunResult,
        ScoreResult,
        TokenUsage,
        ToolCall,
    )
    from holodeck.suite.runner import Runner
    from holodeck.suite.scenario import Scenario, Suite, SuiteConfig
    from holodeck.suite.scorers import Scorer, get_scorer, list_scorers, register_scorer

_NAMES = {
    "adapters": ["AgentAdapter"],
    "reports": [],
    "loader": ["load_scenarios", "load_scenarios_from_dir"],
    "results": [
        "AgentResult",
        "RunResult",
        "ScenarioRunResult",
        "ScoreResult",
        "TokenUsage",
        "ToolCall",
    ],
    "runner": ["Runner"],
    "scenario": ["Scenario", "Suite", "SuiteConfig"],
    "scorers": ["Scorer", "get_scorer", "list_scorers", "register_scorer"],
}
"""Module → its public names."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AgentAdapter",
    "AgentResult",
    "RunResult",
    "Runner",
    "Scenario",
    "ScenarioRunResult",
    "ScoreResult",
    "Scorer",
    "Suite",
    "SuiteConfig",
    "TokenUsage",
    "ToolCall",
    "__version__",
    "get_scorer",
    "list_scorers",
    "load_scenarios",
    "load_scenarios_from_dir",
    "register_scorer",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("holodeck").__version__
    if name in _NAMES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
