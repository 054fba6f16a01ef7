"""`holodeck test --baseline`: which failures are regressions, and do they fail again?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from holodeck.cli.context import CliContext
from holodeck.cli.test_run import open_display, run_displayed
from holodeck.errors import ExitCode

if TYPE_CHECKING:
    from holodeck.lib.test_runner.gate import Decision, Suspect
    from holodeck.lib.test_runner.run_comparison import ComparedRun
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.test_result import TestReport, TestResult


@dataclass(frozen=True)
class GateOptions:
    """What the command line says about a baseline."""

    baseline: str
    """As `holodeck compare` names a run."""
    confirm: int
    """How often a suspect runs again."""
    decides: bool
    """Whether regressions, and not failures, decide the exit code."""


@dataclass(frozen=True)
class RegressionGate:
    """The gate of one run."""

    base: "ComparedRun"
    options: GateOptions
    path: str
    """Of the agent.yaml."""
    agent: "Agent"
    """With the cases that were run."""
    settings: "ExecutionConfig"
    context: CliContext

    def judge(self, report: "TestReport") -> "tuple[list[str], bool]":
        """Return what to print, and whether there are no regressions; reruns the suspects.

        A run that is not whole has no regressions to speak of: its exit code says why.
        """
        from holodeck.lib.test_runner.gate import describe_gate, suspects_of

        if report.interrupted or report.stopped is not None:
            return [f"Not compared with {self.base.source}, because not all cases ran"], False
        suspects = suspects_of(self.base, report)
        decisions = self._confirm(suspects)
        lines = list(describe_gate(self.base, report, decisions))
        return lines, all(one.state == "flaky" for one in decisions)

    def exit_code(self, code: ExitCode, report: "TestReport", *, is_clear: bool) -> ExitCode:
        """Return the exit code of the run: without regressions, failures alone do not count."""
        from holodeck.models.outcome import Outcome

        is_unchecked = any(one.outcome is Outcome.UNCHECKED for one in report.results)
        if code is not ExitCode.TEST_FAILED or not self.options.decides or is_unchecked:
            return code
        return ExitCode.PASSED if is_clear else code

    def _confirm(self, suspects: "Sequence[Suspect]") -> "list[Decision]":
        """Run the suspects again, all of them together, and decide about each."""
        from holodeck.lib.test_runner.gate import decide
        from holodeck.lib.text import plural

        runs: list[list[TestResult]] = [[] for _ in suspects]
        times = self.options.confirm if suspects else 0
        for number in range(1, times + 1):
            cases = plural(len(suspects), "case")
            click.echo(f"Confirming {cases}: run {number} of {times}", err=True)
            report = self._run_again([one.index for one in suspects])
            for at, result in enumerate(report.results):
                runs[at].append(result)
            if report.interrupted or report.stopped is not None:
                break
        return [decide(one, found) for one, found in zip(suspects, runs, strict=True)]

    def _run_again(self, indexes: "Sequence[int]") -> "TestReport":
        from holodeck.lib.test_runner.executor import TestExecutor
        from holodeck.lib.test_runner.progress import ProgressIndicator

        agent = self.agent.with_cases(indexes)
        executor = TestExecutor(
            self.path, agent_config=agent, resolved_execution_config=self.settings
        )
        executor.is_checked = True
        progress = ProgressIndicator(len(indexes), quiet=True)
        with open_display(agent, self.context, progress, enabled=False) as live:
            report, _ = run_displayed(executor, live, progress, self.context)
        return report
