"""The criteria of a case: who judges them, and the rows that come of it."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

from holodeck.lib.conversation.criteria_judge import CriteriaJudge
from holodeck.lib.conversation.keeping import Keeper, KeptJudge
from holodeck.lib.conversation.roles import AgentRole, Message
from holodeck.lib.conversation.spending import Tally, tallied
from holodeck.lib.conversation.types import AgentInput, CriterionResult, Party, ScenarioResult
from holodeck.lib.judging.judge import Judge
from holodeck.lib.test_runner.turn_run import in_words
from holodeck.models.conversation import CriterionSettings
from holodeck.models.conversation_result import (
    INTERRUPTED,
    ConversationEnd,
    CriterionRow,
    ModelCost,
)
from holodeck.models.test_result import Outcome

logger = logging.getLogger(__name__)

NO_CONCLUSION = (
    "the script ended without a conclusion: end it with 'judge', 'succeed' or 'fail', or write"
    " 'criteria' or other checks for the case"
)

UNJUDGED = ConversationEnd(code="timeout", reasoning="the judge has not answered", broke=True)
"""How a case ends whose criteria were being judged when its time was over."""
UNGRADED = ConversationEnd(code="timeout", reasoning="not every metric was done", broke=True)
"""How a case ends that was being graded when its time was over."""


@dataclass(frozen=True)
class Conclusion:
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

    def decided_as(self, outcome: Outcome) -> "Conclusion":
        """The same; a script that nothing concludes, no check either, fails its case."""
        if self.ending is None or self.ending.code != "no_conclusion":
            return self
        is_open = outcome is Outcome.UNCHECKED
        reasoning = NO_CONCLUSION if is_open else self.ending.reasoning
        update = {"passed": False if is_open else None, "reasoning": reasoning}
        return replace(self, ending=self.ending.model_copy(update=update))

    def out_of_time(self, words: str) -> "Conclusion | None":
        """The same, with the words for it that time ran out; None if the agent took it."""
        if self.ending is None or self.ending.code != "timeout":
            return None
        reasoning = f"{words}: {self.ending.reasoning}"
        return replace(self, ending=self.ending.model_copy(update={"reasoning": reasoning}))

    @property
    def cut_off(self) -> "Conclusion | None":
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


class Checkpoints:
    """A judge that decides at checkpoints only.

    Args:
        judging: Who decides.
    """

    role = AgentRole.JUDGE

    def __init__(self, judging: CriteriaJudge) -> None:
        self._judging = judging

    async def call(self, input: AgentInput) -> list[Message] | ScenarioResult:  # noqa: A002 - the engine's name
        """The verdict on a checkpoint; elsewhere the conversation goes on."""
        return [] if input.judgment_criteria is None else await self._judging.call(input)


def judge_broke(error: Exception) -> ConversationEnd:
    """The ending of a case whose judge could not be asked, or gave no verdict."""
    return ConversationEnd(
        code="judge_error", reasoning=f"the criteria are not judged: {in_words(error)}", broke=True
    )


class CaseCriteria:
    """The criteria of one case and their judge.

    Args:
        judge: Who is asked.
        written: The criteria.
        situation: What the judge is told about the case besides.
        keeper: Who keeps the verdicts; None if the judge is asked each time.
    """

    def __init__(
        self,
        judge: Judge,
        written: Sequence[CriterionSettings],
        situation: str,
        keeper: Keeper | None = None,
    ) -> None:
        self._optional = frozenset(one.text for one in written if not one.required)
        self._texts = [one.text for one in written]
        self._situation = situation
        self.judge_name = judge.name
        self._judging = (
            CriteriaJudge(judge, self._texts, optional=self._optional)
            if keeper is None
            else KeptJudge(judge, self._texts, keeper, optional=self._optional)
        )
        self.party: Party = self._judging if self._texts else Checkpoints(self._judging)
        """Plays the judge while a conversation goes on."""

    @property
    def are_about_the_whole(self) -> bool:
        """Whether there is anything to decide at the end; else there are checkpoints only."""
        return bool(self._texts)

    async def decided(
        self, messages: Sequence[Message], keep: Callable[[Conclusion], None] = lambda _: None
    ) -> Conclusion:
        """The final verdict on a whole conversation.

        `keep` is told what it came to should the judge not be waited for any more.
        """
        ending, found = None, None
        with tallied() as tally:
            try:
                found = await self._judging.rows(
                    messages, self._situation, self._texts, is_final=True
                )
            except asyncio.CancelledError:
                keep(Conclusion(UNJUDGED, judge_cost=self._cost(tally)))
                raise
            except Exception as error:  # noqa: BLE001 - the border: a judge that breaks is a row
                logger.debug("criteria: %s", traceback.format_exc())
                ending = judge_broke(error)
        return Conclusion(ending, self.rows_of(found or []), judge_cost=self._cost(tally))

    def _cost(self, tally: Tally) -> ModelCost:
        return ModelCost(
            model=self.judge_name,
            calls=tally.total_calls(),
            failed=tally.total_failed(),
            tokens=tally.total(),
            kept=tally.kept,
        )

    def rows_of(self, found: Sequence[CriterionResult]) -> list[CriterionRow]:
        """The judge's words as they are reported; what a checkpoint asks for is required."""
        return [
            CriterionRow(
                criterion=one.criterion,
                status=one.status.value,
                reasoning=one.reasoning,
                required=one.is_checkpoint or one.criterion not in self._optional,
                is_checkpoint=one.is_checkpoint,
            )
            for one in found
        ]
