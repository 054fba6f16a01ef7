"""The report of a recorded run: what the run itself reported, without running anything."""

from datetime import datetime

from holodeck import __version__
from holodeck.lib.records.run import Run
from holodeck.lib.test_runner.summary import summarize
from holodeck.models.record import CaseFinished, CaseSkipped
from holodeck.models.test_result import TestReport, TestResult


def report_of(run: Run) -> TestReport:
    """The report of the results that the record holds; of a killed run, those until then."""
    lines: dict[int, CaseFinished | CaseSkipped] = {**run.skipped, **run.finished}
    results = [lines[index].result for index in sorted(lines)]
    started, ended = run.started, run.ended
    return TestReport(
        agent_name=started.agent_name if started else "unknown",
        agent_config_path=started.agent_config_path if started else "unknown",
        results=results,
        summary=summarize(results, _wall_time_ms(run, results)),
        timestamp=ended.timestamp if ended else _latest(run, results),
        holodeck_version=started.versions.get("holodeck", "") if started else __version__,
        environment=ended.environment if ended else {},
        interrupted=ended is None or ended.interrupted,
        stopped=_stopped(run),
        stopped_by=run.ended.stopped_by if run.ended else None,
        planned_tests=run.planned,
        selection=started.selection if started else None,
    )


def _stopped(run: Run) -> str | None:
    """Why results are missing: as the run said, or because the record is damaged."""
    if run.ended is None:
        return None
    lost = run.ended.summary.total_tests - len(run.finished) - len(run.skipped)
    if lost > 0:
        return f"the record is damaged: {lost} of its results cannot be read"
    return run.ended.stopped


def _wall_time_ms(run: Run, results: list[TestResult]) -> int:
    if run.ended is not None:
        return run.ended.summary.wall_time_ms
    if run.started is None or not results:
        return 0
    took = datetime.fromisoformat(_latest(run, results)) - datetime.fromisoformat(
        run.started.started
    )
    return max(0, round(took.total_seconds() * 1000))


def _latest(run: Run, results: list[TestResult]) -> str:
    stamps = [result.timestamp for result in results]
    return max(stamps, default=run.started.started if run.started else "")
