"""Suites of scenarios in Python: `from holodeck.suite import Runner`."""

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
