"""What a case came to by its ending and its criteria, and the outcomes that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from holodeck.lib.conversation.messages import Message
from holodeck.models.outcome import (
    INTERRUPTED,
    ConversationEnd,
    CriterionRow,
    ModelCost,
)
from holodeck.models.test_result import Outcome

NO_CONCLUSION = (
    "the script ended without a conclusion: end it with 'judge', 'succeed' or 'fail', or write"
    " 'criteria' or other checks for the case"
)

UNJUDGED = ConversationEnd(code="timeout", reasoning="the judge has not answered", broke=True)
"""How a case ends whose criteria were being judged when its time was over."""
UNGRADED = ConversationEnd(code="timeout", reasoning="not every metric was done", broke=True)
"""How a case ends that was being graded when its time was over."""


@dataclass(frozen=True)
class ConversationOutcome:
    """What a case came to, besides what the agent did in it and what metrics say."""

    ending: ConversationEnd | None = None
    """How the conversation ended, or why its judge could not judge."""
    criteria: list[CriterionRow] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    """All that was said; empty where the turns tell all of it."""
    judge_cost: ModelCost | None = None
    simulator_cost: ModelCost | None = None

    @property
    def fields(self) -> dict[str, object]:
        """As they stand in the result of a case."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def decided_as(self, outcome: Outcome) -> "ConversationOutcome":
        """The same; a script that nothing concludes, no check either, fails its case."""
        if self.ending is None or self.ending.code != "no_conclusion":
            return self
        is_open = outcome is Outcome.UNCHECKED
        reasoning = NO_CONCLUSION if is_open else self.ending.reasoning
        update = {"passed": False if is_open else None, "reasoning": reasoning}
        return replace(self, ending=self.ending.model_copy(update=update))

    def out_of_time(self, words: str) -> "ConversationOutcome | None":
        """The same, with the words for it that time ran out; None if the agent took it."""
        if self.ending is None or self.ending.code != "timeout":
            return None
        reasoning = f"{words}: {self.ending.reasoning}"
        return replace(self, ending=self.ending.model_copy(update={"reasoning": reasoning}))

    @property
    def cut_off(self) -> "ConversationOutcome | None":
        """The same, of a case that is interrupted while metrics or models are waited for."""
        late = self.out_of_time("interrupted")
        if late is None or late.ending is None:
            return None
        return replace(late, ending=late.ending.model_copy(update={"code": INTERRUPTED}))

    @property
    def errors(self) -> list[str]:
        """What is wrong with the ending itself."""
        if self.ending is None or not (self.ending.broke or self.ending.passed is False):
            return []
        return [self.ending.reasoning or self.ending.code]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the case ended by its ending alone, and by its criteria alone."""
        return [_outcome_of_ending(self.ending), _outcome_of_rows(self.criteria)]


def _outcome_of_ending(ending: ConversationEnd | None) -> Outcome:
    if ending is None:
        return Outcome.UNCHECKED
    if ending.broke:
        return Outcome.METRIC_ERROR
    decided = {True: Outcome.PASSED, False: Outcome.FAILED, None: Outcome.UNCHECKED}
    return decided[ending.passed]


def _outcome_of_rows(rows: Sequence[CriterionRow]) -> Outcome:
    if any(row.is_missed for row in rows):
        return Outcome.FAILED
    return Outcome.PASSED if any(row.required for row in rows) else Outcome.UNCHECKED
