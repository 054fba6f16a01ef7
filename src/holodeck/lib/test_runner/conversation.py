"""Conversations from a script or with a simulated user: what they need, and how one is run."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holodeck.config.check_cases import NO_SIMULATOR
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.response_cache import CachedUser, ResponseCache
from holodeck.lib.conversation.script import judge as final_judgement
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.simulated_user import Persona, SimulatedUser
from holodeck.lib.conversation.terminal import BY_HAND, SilentUser
from holodeck.lib.conversation.types import Participant, ScenarioResult, ScriptStep
from holodeck.lib.exceptions import describe, raised_by
from holodeck.lib.llm.model import ChatModel
from holodeck.lib.registry import load_callable
from holodeck.lib.test_runner.conversation_display import OnConversation
from holodeck.lib.test_runner.conversation_outcome import UNJUDGED, ConversationOutcome
from holodeck.lib.test_runner.criteria import CaseCriteria, judge_broke
from holodeck.lib.test_runner.grading import Check, EvaluatorSet
from holodeck.lib.test_runner.history import History, to_judge_messages
from holodeck.lib.test_runner.observer import Observer
from holodeck.lib.test_runner.script_steps import (
    NO_ANSWER,
    AgentFailedError,
    AgentParticipant,
    Code,
    ScriptSteps,
    TakeTurn,
)
from holodeck.lib.test_runner.transcripts import messages_of
from holodeck.models.agent import Agent
from holodeck.models.conversation import Simulation
from holodeck.models.llm import LLMProvider
from holodeck.models.outcome import ConversationEnd, CriterionRow, ModelCost
from holodeck.models.script import kind_of, value_of
from holodeck.models.test_case import TestCaseModel
from holodeck.models.token_usage import TokenUsage

logger = logging.getLogger(__name__)

Keep = Callable[[ConversationOutcome], None]
"""Told what a case came to, should it be cut off."""
SILENT = "the simulated user said nothing"


@dataclass(frozen=True)
class ConversationLimits:
    """How a conversation is held; the time is limited elsewhere."""

    max_turns: int | None
    min_turns: int | None
    timeout: float | None = None
    call_timeout: float | None = None


@dataclass(frozen=True)
class ConversationRunner:
    """One case with those who take part in it besides the agent; may be played at once again."""

    case: TestCaseModel
    simulator: ChatModel | None
    """Plays the user; None where all that the user says is written."""
    criteria: CaseCriteria | None
    code: Code
    response_cache: ResponseCache | None = None
    """Keeps what the simulated user says; None if the model is asked each time."""

    def agent_in(
        self, session: AgentSession, take_turn: TakeTurn, history: History
    ) -> AgentParticipant:
        """The agent as one of those who take part."""
        return AgentParticipant(session, take_turn, history)

    async def run(
        self,
        agent: AgentParticipant,
        checks: Mapping[str | int, Sequence[Check]],
        observer: Observer,
        on_conversation: OnConversation | None = None,
        keep: Keep = lambda _: None,
    ) -> ConversationOutcome:
        """Hold the conversation; what breaks it is how it ended.

        What it came to until then is given to `keep` before somebody may be waited for in vain.
        """
        limits = ConversationLimits(self.case.max_turns, self.case.min_turns)
        steps = ScriptSteps(self.case, self.code, agent, checks, observer).made
        script = self._concluded(steps) if steps else None
        participants = self._parties(agent)
        talk = ScriptRun(self.case.name or "case", self.case.about, participants, script, limits)
        talk.before = to_judge_messages(agent.history)
        if on_conversation is not None:
            on_conversation(talk)
        try:
            result = await talk.run()
            ending = self._ending(result, agent)
        except asyncio.CancelledError as error:
            keep(self._conclusion(_cut_off(talk), talk.broken(error), agent))
            raise
        except Exception as error:  # noqa: BLE001 - the border: what breaks a conversation ends it
            logger.debug("conversation: %s", traceback.format_exc())
            result = talk.broken(error)
            ending = _broken(result, error)
        conclusion = self._conclusion(ending, result, agent)
        return await self._judged(conclusion, result, keep)

    def _conclusion(
        self, ending: ConversationEnd | None, result: ScenarioResult, agent: AgentParticipant
    ) -> ConversationOutcome:
        said = _said(result, agent)
        is_silent = ending is not None and ending.reasoning == SILENT
        return ConversationOutcome(
            ending=ending,
            criteria=[] if is_silent else self._rows(result),
            messages=[] if messages_of(agent.turns) == said else said,
            judge_cost=self._cost(result, AgentRole.JUDGE),
            simulator_cost=self._cost(result, AgentRole.USER),
        )

    def _concluded(self, steps: list[ScriptStep]) -> list[ScriptStep]:
        """The steps, and the final verdict where there is anything to decide."""
        has_criteria = self.criteria is not None and self.criteria.are_about_the_whole
        return [*steps, final_judgement()] if has_criteria else steps

    async def _judged(
        self, conclusion: ConversationOutcome, result: ScenarioResult, keep: Keep
    ) -> ConversationOutcome:
        """A script may say that all went well; the criteria have to hold all the same."""
        ending = conclusion.ending
        is_content = ending is not None and ending.passed and ending.code != BY_HAND
        if self.criteria is None or not self.criteria.are_about_the_whole or not is_content:
            return conclusion

        def with_judgement(judged: ConversationOutcome) -> ConversationOutcome:
            return replace(
                conclusion,
                ending=judged.ending or ending,
                criteria=[*conclusion.criteria, *judged.criteria],
                judge_cost=_both(conclusion.judge_cost, judged.judge_cost),
            )

        late = lambda judged: keep(with_judgement(judged))  # noqa: E731
        return with_judgement(await self.criteria.decided(result.messages, late))

    def _parties(self, agent: AgentParticipant) -> list[Participant]:
        user: Participant = SilentUser()
        if self.simulator is not None:
            part = SimulatedUser(self.simulator, persona_of(self.case.simulate or Simulation()))
            user = part if self.response_cache is None else CachedUser(part, self.response_cache)
        return [user, agent, *([] if self.criteria is None else [self.criteria.participant])]

    def _rows(self, result: ScenarioResult) -> list[CriterionRow]:
        return [] if self.criteria is None else self.criteria.rows_of(result.criteria)

    def _ending(self, result: ScenarioResult, agent: AgentParticipant) -> ConversationEnd:
        code, words = result.reason_code, result.reasoning
        if not agent.turns and code not in {BY_HAND, "failed"}:
            if not any(one.get("role") == "user" for one in _said(result, agent)):
                return ConversationEnd(code="simulator_error", reasoning=SILENT, broke=True)
            if result.success:
                return ConversationEnd(code="never_asked", reasoning=NO_ANSWER, passed=False)
        if code in _BY_SCRIPT:
            passed, broke = _BY_SCRIPT[code], code == "user_left"
            return ConversationEnd(code=code, reasoning=words, passed=passed, broke=broke)
        if code == "no_conclusion":
            return _USER_DONE if self.case.script is None else _SCRIPT_DONE
        if code != BY_HAND and self._is_judged(result):
            return ConversationEnd(code="judged")
        return ConversationEnd(code=code or "ended", reasoning=words, passed=result.success)

    def _is_judged(self, result: ScenarioResult) -> bool:
        """Whether the criteria tell how it ended; they do not if something else came after them."""
        rows = self._rows(result)
        return bool(rows) and result.success is not any(row.is_missed for row in rows)

    def _cost(self, result: ScenarioResult, role: AgentRole) -> ModelCost | None:
        """What a model cost in a role; None if it was not asked."""
        calls = result.model_calls.get(role.value, 0)
        judge = None if self.criteria is None else self.criteria.judge_name
        user = None if self.simulator is None else self.simulator.name
        name = user if role is AgentRole.USER else judge
        tokens = result.token_usage.get(role.value, TokenUsage.zero())
        kept = result.kept_answers.get(role.value, 0)
        failed = result.failed_calls.get(role.value, 0)
        cost = ModelCost(model=name, calls=calls, failed=failed, tokens=tokens, kept=kept)
        return cost if calls or kept else None


LATE_USER = ConversationEnd(
    code="timeout", reasoning="the simulated user has not answered", broke=True
)
_USER_DONE = ConversationEnd(code="user_done", reasoning="the user was done")
_SCRIPT_DONE = ConversationEnd(code="no_conclusion", reasoning="the script came to its end")
_BY_SCRIPT = {"succeeded": True, "failed": False, "check_failed": None, "user_left": None}
"""What steps say in the end; a check has its rows, which decide."""


def _said(result: ScenarioResult, agent: AgentParticipant) -> list[Message]:
    """What was said in the case, without what is told of before it."""
    return result.messages[len(agent.history) :]


def _both(one: ModelCost | None, other: ModelCost | None) -> ModelCost | None:
    if one is None or other is None:
        return one or other
    return ModelCost(
        model=other.model,
        calls=one.calls + other.calls,
        failed=one.failed + other.failed,
        tokens=one.tokens + other.tokens,
        kept=one.kept + other.kept,
    )


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


def _cut_off(talk: ScriptRun) -> ConversationEnd | None:
    """How a conversation ends that nobody waits for any more; None if that is the agent's doing."""
    if talk.waits_for is AgentRole.JUDGE:
        return UNJUDGED
    if talk.waits_for is AgentRole.USER:
        return LATE_USER
    if talk.waits_for is not None:
        return None
    late = f"{talk.step_name} of the script was not done"
    return ConversationEnd(code="timeout", reasoning=late, broke=True)


