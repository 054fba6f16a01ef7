"""A case whose user is played by a model, from the first word to how it ended."""

import logging
import traceback
from dataclasses import dataclass

from holodeck.lib.chat.model import ChatModel
from holodeck.lib.conversation.debugging import BY_HAND
from holodeck.lib.conversation.roles import AgentRole
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.simulated_user import Persona, SimulatedUser
from holodeck.lib.conversation.types import Party, ScenarioResult
from holodeck.lib.test_runner.agent_party import AgentParty
from holodeck.lib.test_runner.criteria import CaseCriteria, Conclusion, judge_broke
from holodeck.lib.test_runner.transcripts import messages_of
from holodeck.lib.test_runner.turn_run import in_words
from holodeck.lib.test_runner.watching import OnConversation
from holodeck.models.conversation import Simulation
from holodeck.models.conversation_result import ConversationEnd, ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.token_usage import TokenUsage

logger = logging.getLogger(__name__)

SILENT = "the simulated user said nothing"


@dataclass(frozen=True)
class Limits:
    """How a conversation is held; the time is limited elsewhere."""

    max_turns: int | None
    min_turns: int | None
    timeout: float | None = None
    call_timeout: float | None = None


@dataclass(frozen=True)
class Play:
    """One case with those who take part in it besides the agent; may be played at once again."""

    case: TestCaseModel
    simulator: ChatModel
    criteria: CaseCriteria | None

    async def run(
        self, agent: AgentParty, on_conversation: OnConversation | None = None
    ) -> Conclusion:
        """Hold the conversation; what breaks it is how it ended."""
        limits = Limits(self.case.max_turns, self.case.min_turns)
        parties = self._parties(agent)
        talk = ScriptRun(self.case.name or "case", self.case.about, parties, None, limits)
        if on_conversation is not None:
            on_conversation(talk)
        try:
            result = await talk.run()
            ending = self._ending(result, agent)
        except Exception as error:  # noqa: BLE001 - the border: what breaks a conversation ends it
            logger.debug("conversation: %s", traceback.format_exc())
            result = talk.broken(error)
            ending = _broken(result, error)
        told = messages_of(agent.turns)
        return Conclusion(
            ending=ending,
            criteria=[] if self.criteria is None else self.criteria.rows_of(result.criteria),
            messages=[] if told == result.messages else result.messages,
            judge_cost=self._cost(result, AgentRole.JUDGE),
            simulator_cost=self._cost(result, AgentRole.USER),
        )

    def _parties(self, agent: AgentParty) -> list[Party]:
        user = SimulatedUser(self.simulator, persona_of(self.case.simulate or Simulation()))
        return [user, agent, *([] if self.criteria is None else [self.criteria.party])]

    def _ending(self, result: ScenarioResult, agent: AgentParty) -> ConversationEnd:
        if result.reason_code == BY_HAND:
            return ConversationEnd(code=BY_HAND, reasoning=result.reasoning, passed=result.success)
        if not agent.turns:
            return ConversationEnd(code="simulator_error", reasoning=SILENT, broke=True)
        if result.criteria:
            return ConversationEnd(code="judged")
        if result.reason_code == "no_conclusion":
            return ConversationEnd(code="user_done", reasoning="the user was done")
        return ConversationEnd(
            code=result.reason_code or "ended", reasoning=result.reasoning, passed=result.success
        )

    def _cost(self, result: ScenarioResult, role: AgentRole) -> ModelCost | None:
        """What a model cost in a role; None if it was not asked."""
        calls = result.model_calls.get(role.value, 0)
        judge = None if self.criteria is None else self.criteria.judge_name
        name = self.simulator.name if role is AgentRole.USER else judge
        tokens = result.token_usage.get(role.value, TokenUsage.zero())
        return ModelCost(model=name, calls=calls, tokens=tokens) if calls else None


def persona_of(who: Simulation) -> Persona:
    """The persona as the engine has it."""
    return Persona(
        situation=who.situation,
        persona=who.persona,
        facts=tuple(who.facts),
        opening=who.opening,
        agent_first=who.agent_first,
        language=who.language,
    )


def _broken(result: ScenarioResult, error: Exception) -> ConversationEnd:
    code = result.reason_code or "error"
    if code == "judge_error":
        return judge_broke(error)
    who = "the simulated user broke: " if code == "simulator_error" else ""
    reasoning = f"{who}{in_words(error)}"
    return ConversationEnd(code=code, reasoning=reasoning, broke=code != "agent_error")
