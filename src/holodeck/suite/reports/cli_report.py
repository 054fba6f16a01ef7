"""The result of a suite on the terminal."""

from typing import Any

from holodeck.lib.support.text import inert, one_line
from holodeck.lib.ui.live import echo
from holodeck.suite.results import RunResult

_MAX_TEXT = 300
_TITLES = ("Scenario", "Status", "Score", "Duration", "Details")


class CLIReporter:
    """Prints the result as a table of scenarios and a line with the summary.

    Args:
        console: A console of rich, or another object with `print`; stdout by default.
    """

    def __init__(self, console: Any = None) -> None:
        self.console = console

    def report(self, result: RunResult) -> None:
        """Print the result; no text of agents and scorers is read as markup."""
        rows = [_TITLES]
        rows += [
            (
                one_line(scenario_result.scenario.name, _MAX_TEXT),
                scenario_result.status,
                f"{scenario_result.mean_score or 0:.2f}",
                f"{scenario_result.duration_ms:.0f} ms",
                one_line("; ".join(scenario_result.explanations), _MAX_TEXT),
            )
            for scenario_result in result.scenario_results
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"Suite: {result.suite_name}", f"Run:   {result.run_id}"]
        lines += [f"Time:  {result.timestamp.isoformat()}", ""]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if result.not_reached:
            lines.append(f"fail_fast left out: {', '.join(result.not_reached)}")
        score = f"score {result.aggregate_score:.2f}"
        lines.append(f"{result.pass_rate:.0%} passed | {score} | {result.total_duration_ms:.0f} ms")
        for line in lines:
            if self.console is None:
                echo(line)
            else:  # a line that is broken could begin a command to a CI service
                self.console.print(inert(line), markup=False, highlight=False, soft_wrap=True)
