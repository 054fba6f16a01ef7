"""An agent.yaml as a file of tests: each of its cases is one."""

import asyncio
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.errors import HoloDeckError
from holodeck.lib.conversation.setup import new_id
from holodeck.lib.conversation.types import ScenarioResult
from holodeck.lib.conversation.witnesses import tell
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.watching import watching
from holodeck.models.agent import Agent
from holodeck.models.test_result import Outcome, TestResult

ERRORS = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}


class CaseFailed(Exception):
    """A case did not pass; the message says why."""


class AgentFile(pytest.File):
    """An agent.yaml."""

    def collect(self) -> Iterator["AgentCase"]:
        try:
            agent = ConfigLoader().load_agent_yaml(str(self.path))
        except HoloDeckError as error:
            raise self.CollectError(f"{self.path.name}: {error}") from error
        if agent.execution is not None and agent.execution.has_budget:
            alone = "its budget is ignored, as each case is a run of its own in pytest"
            self.warn(pytest.PytestWarning(f"{self.path.name}: {alone}; use 'holodeck test'"))
        seen: Counter[str] = Counter()
        for index, case in enumerate(agent.test_cases or []):
            name = case.name or f"case {index + 1}"
            name = name if case.suite is None else f"{case.suite}: {name}"
            seen[name] += 1
            unique = name if seen[name] == 1 else f"{name} ({seen[name]})"
            yield AgentCase.from_parent(self, name=unique, agent=agent.keeping([index]))


class AgentCase(pytest.Item):
    """One test case."""

    def __init__(self, *, agent: Agent, **given: Any) -> None:
        super().__init__(**given)
        self._agent = agent
        self.add_marker("agent_test")

    def runtest(self) -> None:
        executor = TestExecutor(str(self.path), agent_config=self._agent)
        if self.config.getoption("holodeck_debug"):
            executor.on_conversation = watching(debug=True)
        report = asyncio.run(executor.execute_tests())
        [result] = report.results
        if result.skipped_by == "skip":
            pytest.skip(str(result.skip_reason))
        tell(self.name, _told(result))
        if not result.passed:
            raise CaseFailed("\n".join(result.reasons()))
        if result.outcome is Outcome.FLAKY:
            told = f"{self.name} is flaky: {result.reasons()[0]}"
            warnings.warn(pytest.PytestWarning(told), stacklevel=1)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *given: Any) -> Any:
        if isinstance(excinfo.value, CaseFailed | HoloDeckError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, *given)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def _told(result: TestResult) -> ScenarioResult:
    """The result as summaries of scenarios know it."""
    reasons = "\n".join(result.reasons())
    return ScenarioResult(
        success=result.passed,
        messages=[],
        reasoning=reasons,
        error=reasons if result.outcome in ERRORS else None,
        total_time=result.execution_time_ms / 1000,
        agent_time=(result.agent_time_ms or 0) / 1000,
        scenario_run_id=new_id("case"),
    )
