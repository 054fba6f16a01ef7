"""The result of a suite on the terminal."""

from functools import partial
from typing import TYPE_CHECKING

from holodeck.lib.support.text import inert
from holodeck.suite.results import RunResult

if TYPE_CHECKING:
    from rich.console import Console

_COLORS = {"PASS": "green", "FAIL": "red", "ERROR": "red"}
_GOOD, _FAIR = 0.8, 0.5
"""The pass rates from which the summary is green, or yellow."""


class CLIReporter:
    """Prints the result as a table of scenarios and a line with the summary.

    Args:
        console: A console of rich; stdout by default.
    """

    def __init__(self, console: "Console | None" = None) -> None:
        # Imported here because only this reporter needs rich.
        from rich.console import Console

        self.console = console or Console()

    def report(self, result: RunResult) -> None:
        """Print the result; no text of agents and scorers is read as markup."""
        from rich.table import Table
        from rich.text import Text

        def text(content: str, style: str = "") -> Text:
            return Text(inert(content), style=style)

        # A line that is broken could begin a command to a CI service.
        show = partial(self.console.print, soft_wrap=True)

        show(text(f"\nSuite: {result.suite_name}", "bold"))
        show(text(f"Run:   {result.run_id}\nTime:  {result.timestamp.isoformat()}\n"))
        table = Table()
        table.add_column("Scenario", style="bold")
        table.add_column("Status")
        table.add_column("Score", justify="right")
        table.add_column("Duration", justify="right")
        table.add_column("Details")
        for scenario_result in result.scenario_results:
            table.add_row(
                text(scenario_result.scenario.name),
                text(scenario_result.status, _COLORS[scenario_result.status]),
                f"{scenario_result.mean_score or 0:.2f}",
                f"{scenario_result.duration_ms:.0f} ms",
                text("; ".join(scenario_result.explanations)),
            )
        self.console.print(table)
        if result.not_reached:
            show(text(f"fail_fast left out: {', '.join(result.not_reached)}", "yellow"))
        rate = result.pass_rate
        color = "green" if rate >= _GOOD else "yellow" if rate >= _FAIR else "red"
        show(
            text(f"{rate:.0%} passed", color),
            text(f"| score {result.aggregate_score:.2f} | {result.total_duration_ms:.0f} ms"),
        )
