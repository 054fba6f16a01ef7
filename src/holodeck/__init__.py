"""holodeck: the test harness for AI agents.

    import holodeck

    report = holodeck.run("agent.yaml")
    assert report.passed

`run()` and `arun()` run test cases, `load_agent()` reads an agent.yaml. Every public name loads on
first use.
"""

from holodeck.models import RENDERERS

TYPE_CHECKING = False  # `typing` would be imported before the program can catch Ctrl-C
if TYPE_CHECKING:
    from holodeck.api import arun, compare_agents, load_agent, run, scripted_model, stub
    from holodeck.config.loader import ConfigLoader
    from holodeck.errors import (
        BackendError,
        BackendInitError,
        BackendSessionError,
        BackendTimeoutError,
        ConfigError,
        EvaluationError,
        ExecutionError,
        HoloDeckError,
        MissingExtra,
        NothingSelected,
        ValidationError,
    )
    from holodeck.lib.support.stubs import stubbed
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.models.agent import Agent
    from holodeck.models.records.comparison import ComparisonReport
    from holodeck.models.results.outcome import Outcome
    from holodeck.models.test_case import TestCase
    from holodeck.models.test_result import MetricResult, TestReport, TestResult

__version__ = "0.2.0"

__all__ = [
    "Agent",
    "BackendError",
    "BackendInitError",
    "BackendSessionError",
    "BackendTimeoutError",
    "ComparisonReport",
    "ConfigError",
    "ConfigLoader",
    "EvaluationError",
    "ExecutionError",
    "HoloDeckError",
    "MetricResult",
    "MissingExtra",
    "NothingSelected",
    "Outcome",
    "TestCase",
    "TestExecutor",
    "TestReport",
    "TestResult",
    "ValidationError",
    "arun",
    "compare_agents",
    "load_agent",
    "run",
    "scripted_model",
    "stub",
    "stubbed",
]

_MODULES = {
    "Agent": "holodeck.models.agent",
    "ComparisonReport": "holodeck.models.records.comparison",
    "ConfigLoader": "holodeck.config.loader",
    "MetricResult": "holodeck.models.test_result",
    "Outcome": "holodeck.models.results.outcome",
    "TestCase": "holodeck.models.test_case",
    "TestExecutor": "holodeck.lib.test_runner.executor",
    "TestReport": "holodeck.models.test_result",
    "TestResult": "holodeck.models.test_result",
    "arun": "holodeck.api",
    "compare_agents": "holodeck.api",
    "load_agent": "holodeck.api",
    "run": "holodeck.api",
    "scripted_model": "holodeck.api",
    "stub": "holodeck.api",
    "stubbed": "holodeck.lib.support.stubs",
}
"""Name → module, for the names that are not in `holodeck.errors`."""
RENDERERS |= {
    "markdown": "holodeck.lib.reports.markdown_report:generate_markdown_report",
    "json": "holodeck.lib.reports.formats:generate_json_report",
    "notebook": "holodeck.lib.reports.tables:render_notebook_table",
    "cases": "holodeck.lib.reports.tables:cases_dataframe",
    "metrics": "holodeck.lib.reports.tables:metrics_dataframe",
    "comparison markdown": "holodeck.lib.reports.against:render_markdown",
    "comparison json": "holodeck.lib.reports.formats:generate_json_report",
    "comparison html": "holodeck.lib.reports.html:generate_html_comparison",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'holodeck' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(_MODULES.get(name, "holodeck.errors")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *globals()])
