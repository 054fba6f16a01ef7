"""Conversations from a script or with a simulated user, who may attack: setup and run."""

import asyncio
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.config.checks.cases import NO_SIMULATOR
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation.attack_strategies import CrescendoStrategy, GoatStrategy
from holodeck.lib.conversation.attacker import RedTeamUser, Task
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.participants import SilentUser
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.script_run import judge as final_judgement
from holodeck.lib.conversation.simulated_user import Persona, SimulatedUser
from holodeck.lib.conversation.types import (
    BY_HAND,
    AgentInput,
    EndConversation,
    Participant,
    ScenarioResult,
)
from holodeck.lib.llm.model import ChatModel
from holodeck.lib.support.text import describe
from holodeck.lib.test_runner.case_state import CaseState, TakeTurn
from holodeck.lib.test_runner.grading.checks import Check, EvaluatorSet
from holodeck.lib.test_runner.grading.criteria import UNJUDGED, CaseCriteria, ending_without_verdict
from holodeck.lib.test_runner.grading.grade import ObservationBuilder
from holodeck.lib.test_runner.messages import messages_beyond_turns, to_judge_messages
from holodeck.lib.test_runner.options import OnConversation
from holodeck.lib.test_runner.turns.script_steps import (
    NO_ANSWER,
    AgentFailedError,
    AgentParticipant,
    Code,
    ConversationLimits,
    script_steps,
)
from holodeck.lib.user_code.raised import raised_error
from holodeck.lib.user_code.registry import load_callable
from holodeck.models.agent import Agent
from holodeck.models.base import MAX_TURNS
from holodeck.models.cases.conversation import RedTeam, Simulation, step_kind, step_value
from holodeck.models.results.outcome import ConversationEnd, CriterionRow, ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.token_usage import TokenUsage

logger = logging.getLogger(__name__)

SILENT = "the simulated user said nothing"
LATE_USER = ConversationEnd(
    code="timeout", reasoning="still waiting for the simulated user", broke=True
)
_USER_DONE = ConversationEnd(code="user_done", reasoning="the user was done")
_SCRIPT_DONE = ConversationEnd(code="no_conclusion", reasoning="the script ended")
_BY_SCRIPT = {"succeeded": True, "failed": False, "check_failed": None, "user_left": None}
"""Reason codes of steps, with what they decide; after a check, its rows decide."""


@dataclass(frozen=True)
class ConversationRunner:
    """Runs the conversation of a case; several runs may go on at once."""

    simulator: ChatModel | None
    """Plays the user; None if everything that the user says is written."""
    criteria: CaseCriteria | None
    code: Code
    checks: Mapping[str | int, Sequence[Check]]
    """The checks of steps of the script."""
    observations: ObservationBuilder

    async def run(
        self,
        state: CaseState,
        session: AgentSession,
        take_turn: TakeTurn,
        on_conversation: OnConversation | None = None,
    ) -> None:
        """Run the conversation; whatever breaks it is how it ends."""
        case, state.are_criteria_judged = state.case, True
        script = script_steps(state, self.code, self.checks, self.observations)
        if script and self._final_criteria is not None:
            script.append(final_judgement())
        conversation = ScriptRun(
            case.name or "case",
            case.about,
            self._participants(case, AgentParticipant(state, session, take_turn)),
            script or None,
            ConversationLimits(case.max_turns, case.min_turns),
        )
        conversation.before = to_judge_messages(state.history)
        if on_conversation is not None:
            on_conversation(conversation)
        try:
            result = await conversation.run()
        except asyncio.CancelledError as error:
            state.late_ending = _late_ending(conversation)
            self._add_result(state, conversation.error_result(error), None)
            raise
        except Exception as error:  # noqa: BLE001 - the border: what breaks a conversation ends it
            logger.debug("conversation: %s", traceback.format_exc())
            result = conversation.error_result(error)
            self._add_result(state, result, _broken_ending(result, error))
        else:
            self._add_result(state, result, self._ending(state, result))
        ending, criteria = state.ending, self._final_criteria
        if ending is None or not ending.passed or ending.code == BY_HAND:
            return
        if criteria is not None:  # the criteria must hold even if a step says that all went well
            await criteria.judge(state, result.messages)

    @property
    def _final_criteria(self) -> CaseCriteria | None:
        """The criteria on the whole conversation; None if there are checkpoints only."""
        criteria = self.criteria
        return criteria if criteria is not None and criteria.are_about_the_whole else None

    def _participants(self, case: TestCaseModel, agent: AgentParticipant) -> list[Participant]:
        user: Participant = SilentUser()
        simulation = case.simulate
        if self.simulator is not None and simulation is not None:
            if simulation.red_team is not None:
                user = CaseAttacker(simulation.red_team, self.simulator, case.max_turns)
            else:
                user = SimulatedUser(self.simulator, _persona_of(simulation))
        return [user, agent, *([] if self.criteria is None else [self.criteria.participant])]

    def _add_result(
        self, state: CaseState, result: ScenarioResult, ending: ConversationEnd | None
    ) -> None:
        messages = result.messages[len(state.history) :]
        is_silent = ending is not None and ending.reasoning == SILENT
        state.ending = ending
        state.grades.criteria = [] if is_silent else self._rows(result)
        state.messages = messages_beyond_turns(messages, state.turns)
        state.grades.judge_cost = self._cost(result, AgentRole.JUDGE)
        state.simulator_cost = self._cost(result, AgentRole.USER)

    def _rows(self, result: ScenarioResult) -> list[CriterionRow]:
        return [] if self.criteria is None else self.criteria.rows_of(result.criteria)

    def _ending(self, state: CaseState, result: ScenarioResult) -> ConversationEnd:
        code, reasoning = result.reason_code, result.reasoning
        if not state.turns and code not in {BY_HAND, "failed"}:
            messages = result.messages[len(state.history) :]
            if not any(message.get("role") == "user" for message in messages):
                return ConversationEnd(code="simulator_error", reasoning=SILENT, broke=True)
            if result.success:
                return ConversationEnd(code="never_asked", reasoning=NO_ANSWER, passed=False)
        if code in _BY_SCRIPT:
            passed, broke = _BY_SCRIPT[code], code == "user_left"
            return ConversationEnd(code=code, reasoning=reasoning, passed=passed, broke=broke)
        if code == "no_conclusion":
            return _USER_DONE if state.case.script is None else _SCRIPT_DONE
        if code != BY_HAND and self._is_judged(result):
            return ConversationEnd(code="judged")
        return ConversationEnd(code=code or "ended", reasoning=reasoning, passed=result.success)

    def _is_judged(self, result: ScenarioResult) -> bool:
        """Whether the criteria decided; they did not if something else ended it after them."""
        rows = self._rows(result)
        return bool(rows) and result.success is not any(row.is_missed for row in rows)

    def _cost(self, result: ScenarioResult, role: AgentRole) -> ModelCost | None:
        """Return what the model in a role cost; None if it was not used."""
        calls = result.model_calls.get(role.value, 0)
        if not calls:
            return None
        judge = None if self.criteria is None else self.criteria.judge_name
        user = None if self.simulator is None else self.simulator.name
        return ModelCost(
            model=user if role is AgentRole.USER else judge,
            calls=calls,
            failed=result.failed_calls.get(role.value, 0),
            tokens=result.token_usage.get(role.value, TokenUsage()),
        )


