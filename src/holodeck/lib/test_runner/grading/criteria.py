"""The criteria of a case, and the judge that decides on them."""

import logging
import traceback
from collections.abc import Mapping, Sequence

from holodeck.lib.conversation.criteria_judge import CriteriaJudge
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import AgentInput, CriterionResult, Participant, ScenarioResult
from holodeck.lib.judging.judge import Judge
from holodeck.lib.llm.model import count_usage
from holodeck.lib.support.text import describe, one_line, plural
from holodeck.lib.test_runner.case_state import CaseState, add_costs
from holodeck.lib.test_runner.grading.judge_trust import Trust
from holodeck.lib.test_runner.messages import count_images
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.cases.conversation import CriterionSettings
from holodeck.models.cases.messages import Message
from holodeck.models.results.outcome import ConversationEnd, CriterionRow, ModelCost

logger = logging.getLogger(__name__)

UNJUDGED = ConversationEnd(code="timeout", reasoning="still waiting for the judge", broke=True)
"""How a case ends whose time runs out while its criteria are judged."""


class CheckpointJudge:
    """A judge that decides at checkpoints only."""

    role = AgentRole.JUDGE

    def __init__(self, judge: CriteriaJudge) -> None:
        self._judge = judge

    async def call(self, input: AgentInput) -> list[Message] | ScenarioResult:  # noqa: A002 - the engine's name
        """Return the verdict on a checkpoint; elsewhere the conversation continues."""
        return [] if input.judgment_criteria is None else await self._judge.call(input)


def ending_without_verdict(error: Exception) -> ConversationEnd:
    """Return how a case ends whose judge could not be asked, or gave no verdict."""
    return ConversationEnd(
        code="judge_error",
        reasoning=f"the criteria were not judged: {describe(error)}",
        broke=True,
        raised=raised_error(error),
    )


def _noting_images(row: CriterionRow, state: CaseState) -> CriterionRow:
    """Return the row, which says so if the agent got images that are not in the record."""
    count = sum(count_images(turn) for turn in state.turns) - sum(map(len, state.images))
    if not count:
        return row
    note = f"(judged without {plural(count, 'image')} of the test case, which only the agent got)"
    return row.model_copy(update={"reasoning": f"{row.reasoning} {note}"})


class CaseCriteria:
    """The criteria of a case and their judge.

    Args:
        judge: The model that judges.
        criteria: The criteria; none if the script only asks at checkpoints.
        situation: What the judge is told about the case besides.
        trust: How far the judge is trusted for each criterion, those of checkpoints included; None
            if that plays no part.
    """

    def __init__(
        self,
        judge: Judge,
        criteria: Sequence[CriterionSettings],
        situation: str,
        *,
        trust: Mapping[str, Trust | None],
    ) -> None:
        self._trust = trust
        self._optional = frozenset(
            criterion.text for criterion in criteria if not criterion.required
        )
        self._texts = [criterion.text for criterion in criteria]
        self._situation = situation
        self.judge_name = judge.name
        self._judge = CriteriaJudge(judge, self._texts, optional=self._optional)
        self.participant: Participant = self._judge if self._texts else CheckpointJudge(self._judge)
        """The judge as a participant of a conversation."""

    @property
    def are_about_the_whole(self) -> bool:
        """Whether the judge decides at the end, and not at checkpoints only."""
        return bool(self._texts)

    async def judge(self, state: CaseState, messages: Sequence[Message]) -> None:
        """Judge the whole conversation; the state gets the verdicts and what they cost."""
        state.late_ending = UNJUDGED
        with count_usage() as usage:
            try:
                verdicts = await self._judge.rows(
                    messages, self._situation, self._texts, is_final=True
                )
                rows = self.rows_of(verdicts or [])
                state.grades.criteria += [_noting_images(row, state) for row in rows]
            except Exception as error:  # noqa: BLE001 - the border: a judge that breaks is a row
                logger.debug("criteria: %s", traceback.format_exc())
                state.grades.ending = ending_without_verdict(error)
            finally:
                cost = ModelCost(
                    model=self.judge_name,
                    calls=usage.requests,
                    failed=usage.failed,
                    tokens=usage.usage,
                )
                state.grades.judge_cost = add_costs(state.grades.judge_cost, cost)
        state.late_ending = None

    def end_if_distrusted(self, state: CaseState) -> None:
        """End the case without a verdict if the judge may not decide about all criteria."""
        missing = {
            text: trust.state
            for text, trust in self._trust.items()
            if trust is not None and trust.is_missing
        }
        if not missing:
            return
        of_each = ", ".join(f"{one_line(text, 80)!r} ({state})" for text, state in missing.items())
        state.grades.ending = ConversationEnd(
            code="judge_error",
            reasoning=f"the judge of the criteria may not decide about {of_each}, and"
            " 'judge_trust' is 'require'; see 'holodeck judge check --metric criteria --save'",
            broke=True,
        )

    def rows_of(self, verdicts: Sequence[CriterionResult]) -> list[CriterionRow]:
        """Return the verdicts as rows of the report; those of checkpoints are always required."""
        return [
            CriterionRow(
                criterion=row.criterion,
                status=row.status.value,
                reasoning=row.reasoning,
                required=row.is_checkpoint or row.criterion not in self._optional,
                is_checkpoint=row.is_checkpoint,
                judge_trust=None if trust is None else trust.state,
                judge_limits=None if trust is None else trust.limits,
            )
            for row in verdicts
            for trust in [self._trust.get(row.criterion)]
        ]
