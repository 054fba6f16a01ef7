"""How a test or a conversation ended, what went wrong on the way, and what models were asked."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from holodeck.models.base import Count, Model
from holodeck.models.metrics.judge_trust import JudgeTrust, Limits
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
    """The agent answered, but the case has no check that could fail, or it has a `todo`."""
    FLAKY = "flaky"
    """It passed in the end, but not every time it ran."""
    SKIPPED = "skipped"
    """It was not run, for a stated reason."""

    @property
    def is_pass(self) -> bool:
        """Whether a test with this outcome counts as passed."""
        return self in {Outcome.PASSED, Outcome.FLAKY}


StopKind = Literal["fail_fast", "run_timeout", "refused", "budget"]
"""What stopped a run before every case had run."""
DECIDED = frozenset({Outcome.PASSED, Outcome.FLAKY, Outcome.FAILED})
"""The outcomes that are a verdict about the agent."""


def combine_outcomes(outcomes: Collection[Outcome]) -> Outcome:
    """Return the outcome of a whole from those of its parts: the worst one.

    A failed check decides, whatever another check could not decide.
    """
    order = (Outcome.FAILED, Outcome.METRIC_ERROR, Outcome.PASSED)
    return next((outcome for outcome in order if outcome in outcomes), Outcome.UNCHECKED)


class RecordingUse(Model):
    """What of a run of a case was replayed, and what was recorded."""

    replayed: Count = 0
    """Requests and tool calls that were answered from the recording."""
    live: Count = 0
    """Those that took place, and were recorded."""
    unused: Count = 0
    """Entries of the recording that nothing asked for."""
    recorded: str | None = None
    """The day of the recording, as `2026-11-27`; None if it is not known, or all was live."""
    model: str | None = None
    """The agent's model when it was recorded; None if it has none in its configuration."""


class Attempt(Model):
    """A failed attempt of a request, and the wait before the next one."""

    number: Count
    error: str
    retry_after_ms: int | None = None
    """The delay before the next attempt; None if none followed."""


class RaisedError(Model):
    """An exception of the user's code, such as an agent, a tool or a step of a script."""

    error: str
    """The type and message."""
    file: str
    """Relative to the working directory if it is inside."""
    line: Count
    function: str
    code: str | None = None
    """The line of code; None if the source cannot be read."""
    traceback: list[str] = []
    """The frames of the user's code, the outermost first."""
    excerpt: list[str] = []
    """The line of code and those around it, with their numbers and a `>` before the line; empty if
    the source cannot be read."""

    @property
    def details(self) -> list[str]:
        """The frames, the excerpt and the error, as the lines of a text."""
        return [*self.traceback, *self.excerpt, self.error]

    @property
    def location(self) -> str:
        """`agent.py:12: return prices[item]`."""
        location = f"{self.file}:{self.line}"
        return f"{location}: {self.code}" if self.code else location


@dataclass(frozen=True)
class Reason:
    """Why a test did not pass, and the exception of the user's code if that is why."""

    text: str
    raised: RaisedError | None = None
    check: str | None = None
    """What did not pass: a metric, `expected_tools`, `trace`, `criteria` or `todo`; None for other
    errors."""
    expected: str | None = None
    """The ground truth of the turn that failed; of the case if it is about all of it."""
    response: str | None = None
    """The agent's response in that turn; the last one if it is about the whole case."""

    def __str__(self) -> str:
        """`KeyError: 'tea' (agent.py:12: return prices[item])`."""
        return self.text if self.raised is None else f"{self.text} ({self.raised.location})"

    def with_prefix(self, prefix: str) -> "Reason":
        """Return the reason with a prefix, such as the number of a turn."""
        return replace(self, text=prefix + self.text)

    def beside(self, expected: str | None, response: str | None) -> "Reason":
        """Return the reason with what was expected and what the agent answered."""
        return replace(self, expected=expected, response=response)


INTERRUPTED = "interrupted"
"""The code of a case that was cancelled while it was graded, such as by Ctrl-C."""


class Vote(Model):
    """One answer of a judge to one question of a metric."""

    question: str
    answer: str
    """The answer, or the likeliest one if the judge gives probabilities."""
    score: float
    reason: str | None = None
    """None if the judge gave none."""


class CriterionRow(Model):
    """The judge's verdict on one criterion."""

    criterion: str
    status: Literal["passed", "failed", "inconclusive"]
    reasoning: str = ""
    required: bool = True
    """Whether the case fails if the criterion did not pass."""
    is_checkpoint: bool = False
    """Whether it was judged during a script, not on the whole conversation."""
    judge_trust: JudgeTrust | None = None
    """Whether labels have shown that the judge may decide; None with `judge_trust: off`."""
    judge_limits: Limits | None = None
    """What the judge had to reach in its check; None without a check that is up to date."""

    @property
    def is_missed(self) -> bool:
        """Whether it fails the case."""
        return self.required and self.status != "passed"


class ConversationEnd(Model):
    """How a conversation from a script or with a simulated user ended."""

    code: str
    """Such as `judged`, `user_done`, `user_left`, `succeeded`, `check_failed`, `step_failed`,
    `max_turns`, `simulator_error`, `judge_error`."""
    reasoning: str | None = None
    """Why it ended; for an error, its message."""
    passed: bool | None = None
    """Whether the ending passes or fails the case; None if it decides nothing."""
    broke: bool = False
    """Whether something other than the agent broke, so nothing was decided."""
    raised: RaisedError | None = None
    """Where the user's code raised what ended it."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the run was interrupted during grading; resuming runs the case again."""
        return self.code == INTERRUPTED


class ModelCost(Model):
    """What the calls of a model cost."""

    model: str | None = None
    """The model; None if there were several, or none answered."""
    calls: Count = 0
    """Requests that were sent, failed ones included."""
    failed: Count = 0
    """The calls that failed."""
    tokens: TokenUsage = TokenUsage()
    kept: Count = 0
    """Responses from the cache, which are not counted as calls."""


class ModelRequest(Model):
    """One request of an agent to a model, as a tap saw it."""

    model: str
    """The model as prices name it, such as `openai/gpt-4o`."""
    status: int | None = None
    """The HTTP status of the response; None if none came."""
    elapsed_ms: Count = 0
    """Time until the last piece of the response."""
    token_usage: TokenUsage | None = None
    """None if the response does not tell it."""