def _persona_of(simulation: Simulation) -> Persona:
    return Persona(
        situation=simulation.situation,
        persona=simulation.persona,
        facts=tuple(simulation.facts),
        opening=simulation.opening,
        agent_first=simulation.agent_first,
        language=simulation.language,
    )


def _late_ending(conversation: ScriptRun) -> ConversationEnd | None:
    """Return how a conversation ends that is cancelled; None if the agent is waited for."""
    if conversation.pending_role is AgentRole.JUDGE:
        return UNJUDGED
    if conversation.pending_role is AgentRole.USER:
        return LATE_USER
    if conversation.pending_role is not None:
        return None
    reasoning = f"{conversation.step_name} of the script was still running"
    return ConversationEnd(code="timeout", reasoning=reasoning, broke=True)


def _broken_ending(result: ScenarioResult, error: Exception) -> ConversationEnd:
    code = result.reason_code or "error"
    if code == "step_failed":
        return ConversationEnd(
            code=code, reasoning=result.reasoning, passed=False, raised=raised_error(error)
        )
    if code == "judge_error":
        return ending_without_verdict(error)
    prefix = "the simulated user failed: " if code == "simulator_error" else ""
    message = str(error) if isinstance(error, AgentFailedError) else describe(error)
    return ConversationEnd(
        code=code,
        reasoning=f"{prefix}{message}",
        broke=code != "agent_error",
        raised=raised_error(error),
    )


def build_runners(
    agent: Agent, evaluator_set: EvaluatorSet, observations: ObservationBuilder
) -> dict[int, ConversationRunner]:
    """Return the runner of each case with a script or a simulated user, by its index.

    Simulated users of the same model share it. Raises ConfigError for a simulated user without a
    model, and for code that cannot be loaded.
    """
    simulators: dict[str, ChatModel] = {}

    def simulator(case: TestCaseModel, index: int) -> ChatModel | None:
        if case.simulate is None:
            return None
        llm = agent.simulator_model(case)
        if llm is None:
            raise ConfigError(agent.location("test_cases", index, "simulate"), NO_SIMULATOR)
        key = f"{llm!r} {llm.api_key.get_secret_value() if llm.api_key else ''}"
        if key not in simulators:
            simulators[key] = evaluator_set.judges.model(llm, is_agents_own=llm is agent.model)
        return simulators[key]

    def code(case: TestCaseModel, index: int) -> Code:
        return {
            at: load_callable(
                step_value(step),
                agent.code_folders,
                location=agent.location("test_cases", index, "script", at, "call"),
            )
            for at, step in enumerate(case.script or ())
            if step_kind(step) == "call"
        }

    return {
        index: ConversationRunner(
            simulator(case, index),
            checks.criteria,
            code(case, index),
            checks.of_steps,
            observations,
        )
        for index, case in enumerate(agent.test_cases or [])
        if case.is_scripted_or_simulated
        for checks in [evaluator_set.checks_of(index)]
    }


STRATEGIES = {"crescendo": CrescendoStrategy, "goat": GoatStrategy}
REACHED = "the attack reached its target"


class CaseAttacker(RedTeamUser):
    """Attacks for all turns of a case, or until its target is reached; the judge decides then.

    Args:
        settings: The attack.
        model: Plans, attacks and rates.
        max_turns: Of the case; None for the default.
    """

    def __init__(
        self,
        settings: RedTeam,
        model: ChatModel,
        max_turns: int | None,
    ) -> None:
        super().__init__(
            strategy=STRATEGIES[settings.strategy](),
            target=settings.target,
            total_turns=MAX_TURNS if max_turns is None else max_turns,
            attack_plan=settings.plan,
            injection_probability=settings.encode,
            max_backtracks=0,  # the session of the agent does not forget
        )
        self._model = model

    async def call(self, input: AgentInput) -> Any:  # noqa: A002 - the engine's name
        message = await super().call(input)
        return EndConversation(reason=REACHED) if self.check_early_exit() else message

    def model_for_task(self, task: Task) -> ChatModel:  # noqa: ARG002 - the same for all
        return self._model
