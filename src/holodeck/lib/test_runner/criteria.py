"""The criteria of a case: who judges them, and the rows that come of it."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence

from holodeck.lib.conversation.criteria_judge import CriteriaJudge
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.response_cache import CachedJudge, ResponseCache
from holodeck.lib.conversation.types import AgentInput, CriterionResult, Participant, ScenarioResult
from holodeck.lib.conversation.usage import CallUsage, count_usage
from holodeck.lib.exceptions import describe, raised_by
from holodeck.lib.judging.judge import Judge
from holodeck.lib.test_runner.conversation_outcome import UNJUDGED, ConversationOutcome
from holodeck.models.conversation import CriterionSettings
from holodeck.models.outcome import ConversationEnd, CriterionRow, ModelCost

logger = logging.getLogger(__name__)


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
        code="judge_error",
        reasoning=f"the criteria are not judged: {describe(error)}",
        broke=True,
        raised=raised_by(error),
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
        response_cache: ResponseCache | None = None,
    ) -> None:
        self._optional = frozenset(one.text for one in written if not one.required)
        self._texts = [one.text for one in written]
        self._situation = situation
        self.judge_name = judge.name
        self._judging = (
            CriteriaJudge(judge, self._texts, optional=self._optional)
            if response_cache is None
            else CachedJudge(judge, self._texts, response_cache, optional=self._optional)
        )
        self.participant: Participant = self._judging if self._texts else Checkpoints(self._judging)
        """Plays the judge while a conversation goes on."""

    @property
    def are_about_the_whole(self) -> bool:
        """Whether there is anything to decide at the end; else there are checkpoints only."""
        return bool(self._texts)

    async def decided(
        self,
        messages: Sequence[Message],
        keep: Callable[[ConversationOutcome], None] = lambda _: None,
    ) -> ConversationOutcome:
        """The final verdict on a whole conversation.

        `keep` is told what it came to should the judge not be waited for any more.
        """
        ending, found = None, None
        with count_usage() as tally:
            try:
                found = await self._judging.rows(
                    messages, self._situation, self._texts, is_final=True
                )
            except asyncio.CancelledError:
                keep(ConversationOutcome(UNJUDGED, judge_cost=self._cost(tally)))
                raise
            except Exception as error:  # noqa: BLE001 - the border: a judge that breaks is a row
                logger.debug("criteria: %s", traceback.format_exc())
                ending = judge_broke(error)
        return ConversationOutcome(ending, self.rows_of(found or []), judge_cost=self._cost(tally))

    def _cost(self, tally: CallUsage) -> ModelCost:
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
