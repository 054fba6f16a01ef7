"""How a test ended, in one word."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    AGENT_ERROR = "agent_error"
    """The agent could not be run, so nothing was decided."""
    METRIC_ERROR = "metric_error"
    """A metric, the judge or the simulated user broke, so nothing was decided."""
    UNCHECKED = "unchecked"
    """The agent answered, but the case has no check that could fail."""
    FLAKY = "flaky"
    """It passed in the end, but not every time it was run."""
    SKIPPED = "skipped"
    """It was not run, for a reason that is told."""

    @property
    def is_pass(self) -> bool:
        """Whether a test that ended so counts as passed."""
        return self in {Outcome.PASSED, Outcome.FLAKY}
