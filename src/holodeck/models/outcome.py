"""How a test or a conversation ended, and what went wrong on the way."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from holodeck.models.base import Count, Model
from holodeck.models.on_demand import OnDemand
from holodeck.models.token_usage import TokenUsage


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


class Attempt(Model):
    """One try of an agent call that did not work, and what was done about it."""

    number: Count
    error: str
    retry_after_ms: int | None = None
    """How long was waited before the next try; None where none followed."""


class RaisedError(Model):
    """An exception of the user's code: an agent, a tool, a check or a step of a script."""

    error: str
    """Its type and message."""
    file: str
    """Relative to the working directory where it lies in there."""
    line: Count
    function: str
    code: str | None = None
    """The line of code; None where the source cannot be read."""
    traceback: list[str] = []
    """The frames of the user's code, the outermost first."""

    @property
    def place(self) -> str:
        """`agent.py:12: return prices[item]`."""
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.code}" if self.code else place


@dataclass(frozen=True)
class Reason:
    """Why a test did not pass, and what the user's code raised, if that is why."""

    text: str
    raised: RaisedError | None = None

    def __str__(self) -> str:
        """`KeyError: 'tea' (agent.py:12: return prices[item])`."""
        return self.text if self.raised is None else f"{self.text} ({self.raised.place})"

    def after(self, beginning: str) -> "Reason":
        """The same after words that say where."""
        return Reason(beginning + self.text, self.raised)


INTERRUPTED = "interrupted"
"""The code of a case that was cut off by Ctrl-C, say, while something was still computed."""


class CriterionRow(Model):
    """The judge's word on one criterion."""

    criterion: str
    status: Literal["passed", "failed", "inconclusive"]
    reasoning: str = ""
    required: bool = True
    """Whether the case fails where it did not pass."""
    is_checkpoint: bool = False
    """Whether it was decided in the middle of a script, and not about the whole."""

    @property
    def is_missed(self) -> bool:
        """Whether the case fails because of it."""
        return self.required and self.status != "passed"


class ConversationEnd(Model):
    """How a conversation ended that was played from a script, or with a simulated user."""

    code: str
    """Such as `judged`, `user_done`, `user_left`, `succeeded`, `check_failed`, `step_failed`,
    `max_turns`, `simulator_error`, `judge_error`."""
    reasoning: str | None = None
    """In words; of an error, what broke."""
    passed: bool | None = None
    """False where the ending itself fails the case; None where it decides nothing."""
    broke: bool = False
    """Whether it ended because something other than the agent broke, so nothing was decided."""
    raised: OnDemand[RaisedError] | None = None
    """Where a function of the script, or other code of the user's, raised what ended it."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the run was interrupted while the case was graded; it is run again then."""
        return self.code == INTERRUPTED


class ModelCost(Model):
    """What asking a model has cost."""

    model: str | None = None
    """The model; None where there were several, or none answered."""
    calls: Count = 0
    """Requests that were sent, whatever came of them."""
    failed: Count = 0
    """Those of the calls that were not answered."""
    tokens: TokenUsage = TokenUsage()
    kept: Count = 0
    """Answers that were kept from an earlier run and not asked for."""
