"""The reports of several agents that one `holodeck test` runs, written as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holodeck import __version__
from holodeck.cli.context import CliContext
from holodeck.cli.options import ReportTarget, write_reports
from holodeck.cli.selection import apply_selection
from holodeck.errors import ReportError

if TYPE_CHECKING:
    from holodeck.cli.run_agents import LoadedAgent
    from holodeck.models.config import ReportDetail
    from holodeck.models.test_result import TestReport


@dataclass
class AgentReports:
    """One report for each agent, also for those that were not run."""

    context: CliContext
    found: "dict[str, TestReport]" = field(default_factory=dict)
    """Title of the agent → its report, without secrets."""

    def add_unselected(self, one: "LoadedAgent") -> None:
        """Add an agent of which no case is selected."""
        from holodeck.lib.records.recorder import origin_of

        request = replace(one.request, allow_empty=True)
        _, selection = apply_selection(one.agent, request, one.target.path, self.context)
        origin = origin_of(one.agent)
        self._add_empty(one, {"selection": selection, "planned_tests": 0, "origin": origin})

    def add_failed(self, one: "LoadedAgent", reason: str, exit_code: int | None = None) -> None:
        """Add an agent without results, unless it has a report from before it failed."""
        from holodeck.models.results.origin import RunOrigin

        if one.target.title not in self.found:
            origin = RunOrigin(exit_code=exit_code)
            self._add_empty(one, {"stopped": self.context.clean(reason), "origin": origin})

    def _add_empty(self, one: "LoadedAgent", fields: Mapping[str, Any]) -> None:
        from holodeck.lib.reports.summary import summarize
        from holodeck.models.test_result import TestReport

        self.found[one.target.title] = TestReport(
            agent_name=one.agent.name,
            agent_config_path=one.target.path,
            results=[],
            summary=summarize([], 0),
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            holodeck_version=__version__,
            **fields,
        )

    def write(self, targets: Sequence[ReportTarget], detail: "ReportDetail | None") -> None:
        """Write the reports as one. Raises ReportError."""
        from holodeck.lib.reports.merge import NamedReport, merge_reports

        merged = merge_reports([NamedReport(*one) for one in self.found.items()])
        shown = self.context.redactor.redact_report(merged)
        failures = write_reports(shown, targets, self.context, detail)
        if failures:
            raise ReportError("\n".join(failures))
