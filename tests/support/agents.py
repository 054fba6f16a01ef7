"""Agents with cases, and executors for them that call a scripted backend."""

from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig


def contains(text, **options):
    """A metric that looks for the text."""
    return {"metric": "contains", "value": text} | options


def an_agent(*cases, **fields):
    """An agent with these cases."""
    raw = {
        "name": "scripted",
        "model": {"provider": "openai", "name": "none"},
        "instructions": {"inline": "x"},
        "test_cases": list(cases),
    }
    return Agent.model_validate(raw | fields)


def executor_of(tmp_path, agent, backend, *, parallel=1, settings=None, on_event=None, **rest):
    """An executor that runs so many cases at once; `settings` are those of the run.

    It does without the static checks, which refuse some of what such tests are about.
    """
    limits = {"parallel_test_cases": parallel, "file_timeout": 120} | (settings or {})
    return TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=agent,
        resolved_execution_config=ExecutionConfig(**limits),
        backend=backend,
        options=RunOptions(is_checked=True, on_event=on_event),
        **rest,
    )
