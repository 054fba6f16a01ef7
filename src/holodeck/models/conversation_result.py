"""How a conversation ended, what the judge made of it, and what judge and simulated user cost."""

from typing import Literal

from holodeck.models.base import Count, Model
from holodeck.models.on_demand import OnDemand
from holodeck.models.raised_error import RaisedError
from holodeck.models.token_usage import TokenUsage

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
