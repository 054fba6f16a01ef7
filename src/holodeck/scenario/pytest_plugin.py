"""The reporter that the fixture `scenario_reporter` gives, and the options of Scenario's plugin.

holodeck's own plugin is always loaded. `-p holodeck.scenario.pytest_plugin` adds `--headless` and
`--scenario-debug` to it.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from holodeck.lib.ui.live import echo


@dataclass(frozen=True)
class ReportedScenario:
    """A scenario that has run."""

    name: str


class ScenarioReporter:
    """The results of all scenarios of a pytest session in this process."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        """Each with its `scenario` and `result`."""

    def add_result(self, scenario: Any, result: Any) -> None:
        """Add a result; `scenario` is an object with a name."""
        self.results.append({"scenario": scenario, "result": result})

    def get_summary(self) -> dict[str, float]:
        """Return `total`, `passed`, `failed` and `success_rate`, which is a percentage."""
        total = len(self.results)
        passed = sum(bool(result["result"].success) for result in self.results)
        rate = round(100 * passed / total, 2) if total else 0
        return {
            "total": total,
            "passed": passed,
            "failed": total - passed,
            "success_rate": rate,
        }

    def print_report(self) -> None:
        """Print the summary, and a line and the reasoning of each scenario."""
        if not self.results:
            return
        summary = self.get_summary()
        counts = f"{summary['passed']} passed, {summary['failed']} failed"
        rate = f"success rate {summary['success_rate']:g} %"
        lines = [f"{summary['total']} scenarios: {counts}; {rate}"]
        for number, row in enumerate(self.results, 1):
            result = row["result"]
            status = "PASSED" if result.success else "FAILED"
            passed, failed = len(result.passed_criteria), len(result.failed_criteria)
            criteria = f", criteria {passed}/{passed + failed}" if passed + failed else ""
            lines.append(f"{number}. {row['scenario'].name}: {status}{criteria}")
            lines += [f"   {line}" for line in (result.reasoning or "").splitlines()]
        echo("\n".join(lines))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holodeck")
    group.addoption(
        "--headless", action="store_true", help="has no effect: holodeck opens no browser"
    )
    group.addoption(
        "--scenario-debug",
        action="store_true",
        dest="holodeck_debug",
        help="the same as --holodeck-debug",
    )
