"""Results and reports made by hand, with every field that a test does not care about filled in."""

from holodeck.lib.reports.summary import summarize
from holodeck.models.test_result import Outcome, TestReport, TestResult

SKIPPED = {"skipped_by": "skip", "skip_reason": "not today"}


def a_result(outcome=Outcome.PASSED, **fields):
    basis = {
        "test_name": "greets",
        "test_input": "hi",
        "agent_response": "hello",
        "passed": outcome.is_pass,
        "outcome": outcome,
        "execution_time_ms": 1234,
        "timestamp": "2026-01-01T00:00:00Z",
        **(SKIPPED if outcome is Outcome.SKIPPED else {}),
    }
    return TestResult(**{**basis, **fields})


def a_report(*results, **fields):
    basis = {
        "agent_name": "helper",
        "agent_config_path": "agent.yaml",
        "results": list(results),
        "summary": summarize(results, wall_time_ms=1),
        "timestamp": "2026-01-01T00:00:00Z",
        "holodeck_version": "1.2.3",
    }
    return TestReport(**{**basis, **fields})