def _broken(result: ScenarioResult, error: Exception) -> ConversationEnd:
    code = result.reason_code or "error"
    if code == "step_failed":
        return ConversationEnd(
            code=code, reasoning=result.reasoning, passed=False, raised=raised_by(error)
        )
    if code == "judge_error":
        return judge_broke(error)
    who = "the simulated user broke: " if code == "simulator_error" else ""
    told = str(error) if isinstance(error, AgentFailedError) else describe(error)
    reasoning = f"{who}{told}"
    return ConversationEnd(
        code=code, reasoning=reasoning, broke=code != "agent_error", raised=raised_by(error)
    )


class ConversationSetup:
    """The plays of every case with a script or a simulated user.

    Raises ConfigError for a simulated user without a model, and for code that cannot be loaded.
    """

    def __init__(self, agent: Agent, evaluator_set: EvaluatorSet) -> None:
        self._agent = agent
        self._judges = evaluator_set.judge_provider.judges
        self._case_caches = evaluator_set.case_caches
        self._simulators: dict[str, ChatModel] = {}
        self._plays = {
            index: ConversationRunner(
                case=case,
                simulator=None if case.simulate is None else self._simulator(case, index),
                criteria=evaluator_set.checks_of(index).criteria,
                code=self._code(case, index),
                response_cache=None if case.simulate is None else self._response_cache(case, index),
            )
            for index, case in enumerate(agent.test_cases or [])
            if case.is_played
        }

    def play_of(self, index: int) -> ConversationRunner | None:
        """What is played in the case at that place in the file; None if its turns are written."""
        return self._plays.get(index)

    async def close(self) -> None:
        """Let go of the connections of the running event loop."""
        for model in self._simulators.values():
            await model.close()

    def _code(self, case: TestCaseModel, index: int) -> dict[int, Callable[..., Any]]:
        """The functions that the script calls. Raises ConfigError."""
        targets = {
            at: value_of(one) for at, one in enumerate(case.script or ()) if kind_of(one) == "call"
        }
        place = self._agent.place
        return {
            at: load_callable(
                target,
                self._agent.base_dir,
                where=place("test_cases", index, "script", at, "call"),
            )
            for at, target in targets.items()
        }

    def _response_cache(self, case: TestCaseModel, index: int) -> ResponseCache | None:
        """Who keeps what the simulated user says, if anybody does. Raises ConfigError."""
        llm = self._agent.simulator_of(case)
        where = self._agent.place("test_cases", index, "simulate")
        return None if llm is None else self._case_caches.of(case, llm, where)

    def _simulator(self, case: TestCaseModel, index: int) -> ChatModel:
        """The model that plays the user; one for all cases that name the same."""
        llm = self._agent.simulator_of(case)
        if llm is None:
            raise ConfigError(self._agent.place("test_cases", index, "simulate"), NO_SIMULATOR)
        key = _key(llm)
        if key not in self._simulators:
            is_own = llm is self._agent.model
            self._simulators[key] = self._judges.model(llm, is_agents_own=is_own)
        return self._simulators[key]


def _key(llm: LLMProvider) -> str:
    return f"{llm!r} {llm.api_key.get_secret_value() if llm.api_key else ''}"
